"""Write, read and refuse small model files in the formats of LIBSVM and LIBLINEAR."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from liblinear import liblinearutil
from libsvm import svmutil

from randsvm.errors import DataError, ModelError
from randsvm.models import liblinear_format, libsvm_format
from randsvm.models.liblinear_format import LiblinearModel
from randsvm.models.libsvm_format import LibsvmModel

TRAILER = {"seed": "7", "labels": "ham spam"}
OWN_LINE = b"randsvm_model 1\n"


class Format(NamedTuple):
    """One of the two formats.

    module: of randsvm.models; model: a small one; body: another, as its text; number_line: a line
    of body's header with a keyword and one number; load: the loader of the format's own library.
    """

    module: Any
    program: str
    model: LibsvmModel | LiblinearModel
    body: bytes
    number_line: bytes
    load: Any

    @property
    def end_line(self) -> bytes:
        """Return the last line of the header."""
        return self.module.HEADER_FORMAT.end.encode() + b"\n"

    @property
    def first_keyword(self) -> str:
        return self.module.HEADER_FORMAT.keywords[0]

    @property
    def header(self) -> list[bytes]:
        """Return the number of lines before the last of the header."""
        return self.body.partition(self.end_line)[0].splitlines(keepends=True)

    @property
    def rows(self) -> bytes:
        return self.body.partition(self.end_line)[2]

    def content(self, model: Any, folder: Path, trailer: dict[str, str] = TRAILER) -> bytes:
        """Return the file of a model."""
        self.module.write(str(folder / "m"), model, trailer)
        return (folder / "m").read_bytes()

    def refused(self, content: bytes) -> str:
        """Check that reading fails; return the message, one line that names the file."""
        with pytest.raises((ModelError, DataError)) as caught:
            self.module.parse(content, "m")
        assert caught.value.exit_code == 65
        assert str(caught.value).startswith("m:")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def not_written(self, model: Any, folder: Path) -> str:
        """Check that saving fails and keeps the old file; return the message."""
        path = folder / "m"
        path.write_text("old")
        with pytest.raises(ModelError) as caught:
            self.module.write(str(path), model, TRAILER)
        assert [p.read_text() for p in folder.iterdir()] == ["old"]
        return str(caught.value).replace(str(path), "m")


def without_trailer(content: bytes) -> bytes:
    return content[: content.index(b"# randsvm format")]


def edited(body: bytes, old: bytes, new: bytes) -> bytes:
    assert body.count(old) == 1
    return body.replace(old, new)


def of_the_library(model: Any) -> Any:
    """The model as it is read without its trailer: the values of support vectors are float64."""
    if not isinstance(model, LibsvmModel):
        return model
    return dataclasses.replace(model, values=np.array([float(str(v)) for v in model.values]))


def assert_same(found: Any, expected: Any) -> None:
    """Whether two models are equal to the last bit."""
    assert type(found) is type(expected)
    for field in dataclasses.fields(found):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(b, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), field.name
            assert a.flags.c_contiguous, field.name
            assert a.tobytes() == b.tobytes(), field.name
        else:
            assert repr(a) == repr(b), field.name


LIBSVM = Format(
    libsvm_format,
    "LIBSVM",
    LibsvmModel(
        svm_type="c_svc",
        kernel_type="rbf",
        degree=None,
        gamma=0.1,
        coef0=None,
        rho=(-0.25,),
        label=(1, -1),
        nr_sv=(1, 2),
        coefficients=np.array([[0.7], [1e-3], [-0.701]]),
        indptr=np.array([0, 2, 2, 3]),
        indices=np.array([1, 3, 2], np.int32),
        values=np.array([0.5, -1.25, 3e-5], np.float32),
    ),
    b"svm_type c_svc\nkernel_type rbf\ngamma 0.1\nnr_class 2\ntotal_sv 2\nrho -0.25\n"
    b"label 1 -1\nnr_sv 1 1\nSV\n0.5 1:0.5 3:-1.25 \n-0.5 \n",
    b"gamma 0.1\n",
    svmutil.svm_load_model,
)
LIBLINEAR = Format(
    liblinear_format,
    "LIBLINEAR",
    LiblinearModel(
        solver_type="L2R_L1LOSS_SVC_DUAL",
        nr_class=3,
        label=(3, 4, 5),
        nr_feature=2,
        bias=1.0,
        rho=None,
        w=np.array([[0.5, -1.25, 0], [3e-5, 0, 7], [-0.0, 1e300, 1 / 3]]),
    ),
    b"solver_type L2R_LR\nnr_class 3\nlabel 1 -1 7\nnr_feature 2\nbias 1\nw\n"
    b"0.5 0 -1.25 \n-0.5 3 8e-05 \n1 2 3 \n",
    b"bias 1\n",
    liblinearutil.load_model,
)
FORMATS = {"libsvm": LIBSVM, "liblinear": LIBLINEAR}
