"""LIBSVM and this package read each other's models, and no bad file is misread."""

from __future__ import annotations

import ctypes
import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from libsvm import svm as bindings
from libsvm import svmutil
from model_files import LIBSVM, TRAILER, assert_same, edited, of_the_library, without_trailer
from scipy import sparse

from randsvm import files
from randsvm.errors import RandsvmError
from randsvm.models import libsvm_format
from randsvm.models.libsvm_format import (
    CLASSIFIER_TYPES,
    KERNEL_PARAMETERS,
    SVM_TYPE_NAMES,
    LibsvmModel,
)

BODY = LIBSVM.body
# Kernels over features.
KERNEL_TYPES = [name for name in KERNEL_PARAMETERS if name != "precomputed"]


def model_of(
    rows,
    svm_type="c_svc",
    kernel_type="rbf",
    coefficients=None,
    rho=-0.25,
    **changes,
):
    """A model whose support vectors are the rows of a dense array."""
    X = sparse.csr_matrix(np.asarray(rows, np.float32))
    m = X.shape[0]
    two_classes = svm_type in CLASSIFIER_TYPES
    parameters = {"degree": 3, "gamma": 0.1, "coef0": 0.5}
    used = KERNEL_PARAMETERS[kernel_type]
    model = LibsvmModel(
        svm_type,
        kernel_type,
        **{key: value if key in used else None for key, value in parameters.items()},
        rho=(rho,),
        label=(1, -1) if two_classes else None,
        nr_sv=(m // 2, m - m // 2) if two_classes else None,
        coefficients=np.c_[np.linspace(-1, 1, m) if coefficients is None else coefficients],
        indptr=X.indptr.astype(np.int64),
        indices=X.indices + np.int32(1),
        values=X.data,
    )
    return dataclasses.replace(model, **changes)


def read(path):
    return libsvm_format.parse(files.read_whole(str(path)), str(path))


# LIBSVM reads what this package writes


def kernel_by_definition(model, x, z):
    """K(x, z) as LIBSVM's README defines it."""
    match model.kernel_type:
        case "linear":
            return x @ z
        case "polynomial":
            return (model.gamma * (x @ z) + model.coef0) ** model.degree
        case "rbf":
            return np.exp(-model.gamma * ((x - z) ** 2).sum())
        case "sigmoid":
            return np.tanh(model.gamma * (x @ z) + model.coef0)


def decision_by_definition(model, rows, x):
    """sum_i coefficient_i K(SV_i, x) - rho, term by term."""
    terms = zip(model.coefficients[:, 0], rows, strict=True)
    return sum(c * kernel_by_definition(model, z, x) for c, z in terms) - model.rho[0]


def predicted_by_libsvm(path, X):
    """Labels and decision values out of LIBSVM's own loader and predictor."""
    model = svmutil.svm_load_model(str(path))
    labels, values = [], []
    for x in X:
        nodes, _ = bindings.gen_svm_nodearray({j + 1: float(v) for j, v in enumerate(x)})
        value = (ctypes.c_double * 1)()
        labels.append(bindings.libsvm.svm_predict_values(model, nodes, value))
        values.append(value[0])
    return np.array(labels), np.array(values)


@pytest.mark.parametrize("svm_type", SVM_TYPE_NAMES)
@pytest.mark.parametrize("kernel_type", KERNEL_TYPES)
@pytest.mark.parametrize("support_vectors", [0, 7])
def test_libsvm_predicts_with_our_file_what_the_formula_says(
    tmp_path, rng, svm_type, kernel_type, support_vectors
):
    # Multiples of 1/64, because LIBSVM reads the shortest float32 text as a double.
    rows = rng.integers(-128, 129, size=(support_vectors, 4)) / 64
    rows[1:2] = 0  # a support vector without features
    rows[:, 2][rows[:, 2] < 0] = 0
    model = model_of(
        rows, svm_type, kernel_type, coefficients=rng.normal(size=support_vectors), rho=0.1 + 0.2
    )
    if svm_type in CLASSIFIER_TYPES:
        model = dataclasses.replace(model, label=(-3, 8))
    libsvm_format.write(str(tmp_path / "m"), model, TRAILER)
    X = rng.normal(size=(5, 4))
    labels, values = predicted_by_libsvm(tmp_path / "m", X)
    expected = np.array([decision_by_definition(model, rows, x) for x in X])
    assert values == pytest.approx(expected, rel=1e-12, abs=1e-14)
    match svm_type:
        case "c_svc" | "nu_svc":
            assert labels.tolist() == np.where(expected > 0, -3, 8).tolist()
        case "one_class":
            assert labels.tolist() == np.where(expected > 0, 1, -1).tolist()
        case _:
            assert labels == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_libsvm_reads_every_number_to_the_last_bit(tmp_path):
    model = model_of(
        [[1 / 3], [1.17549435e-38], [16777217]],
        coefficients=[1 / 3, 5e-324, -1.7976931348623157e308],
        rho=-2.2250738585072014e-308,
        gamma=0.1 + 0.2,
    )
    libsvm_format.write(str(tmp_path / "m"), model, TRAILER)
    loaded = svmutil.svm_load_model(str(tmp_path / "m"))
    assert loaded.get_sv_coef() == list(map(tuple, model.coefficients))
    assert loaded.rho[0] == model.rho[0]
    assert loaded.param.gamma == model.gamma
    read_back = [np.float32(row[1]) for row in loaded.get_SV()]
    assert np.array(read_back).tobytes() == model.values.tobytes()


# This package reads what LIBSVM writes


def trained_by_libsvm(path, options, y, X):
    """Train with LIBSVM, save with svm_save_model, return LIBSVM's model in memory."""
    model = svmutil.svm_train(list(y), [dict(enumerate(x, 1)) for x in X.tolist()], f"{options} -q")
    svmutil.svm_save_model(str(path), model)
    return model


def assert_equal_to_libsvm(found, truth):
    count = truth.get_nr_sv()
    assert found.svm_type == SVM_TYPE_NAMES[truth.param.svm_type]
    assert found.kernel_type == list(KERNEL_PARAMETERS)[truth.param.kernel_type]
    for parameter in KERNEL_PARAMETERS[found.kernel_type]:
        assert getattr(found, parameter) == getattr(truth.param, parameter)
    assert found.rho == (truth.rho[0],)
    assert list(map(tuple, found.coefficients)) == truth.get_sv_coef()
    if found.svm_type in CLASSIFIER_TYPES:
        assert list(found.label) == truth.get_labels()
        assert list(found.nr_sv) == [truth.nSV[0], truth.nSV[1]]
    else:
        assert found.label is None
        assert found.nr_sv is None
    cuts = found.indptr[1:-1]
    rows = [
        dict(zip(indices.tolist(), values.tolist(), strict=True))
        for indices, values in zip(
            np.split(found.indices, cuts), np.split(found.values, cuts), strict=True
        )
    ]
    assert rows[:count] == [
        {index: float(found.values.dtype.type(value)) for index, value in row.items() if index > 0}
        for row in truth.get_SV()
    ]


@pytest.mark.parametrize("svm_type", range(5), ids=SVM_TYPE_NAMES)
@pytest.mark.parametrize("kernel", range(4), ids=KERNEL_TYPES)
def test_a_model_that_libsvm_saved_is_read_with_equal_numbers(tmp_path, rng, svm_type, kernel):
    X = rng.normal(size=(30, 3)).round(3)
    X[:, 1] *= X[:, 1] > 0
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=30) > 0, 4, -7)
    options = f"-s {svm_type} -t {kernel} -g 0.3 -r 0.125 -d 2 -n 0.3"
    truth = trained_by_libsvm(tmp_path / "m", options, y, X)
    found, trailer = read(tmp_path / "m")
    assert trailer is None
    assert len(found.coefficients) > 2
    assert_equal_to_libsvm(found, truth)


def test_a_model_of_libsvm_without_support_vectors_is_read(tmp_path, rng):
    truth = trained_by_libsvm(tmp_path / "m", "-s 3 -t 0 -p 5", [1.5] * 9, rng.normal(size=(9, 2)))
    found, _ = read(tmp_path / "m")
    assert truth.get_nr_sv() == 0
    assert found.rho == (truth.rho[0],)
    assert [len(found.coefficients), *found.indptr, len(found.values)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "probA", "probB", "marks"),
    [("-s 0 -b 1", 1, 1, None), ("-s 3 -b 1", 1, None, None), ("-s 2 -n 0.5 -b 1", None, None, 10)],
)
def test_probability_parameters_of_libsvm_are_read_and_written(
    tmp_path,
    rng,
    options,
    probA,
    probB,
    marks,
):
    X = rng.normal(size=(60, 2)).round(3)
    trained_by_libsvm(tmp_path / "m", options, np.sign(X[:, 0]), X)
    found, _ = read(tmp_path / "m")
    fields = (found.probA, found.probB, found.prob_density_marks)
    assert [None if f is None else len(f) for f in fields] == [probA, probB, marks]
    libsvm_format.write(str(tmp_path / "again"), found, TRAILER)
    again = svmutil.svm_load_model(str(tmp_path / "again"))
    for keyword, numbers in zip(("probA", "probB", "prob_density_marks"), fields, strict=True):
        loaded = getattr(again, keyword)
        assert bool(loaded) == (numbers is not None)
        assert tuple(loaded[: len(numbers or ())]) == (numbers or ())


def test_our_body_is_the_text_that_libsvm_writes_up_to_the_digits(tmp_path, rng):
    X = rng.integers(-4, 5, size=(20, 3)) / 4
    trained_by_libsvm(tmp_path / "libsvm", "-t 1 -g 0.5 -r 0.25", np.sign(X[:, 0] + 0.1), X)
    found, _ = read(tmp_path / "libsvm")
    ours = re.findall(rb"[^ :\n]+", without_trailer(LIBSVM.content(found, tmp_path)))
    theirs = re.findall(rb"[^ :\n]+", (tmp_path / "libsvm").read_bytes())
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a == b or float(a) == float(b)


# Writing, then reading, is the identity

finite = st.floats(allow_nan=False, allow_infinity=False)
int32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def models(draw):
    svm_type = draw(st.sampled_from(SVM_TYPE_NAMES))
    kernel_type = draw(st.sampled_from(list(KERNEL_PARAMETERS)))
    used = KERNEL_PARAMETERS[kernel_type]
    rows = draw(st.lists(st.sets(st.integers(0, 2**31 - 1), max_size=4), max_size=5))
    indices = [index for row in rows for index in sorted(row)]
    own_format = draw(st.booleans())
    two_classes = svm_type in CLASSIFIER_TYPES and not (own_format and draw(st.booleans()))
    first = draw(st.integers(0, len(rows)))
    numbers = hnp.from_dtype(np.dtype(np.float32), allow_nan=False, allow_infinity=False)
    return LibsvmModel(
        svm_type,
        kernel_type,
        degree=draw(st.integers(0, 2**31 - 1)) if "degree" in used else None,
        gamma=abs(draw(finite)) if "gamma" in used else None,
        coef0=draw(finite) if "coef0" in used else None,
        rho=(draw(finite),),
        label=tuple(draw(st.lists(int32, min_size=2, max_size=2, unique=True)))
        if two_classes
        else None,
        nr_sv=(first, len(rows) - first) if two_classes else None,
        coefficients=draw(hnp.arrays(np.float64, (len(rows), 1), elements=finite)),
        indptr=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        indices=np.array(indices, np.int32),
        values=draw(hnp.arrays(np.float32, len(indices), elements=numbers)),
        probA=draw(st.none() | st.tuples(finite)),
        prob_density_marks=draw(st.none() | st.tuples(*[finite] * 10)),
        own_format=own_format,
    )


@pytest.mark.slow
@given(models(), st.dictionaries(st.sampled_from(["seed", "note", "D"]), st.text()))
@settings(max_examples=200)
def test_what_is_written_is_read_to_the_last_bit(tmp_path_factory, model, trailer):
    path = tmp_path_factory.getbasetemp() / "identity"
    libsvm_format.write(str(path), model, trailer)
    found, found_trailer = read(path)
    assert_same(of_the_library(found), of_the_library(model))
    assert found_trailer == trailer


def test_numbers_of_numpy_are_written_as_numbers(tmp_path):
    model = dataclasses.replace(
        LIBSVM.model,
        rho=(np.float64(0.5),),
        gamma=np.float32(0.25),
        label=(np.int64(2), np.int32(-2)),
        nr_sv=(np.int64(1), np.int64(2)),
    )
    found, _ = libsvm_format.parse(LIBSVM.content(model, tmp_path), "m")
    assert (found.rho, found.gamma, found.label, found.nr_sv) == ((0.5,), 0.25, (2, -2), (1, 2))


# What is refused when writing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": None}, "expected a line 'gamma ...'"),
        ({"rho": (float("nan"),)}, "expected finite numbers after 'rho', found 'nan'"),
        ({"nr_sv": (1, 1)}, "expected counts with the sum 3"),
        ({"svm_type": "one_class"}, "expected the header of one_class, found 'label'"),
        ({"coefficients": np.array([[1], [np.inf], [0]])}, "expected finite coefficients"),
        ({"values": np.array([1, 2, np.nan], np.float32)}, "expected finite values"),
    ],
)
def test_a_model_that_could_not_be_read_is_not_written(tmp_path, changes, message):
    changed = dataclasses.replace(LIBSVM.model, **changes)
    assert message in LIBSVM.not_written(changed, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": np.array([3, 1, 2], np.int32)}, "ascending indices"),
        ({"indices": np.array([2, 2, 2], np.int32)}, "ascending indices"),
        ({"indices": np.array([-1, 2, 2], np.int32)}, "ascending indices"),
        ({"indptr": np.array([0, 2, 3])}, "one CSR matrix"),
        ({"indptr": np.array([0, 2, 1, 3])}, "one CSR matrix"),
        ({"indptr": np.array([0, 2, 2, 4])}, "one CSR matrix"),
    ],
)
def test_arrays_that_are_no_rows_are_a_mistake_of_the_caller(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        libsvm_format.write(
            str(tmp_path / "m"), dataclasses.replace(LIBSVM.model, **changes), TRAILER
        )


# What is refused when reading


def test_without_a_trailer_a_flipped_bit_is_refused_or_read_but_never_a_traceback(
    tmp_path,
):
    body = without_trailer(LIBSVM.content(LIBSVM.model, tmp_path))
    for position in range(len(body)):
        for bit in range(8):
            flipped = bytearray(body)
            flipped[position] ^= 1 << bit
            read_or_refuse(bytes(flipped))


def read_or_refuse(content):
    try:
        model, _ = libsvm_format.parse(content, "m")
    except RandsvmError as error:
        assert error.exit_code == 65
    else:
        assert len(model.indptr) == len(model.coefficients) + 1 == content.count(b"\n") - 8
        assert model.indptr[-1] == len(model.indices) == len(model.values)
        assert np.isfinite(model.coefficients).all()
        assert np.isfinite(model.values).all()


snippets = st.sampled_from(
    [b"\n", b"\0", b"#", b" ", b":", b"1:2 ", b"nan", b"-", b"9" * 400, b"1e999", b"SV\n", b"\r",
     b"qid:1 ", b"?", b"\xef\xbb\xbf", b"\xff", b"\x0b", b"_", b"# randsvm ", b"rho 1\n", b"e"]
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, len(BODY)), st.integers(0, 20), snippets), max_size=3))
@settings(max_examples=500)
def test_an_edited_model_is_refused_or_read_but_never_a_traceback(edits):
    content = BODY
    for position, removed, inserted in edits:
        content = content[:position] + inserted + content[position + removed :]
    read_or_refuse(content)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"gamma 0.1", b"gamma -1", "m:3: expected gamma of 0 or more, found -1.0"),
        (b"-0.25", b"inf", "m:6: expected finite numbers after 'rho', found 'inf'"),
        (b"-0.25", b"-1e999", "m:6: expected finite numbers after 'rho', found '-1e999'"),
        (b"label 1 -1", b"label 1 2147483648", "m:7: expected whole numbers below 2^31"),
        (b"label 1 -1", b"label 1 1.5", "m:7: expected whole numbers below 2^31 after 'la"),
        (b"label 1 -1", b"label 1", "m:7: expected 2 numbers after 'label', found 1"),
        (b"label 1 -1", b"label 1 1", "m:7: expected different labels, found 1 twice"),
        (b"nr_sv 1 1", b"nr_sv 1 2", "m:8: expected counts with the sum 2 (total_sv)"),
        (b"nr_sv 1 1", b"nr_sv 3 -1", "m:8: expected counts with the sum 2 (total_sv)"),
        (b"c_svc", b"c_scv", "m:1: expected svm_type c_svc, nu_svc, one_class, epsilon_sv"),
        (b"c_svc", b"nu_svr", "m:7: expected the header of nu_svr, found 'label', which o"),
        (b"rbf", b"chi2", "m:2: expected kernel_type linear, polynomial, rbf, sigmoid or pre"),
        (b"nr_class 2", b"nr_class 3", "m:7: expected 3 numbers after 'label', found 2"),
        (b"nr_class 2", b"nr_class 1", "m:7: expected 1 number after 'label', found 2"),
        (b"nr_class 2", b"nr_class 0", "m:4: expected nr_class 2, found 0"),
        (b"total_sv 2", b"total_sv -2", "m:5: expected total_sv of 0 or more, found -2"),
        (b"-0.5 \n", b"-0.5 \n1 1:1 \n# end\n", "m:12: expected the end of the model"),
        (b"-0.5 \n", b"\n", "m:11: expected a support vector, found a blank line"),
        (b"-0.5 \n", b" \r\n", "m:11: expected a support vector, found a blank line"),
        (b"-0.5 \n", b"# 0.5\n", "m:11:1: expected a support vector, found '#'"),
        (b"3:-1.25", b"3:-1#25", "m:10:15: expected a support vector, found '#'"),
        (b"3:-1.25", b"qid:1", "m:10:11: expected a support vector, found 'q'"),
        (b"-0.5 \n", b"? 1:1\n", "m:11:1: expected a support vector, found '?'"),
        (b"3:-1.25", b"3:-1.2x", "m:10:"),
        (b"3:-1.25", b"1:-1.25", "m:10:"),
        (b"3:-1.25", b"3:1e39", "m:10:"),
        (b"-0.5 \n", b"nan \n", "m:11:"),
        (b"-0.5 \n", b"1e999 \n", "m:11:"),
    ],
)  # fmt: skip
def test_a_bad_model_is_refused_with_its_line(old, new, message):
    assert message in LIBSVM.refused(edited(BODY, old, new))


def test_a_parameter_that_the_kernel_does_not_use_is_left_out(tmp_path):
    found, _ = libsvm_format.parse(edited(BODY, b"rbf", b"linear"), "m")
    assert found.gamma is None
    linear = dataclasses.replace(LIBSVM.model, kernel_type="linear", degree=3)
    assert not {b"gamma", b"degree", b"coef0"} & set(LIBSVM.content(linear, tmp_path).split())
