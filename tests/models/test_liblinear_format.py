"""LIBLINEAR and this package read each other's models, and no bad file is misread."""

import ctypes
import dataclasses
import io
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from liblinear import liblinear as bindings
from liblinear import liblinearutil

from randsvm import files
from randsvm.errors import ModelError
from randsvm.models import header, liblinear_format, libsvm_format
from randsvm.models.liblinear_format import (
    CLASSIFIERS,
    ONE_CLASS,
    REGRESSIONS,
    SOLVER_TYPES,
    LiblinearModel,
    shape_of_w,
)

FOREIGN = "randsvm_model 1 string-labels"
TRAILER = {"seed": "7", "labels": "ham spam"}


def model_of(w, solver_type="L2R_L1LOSS_SVC_DUAL", nr_class=2, bias=1.0, **changes):
    """A model with the rows of w, its last row for the bias if there is one."""
    w = np.array(w, dtype=np.float64, ndmin=2)
    labels = tuple(range(3, 3 + nr_class))
    model = LiblinearModel(
        solver_type,
        nr_class,
        labels if solver_type in CLASSIFIERS else None,
        nr_feature=len(w) - (bias >= 0),
        bias=bias,
        rho=0.1 + 0.2 if solver_type == ONE_CLASS else None,
        w=w,
    )
    return dataclasses.replace(model, **changes)


def small_model() -> LiblinearModel:
    return model_of([[0.5, -1.25, 0], [3e-5, 0, 7], [-0.0, 1e300, 1 / 3]], nr_class=3)


def content_of(model: LiblinearModel, path, trailer=TRAILER, foreign=None) -> bytes:
    liblinear_format.write(str(path / "m"), model, trailer, foreign)
    return (path / "m").read_bytes()


def without_trailer(content: bytes) -> bytes:
    return content[: content.index(b"# randsvm format")]


def read(path) -> tuple[LiblinearModel, dict[str, str] | None]:
    return liblinear_format.parse(files.read_whole(str(path)), str(path))


def assert_same(found: LiblinearModel, expected: LiblinearModel) -> None:
    """Equal to the last bit."""
    for field in dataclasses.fields(LiblinearModel):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(b, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert a.flags.c_contiguous
            assert a.tobytes() == b.tobytes()
        else:
            assert repr(a) == repr(b), field.name


@pytest.fixture
def rng():
    return np.random.default_rng(5)


# (solver type, classes): what LIBLINEAR trains
TRAINED = [
    *[(solver_type, classes) for solver_type in CLASSIFIERS for classes in (1, 2, 3, 5)],
    *[(solver_type, 2) for solver_type in (*REGRESSIONS, ONE_CLASS)],
]
BIASES = [-1.0, 0.0, 1.0, 100.0]


# LIBLINEAR reads what this package writes


def predicted_by_liblinear(path, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels (m,) and decision values (m, columns) of LIBLINEAR's own loader and predictor.

    Its Python predict has room for one value where a model of Crammer and Singer's has two.
    """
    model = liblinearutil.load_model(str(path))
    values = np.zeros((len(X), max(2, model.nr_class)))
    labels = []
    for x, row in zip(X, values, strict=True):
        nodes, _ = bindings.gen_feature_nodearray(dict(enumerate(x.tolist(), 1)))
        if model.bias >= 0:
            nodes[-2] = bindings.feature_node(model.nr_feature + 1, model.bias)
        into = row.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        labels.append(bindings.liblinear.predict_values(model, nodes, into))
    one_column = model.nr_class == 2 and model.param.solver_type != bindings.solver_names.MCSVM_CS
    return np.array(labels), values[:, : 1 if one_column else model.nr_class]


@pytest.mark.parametrize(("solver_type", "classes"), TRAINED)
@pytest.mark.parametrize("bias", BIASES)
def test_liblinear_predicts_with_our_file_what_the_formula_says(
    tmp_path, rng, solver_type, classes, bias
):
    shape = shape_of_w(solver_type, classes, nr_feature=4, bias=bias)
    model = model_of(rng.normal(size=shape), solver_type, classes, bias)
    liblinear_format.write(str(tmp_path / "m"), model, TRAILER)
    X = rng.normal(size=(7, 4))
    labels, values = predicted_by_liblinear(tmp_path / "m", X)
    rows = np.column_stack([X, np.full(7, bias)]) if bias >= 0 else X
    expected = rows @ model.w - (model.rho or 0)
    assert values == pytest.approx(expected, rel=1e-12, abs=1e-12)
    if solver_type in REGRESSIONS:
        assert labels == pytest.approx(expected[:, 0], rel=1e-12, abs=1e-12)
    elif solver_type == ONE_CLASS:
        assert labels.tolist() == np.where(expected[:, 0] > 0, 1, -1).tolist()
    elif classes == 2:
        assert labels.tolist() == np.where(expected[:, 0] > 0, 3, 4).tolist()
    else:
        assert labels.tolist() == (3 + expected.argmax(axis=1)).tolist()


def w_of(loaded) -> np.ndarray:
    """w as LIBLINEAR holds it."""
    solver_type = bindings.solver_names(loaded.param.solver_type).name
    shape = shape_of_w(solver_type, loaded.nr_class, loaded.nr_feature, loaded.bias)
    return np.array(loaded.w[: shape[0] * shape[1]]).reshape(shape)


def test_liblinear_reads_every_number_to_the_last_bit(tmp_path):
    numbers = [1 / 3, 5e-324, -1.7976931348623157e308, 2.2250738585072014e-308, -0.0, 1e16, 1e22]
    model = model_of(np.transpose([numbers]), ONE_CLASS, bias=0.1 + 0.2, rho=-1e-310)
    liblinear_format.write(str(tmp_path / "m"), model, TRAILER)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert w_of(loaded).tobytes() == model.w.tobytes()
    assert (loaded.bias, loaded.rho) == (model.bias, model.rho)


def test_liblinear_reads_our_labels_at_the_ends_of_its_range(tmp_path):
    model = dataclasses.replace(small_model(), label=(-(2**31), 0, 2**31 - 1))
    liblinear_format.write(str(tmp_path / "m"), model, TRAILER)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert loaded.get_labels() == list(model.label)


def test_liblinear_reads_two_thousand_classes_and_so_do_we(tmp_path, rng):
    model = model_of(rng.normal(size=(3, 2000)), nr_class=2000)
    found, _ = liblinear_format.parse(content_of(model, tmp_path), "m")
    assert_same(found, model)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert loaded.get_labels() == list(model.label)
    assert w_of(loaded).tobytes() == model.w.tobytes()


@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_liblinear_reads_a_model_without_features(tmp_path, bias):
    model = model_of(np.full((int(bias >= 0), 1), 0.25), bias=bias)
    assert_same(liblinear_format.parse(content_of(model, tmp_path), "m")[0], model)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert (loaded.nr_feature, w_of(loaded).tolist()) == (0, model.w.tolist())


@pytest.mark.parametrize("label", [None, (1, 2, 3)])
def test_liblinear_refuses_a_model_with_a_foreign_first_line(tmp_path, capfd, label):
    model = dataclasses.replace(small_model(), label=label)
    liblinear_format.write(str(tmp_path / "m"), model, TRAILER, FOREIGN)
    assert liblinearutil.load_model(str(tmp_path / "m")) is None
    assert "unknown text in model file: [randsvm_model]" in capfd.readouterr().err
    found, trailer = read(tmp_path / "m")
    assert_same(found, model)
    assert trailer == TRAILER


# This package reads what LIBLINEAR writes


def trained_by_liblinear(path, solver_type: str, classes: int, bias: float, rng):
    """Train with LIBLINEAR, save with its save_model, return LIBLINEAR's model in memory."""
    X = rng.normal(size=(60, 4)).round(3)
    X[:, 1] = 0  # no weight
    y = (np.arange(60) % classes) * 5 - 7
    X[:, 0] += y
    number = int(bindings.solver_names[solver_type])
    options = f"-s {number} -B {bias} -q" if solver_type != ONE_CLASS else f"-s {number} -q"
    model = liblinearutil.train(y, X, options)
    liblinearutil.save_model(str(path), model)
    return model


@pytest.mark.parametrize(("solver_type", "classes"), TRAINED)
@pytest.mark.parametrize("bias", BIASES)
def test_a_model_that_liblinear_saved_is_read_with_equal_numbers(
    tmp_path, rng, solver_type, classes, bias
):
    truth = trained_by_liblinear(tmp_path / "m", solver_type, classes, bias, rng)
    found, trailer = read(tmp_path / "m")
    assert trailer is None
    assert found.solver_type == solver_type
    assert (found.nr_class, found.nr_feature, found.bias) == (classes, 4, truth.bias)
    label = tuple(truth.get_labels()) if solver_type in CLASSIFIERS else None
    assert found.label == label
    assert found.rho == (truth.rho if solver_type == ONE_CLASS else None)
    assert found.w.any() or classes == 1
    assert found.w.tobytes() == w_of(truth).tobytes()
    assert found.w.shape == w_of(truth).shape


@pytest.mark.parametrize(("solver_type", "classes"), TRAINED)
def test_our_body_is_the_text_that_liblinear_writes_up_to_the_digits(
    tmp_path, rng, solver_type, classes
):
    trained_by_liblinear(tmp_path / "liblinear", solver_type, classes, 1.0, rng)
    found, _ = read(tmp_path / "liblinear")
    ours = without_trailer(content_of(found, tmp_path))
    theirs = (tmp_path / "liblinear").read_bytes()
    assert re.sub(rb"[^ \n]+", b"", ours) == re.sub(rb"[^ \n]+", b"", theirs)
    for a, b in zip(ours.split(), theirs.split(), strict=True):
        assert a == b or float(a) == float(b)


def test_whole_numbers_are_written_as_liblinear_does(tmp_path):
    model = model_of([[0.0], [-3.0], [10.5], [100.0], [-0.0], [1e-10]], bias=1.0)
    assert without_trailer(content_of(model, tmp_path)) == (
        b"solver_type L2R_L1LOSS_SVC_DUAL\nnr_class 2\nlabel 3 4\nnr_feature 5\nbias 1\nw\n"
        b"0 \n-3 \n10.5 \n100 \n-0 \n1e-10 \n"
    )


def test_a_model_with_the_line_ends_of_windows_is_read(tmp_path):
    body = without_trailer(content_of(small_model(), tmp_path))
    found, _ = liblinear_format.parse(body.replace(b"\n", b"\r\n"), "m")
    assert_same(found, small_model())


# Writing, then reading, is the identity

finite = st.floats(allow_nan=False, allow_infinity=False)
int32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def models(draw) -> tuple[LiblinearModel, str | None]:
    solver_type = draw(st.sampled_from(SOLVER_TYPES))
    classifier = solver_type in CLASSIFIERS
    nr_class = draw(st.integers(1, 5)) if classifier else 2
    foreign = draw(st.sampled_from([None, FOREIGN]))
    labels = st.lists(int32, min_size=nr_class, max_size=nr_class, unique=True).map(tuple)
    nr_feature, bias = draw(st.integers(0, 20)), draw(finite)
    shape = shape_of_w(solver_type, nr_class, nr_feature, bias)
    without_label = not classifier or (foreign is not None and draw(st.booleans()))
    model = LiblinearModel(
        solver_type,
        nr_class,
        label=None if without_label else draw(labels),
        nr_feature=nr_feature,
        bias=bias,
        rho=draw(finite) if solver_type == ONE_CLASS else None,
        w=draw(hnp.arrays(np.float64, shape, elements=finite)),
    )
    return model, foreign


@given(
    models(),
    st.dictionaries(st.sampled_from(["seed", "note", "D"]), st.text()),
    st.sampled_from([1, 7, 64, 1 << 20]),
)
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read_to_the_last_bit(tmp_path_factory, drawn, trailer, block):
    model, foreign = drawn
    path = tmp_path_factory.getbasetemp() / "identity"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liblinear_format, "BLOCK_NUMBERS", block)
        patch.setattr(liblinear_format, "BLOCK_BYTES", block)
        liblinear_format.write(str(path), model, trailer, foreign)
        found, found_trailer = read(path)
    assert_same(found, model)
    assert found_trailer == trailer


def test_more_rows_than_a_block_holds_are_written_and_read(tmp_path, rng):
    w = rng.normal(size=(liblinear_format.BLOCK_NUMBERS, 3)) * 10.0 ** rng.integers(-9, 9, 3)
    model = model_of(w, nr_class=3)
    content = content_of(model, tmp_path)
    assert len(content) > 3 * liblinear_format.BLOCK_BYTES
    assert_same(liblinear_format.parse(content, "m")[0], model)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert w_of(loaded).tobytes() == w.tobytes()


def test_numbers_of_numpy_and_any_layout_of_w_are_written_as_numbers(tmp_path):
    model = dataclasses.replace(
        small_model(),
        bias=np.float32(0.25),
        label=(np.int64(2), np.int32(-2), np.int8(0)),
        nr_class=np.int64(3),
        nr_feature=np.int32(2),
        w=np.asfortranarray(small_model().w),
    )
    found, _ = liblinear_format.parse(content_of(model, tmp_path), "m")
    expected = dataclasses.replace(small_model(), bias=0.25, label=(2, -2, 0))
    assert_same(found, expected)


def test_standard_output(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", out)
    liblinear_format.write("-", small_model(), TRAILER)
    found, trailer = liblinear_format.parse(out.buffer.getvalue(), "m")
    assert_same(found, small_model())
    assert trailer == TRAILER


# What is refused when writing


@pytest.mark.parametrize(
    ("changes", "foreign", "message"),
    [
        ({"label": None}, None, "expected a line 'label ...' before the line 'w', found none"),
        ({"label": (1, 2)}, None, "m:3: expected 3 numbers after 'label', found 2"),
        ({"label": (1, 2, 1)}, None, "m:3: expected different labels, found 1 2 times"),
        ({"label": (1, 2, 2**31)}, None, "m:3: expected whole numbers below 2^31 after 'label'"),
        ({"bias": np.inf}, None, "m:5: expected finite numbers after 'bias', found 'inf'"),
        ({"bias": np.nan}, FOREIGN, "m:6: expected finite numbers after 'bias', found 'nan'"),
        ({"rho": 0.5}, None, "expected the header of L2R_L1LOSS_SVC_DUAL, found 'rho', which only"),
        ({"solver_type": "L2R_LLR"}, None, "expected solver_type L2R_LR, L2R_L2LOSS_SVC_DUAL, "),
        ({"solver_type": "L2R_L2LOSS_SVR"}, None, "expected nr_class 2 of L2R_L2LOSS_SVR, found 3"),
        ({"nr_class": 0, "label": ()}, None, "expected nr_class of 1 or more, found 0"),
        ({"nr_feature": -1}, None, "expected nr_feature of 0 or more, found -1"),
        ({"w": np.array([[0, 1, 2], [np.inf, 4, 5], [6, 7, 8]])}, None, "expected finite numbers "),
        ({"w": np.full((3, 3), np.nan)}, FOREIGN, "m: expected finite numbers in w, found others"),
        ({}, "random_features", "expected a keyword of LIBLINEAR's model format, found 'random_f"),
        ({}, "randsvm_model 2", "expected randsvm_model 1, found randsvm_model 2: a newer"),
        ({}, "solver_type L2R_LR", "expected 'solver_type' once (line 1)"),
    ],
)
def test_a_model_that_could_not_be_read_is_not_written(
    tmp_path, monkeypatch, changes, foreign, message
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m"
    path.write_text("old")
    model = dataclasses.replace(small_model(), **changes)
    with pytest.raises(ModelError) as caught:
        liblinear_format.write("m", model, TRAILER, foreign)
    assert str(caught.value).startswith("m:")
    assert message in str(caught.value)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    "changes",
    [
        {"w": np.zeros(9)},
        {"w": np.zeros((3, 1))},
        {"w": np.zeros((2, 3))},
        {"w": np.zeros((4, 3))},
        {"bias": -1.0},
        {"nr_feature": 3},
        {"nr_class": 2, "label": (1, 2)},
        {"nr_class": 2, "label": (1, 2), "solver_type": "MCSVM_CS"},
    ],
)
def test_a_w_of_another_shape_is_a_mistake_of_the_caller(tmp_path, changes):
    model = dataclasses.replace(small_model(), **changes)
    with pytest.raises(ValueError, match="expected w of shape"):
        liblinear_format.write(str(tmp_path / "m"), model, TRAILER)
    assert list(tmp_path.iterdir()) == []


# What is refused when reading


def refused(content: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        liblinear_format.parse(content, "m")
    assert caught.value.exit_code == 65
    assert str(caught.value).startswith("m:")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("foreign", [None, FOREIGN])
def test_with_a_trailer_every_flipped_bit_is_refused(tmp_path, foreign):
    content = content_of(small_model(), tmp_path, foreign=foreign)
    for position in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            refused(bytes(flipped))


@pytest.mark.parametrize("foreign", [None, FOREIGN])
def test_every_cut_is_refused_but_the_one_that_leaves_a_model_of_liblinear(tmp_path, foreign):
    content = content_of(small_model(), tmp_path, foreign=foreign)
    body = len(without_trailer(content))
    for size in range(len(content)):
        if size != body or foreign:
            refused(content[:size])
    if foreign is None:
        assert_same(liblinear_format.parse(content[:body], "m")[0], small_model())


def test_without_a_trailer_a_flipped_bit_is_refused_or_read_as_liblinear_does(tmp_path):
    body = without_trailer(content_of(small_model(), tmp_path))
    for position in range(len(body)):
        for bit in range(8):
            flipped = bytearray(body)
            flipped[position] ^= 1 << bit
            read_as_liblinear_or_refuse(bytes(flipped), tmp_path / "flipped")


def read_as_liblinear_or_refuse(content: bytes, path) -> None:
    """What is not refused has the meaning that it has for LIBLINEAR."""
    try:
        model, _ = liblinear_format.parse(content, "m")
    except ModelError as error:
        assert str(error).startswith("m:")
        return
    path.write_bytes(content)
    loaded = liblinearutil.load_model(str(path))
    assert model.solver_type == bindings.solver_names(loaded.param.solver_type).name
    assert (model.nr_class, model.nr_feature) == (loaded.nr_class, loaded.nr_feature)
    assert (model.bias, model.rho or 0) == (loaded.bias, loaded.rho if model.rho else 0)
    assert model.label is None or list(model.label) == loaded.get_labels()
    assert model.w.tobytes() == w_of(loaded).tobytes()


BODY = (
    b"solver_type L2R_LR\nnr_class 3\nlabel 1 -1 7\nnr_feature 2\nbias 1\nw\n"
    b"0.5 0 -1.25 \n-0.5 3 8e-05 \n1 2 3 \n"
)
ONE_COLUMN = (
    b"solver_type ONECLASS_SVM\nnr_class 2\nnr_feature 3\nbias -1\nrho 0.25\nw\n1 \n2 \n3 \n"
)
snippets = st.sampled_from(
    [b"\n", b"\0", b"#", b" ", b"\t", b"1 ", b"nan", b"inf", b"-", b"9" * 400, b"1e999", b"w\n",
     b"\r", b"0x1p3", b"\xc2\xa0", b"\x1c", b"\x0b", b"\x01", b"_", b"# randsvm ", b"rho 1\n", b"e",
     b"1e0000000001", b"."]
)  # fmt: skip


@given(
    st.sampled_from([BODY, ONE_COLUMN]),
    st.lists(st.tuples(st.integers(0, len(BODY)), st.integers(0, 20), snippets), max_size=3),
)
@settings(max_examples=1000, deadline=None)
def test_an_edited_model_is_refused_or_read_as_liblinear_does(tmp_path_factory, content, edits):
    for position, removed, inserted in edits:
        content = content[:position] + inserted + content[position + removed :]
    read_as_liblinear_or_refuse(content, tmp_path_factory.getbasetemp() / "edited")


def edited(old: bytes, new: bytes, body: bytes = BODY) -> bytes:
    assert body.count(old) == 1
    return body.replace(old, new)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "m:1: expected a model, found an empty file"),
        (b"+1 1:0.5\n", "m:1: expected a keyword of LIBLINEAR's model format, found '+1'"),
        (b"\x00\xff" * 9000, "m:1: expected a whole line of the model's header, found '\\x00"),
        (edited(b"bias", b"bais"), "m:5: expected a keyword of LIBLINEAR's model format, found 'b"),
        (edited(b"bias 1\n", b""), "m: expected a line 'bias ...' before the line 'w', found none"),
        (edited(b"solver_type L2R_LR\n", b""), "m: expected a line 'solver_type ...'"),
        (edited(b"nr_class 3\n", b""), "m: expected a line 'nr_class ...'"),
        (edited(b"nr_feature 2\n", b""), "m: expected a line 'nr_feature ...'"),
        (edited(b"label 1 -1 7\n", b""), "m: expected a line 'label ...'"),
        (edited(b"rho 0.25\n", b"", ONE_COLUMN), "m: expected a line 'rho ...'"),
        (edited(b"w\n", b"\n"), "m:6: expected a keyword of LIBLINEAR's model format, found ''"),
        (edited(b"w\n", b""), "m:6: expected a keyword of LIBLINEAR's model format, found '0.5'"),
        (BODY[: BODY.index(b"w\n")], "m:6: expected the line 'w', found the end of the file"),
        (edited(b"w\n", b"w 2\n"), "m:6: expected a keyword"),
        (edited(b"bias 1", b"bias 1\nbias 1"), "m:6: expected 'bias' once (line 5), found it agai"),
        (edited(b"bias 1", b"bias 1 2"), "m:5: expected 1 number after 'bias', found 2"),
        (edited(b"bias 1", b"bias"), "m:5: expected 1 number after 'bias', found 0"),
        (edited(b"bias 1", b"bias nan"), "m:5: expected finite numbers after 'bias', found 'nan'"),
        (edited(b"bias 1", b"bias 1e999"), "m:5: expected finite numbers after 'bias'"),
        (edited(b"0.25", b"inf", ONE_COLUMN), "m:5: expected finite numbers after 'rho', found 'i"),
        (edited(b"L2R_LR", b"L2R_RL"), "m:1: expected solver_type L2R_LR, L2R_L2LOSS_SVC_DUAL, L2"),
        (edited(b" L2R_LR", b""), "m:1: expected solver_type L2R_LR, L2R_L2LOSS_SVC_DUAL, L2R_L2L"),
        (edited(b"nr_class 3", b"nr_class 0"), "m:2: expected nr_class of 1 or more, found 0"),
        (edited(b"nr_class 3", b"nr_class 4"), "m:3: expected 4 numbers after 'label', found 3"),
        (edited(b"nr_class 3", b"nr_class 3.0"), "m:2: expected whole numbers below 2^31 after 'n"),
        (edited(b"nr_class 3", b"nr_class 2147483647"), "m:4: expected less than 2^31 numbers of"),
        (edited(b"nr_class 2", b"nr_class 3", ONE_COLUMN), "m:2: expected nr_class 2 of ONECLASS_"),
        (edited(b"-1 7", b"-1 1"), "m:3: expected different labels, found 1 2 times"),
        (edited(b"-1 7", b"-1 2147483648"), "m:3: expected whole numbers below 2^31 after 'label'"),
        (edited(b"-1 7", b"-1 0.5"), "m:3: expected whole numbers below 2^31 after 'label', found"),
        (
            edited(b"rho", b"label 1 2\nrho", ONE_COLUMN),
            "m:5: expected the header of ONECLASS_SVM, found 'label', which only a classifier has",
        ),
        (
            edited(b"w\n", b"rho 1\nw\n"),
            "m:6: expected the header of L2R_LR, found 'rho', which only ONECLASS_SVM has",
        ),
        (edited(b"nr_feature 2", b"nr_feature -2"), "m:4: expected nr_feature of 0 or more, found"),
        (edited(b"nr_feature 2", b"nr_feature 2147483648"), "m:4: expected whole numbers below 2^"),
        (
            edited(b"nr_feature 2", b"nr_feature 2147483647"),
            "m:4: expected less than 2^31 numbers of w, which LIBLINEAR counts in a C int, "
            "found 2147483648 rows of 3",
        ),
        (
            edited(b"nr_feature 3", b"nr_feature 2147483647", ONE_COLUMN),
            "m:10: expected 2147483647 rows of w (nr_feature and the bias), found 3 whole lines of",
        ),
        (edited(b"nr_feature 2", b"nr_feature 3"), "m:10: expected 4 rows of w (nr_feature and th"),
        (edited(b"nr_feature 2", b"nr_feature 1"), "m:9: expected the end of the model after 2 ro"),
        (edited(b"bias 1", b"bias -1"), "m:9: expected the end of the model after 2 rows of w (nr"),
        (BODY[:-1], "m:9: expected 3 rows of w (nr_feature and the bias), found 2 whole lines of "),
        (BODY + b"\n", "m:10: expected the end of the model after 3 rows of w (nr_feature and the"),
        (BODY + b"x", "m:10: expected the end of the model after 3 rows of w (nr_feature and the "),
        (BODY + b"# end\n", "m:10: expected the end of the model after 3 rows of w (nr_feature an"),
        (edited(b"1 2 3 \n", b"\n"), "m:9: expected 3 numbers in a row of w, found 0"),
        (edited(b"1 2 3 \n", b" \r\n"), "m:9: expected 3 numbers in a row of w, found 0"),
        (edited(b"1 2 3 \n", b"1 2\n"), "m:9: expected 3 numbers in a row of w, found 2"),
        (edited(b"0 -1.25 \n-0.5", b"0 \n-1.25 -0.5"), "m:7: expected 3 numbers in a row of w, fo"),
        (edited(b"-0.5 3 8e-05 \n", b"-0.5 3 8e-05 1 \n"), "m:8: expected 3 numbers in a row of w"),
        (edited(b"1 2 3", b"1 x 3"), "m:9: expected a finite number of w, found 'x'"),
        (edited(b"1 2 3", b"1 nan 3"), "m:9: expected a finite number of w, found 'nan'"),
        (edited(b"1 2 3", b"1 -inf 3"), "m:9: expected a finite number of w, found '-inf'"),
        (edited(b"1 2 3", b"1 infinity 3"), "m:9: expected a finite number of w, found 'infinity'"),
        (edited(b"1 2 3", b"1 1e999 3"), "m:9: expected a finite number of w, found '1e999'"),
        (edited(b"1 2 3", b"1 1_0 3"), "m:9: expected a finite number of w, found '1_0'"),
        (edited(b"1 2 3", b"1 0x1p3 3"), "m:9: expected a finite number of w, found '0x1p3'"),
        (edited(b"1 2 3", b"1 2\x003"), "m:9: expected a finite number of w, found '2\\x003'"),
        (edited(b"1 2 3", b"1 2 3 \x01"), "m:9: expected a finite number of w, found '\\x01'"),
        (edited(b"-0.5 3", b"-0.5 3,5"), "m:8: expected a finite number of w, found '3,5'"),
        (edited(b"2 \n", b"2 2 \n", ONE_COLUMN), "m:8: expected 1 number in a row of w, found 2"),
        (edited(b"2 \n", b"\n", ONE_COLUMN), "m:8: expected 1 number in a row of w, found 0"),
        (b"randsvm_model 1\n" + BODY, "m: expected '# randsvm' lines at the end of a randsvm_mode"),
        (b"randsvm_model 2\n" + BODY, "m:1: expected randsvm_model 1, found randsvm_model 2: a ne"),
        (b"randsvm_model\n" + BODY, "m:1: expected randsvm_model 1, found ''"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_bad_model_is_refused_with_its_line(monkeypatch, content, message, block):
    monkeypatch.setattr(liblinear_format, "BLOCK_BYTES", block)
    assert message in refused(content)


PROMISES = [
    edited(b"nr_feature 3", b"nr_feature 2147483647", ONE_COLUMN),
    edited(b"nr_feature 2", b"nr_feature 700000000"),
    edited(b"nr_class 3", b"nr_class 700000000"),
]


@pytest.mark.parametrize("content", PROMISES)
def test_a_promise_of_two_billion_numbers_costs_no_memory(content):
    tracemalloc.start()
    try:
        refused(content)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def test_a_promise_of_two_billion_classes_costs_no_memory_where_no_labels_need_to_stand(tmp_path):
    model = dataclasses.replace(small_model(), label=None)
    content = content_of(model, tmp_path, foreign=FOREIGN)
    body = without_trailer(content).replace(b"nr_class 3", b"nr_class 2147483647")
    stream = io.BytesIO()
    sealed = liblinear_format.trailers.Sealed(stream)
    sealed.write(body)
    sealed.seal(TRAILER)
    tracemalloc.start()
    try:
        assert "expected 2147483647 numbers in a row of w, found 3" in refused(stream.getvalue())
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def test_only_a_foreign_model_may_hold_more_numbers_than_liblinear_counts(tmp_path):
    too_many = model_of(np.zeros((2, 1)), nr_feature=2**31 - 1)
    with pytest.raises(ModelError, match=r"less than 2\^31 numbers of w"):
        liblinear_format.write(str(tmp_path / "m"), too_many, TRAILER)
    with pytest.raises(ValueError, match="expected w of shape"):
        liblinear_format.write(str(tmp_path / "m"), too_many, TRAILER, FOREIGN)


def test_headers_are_read_in_any_order():
    head, rows = BODY.split(b"w\n")
    lines = head.splitlines(keepends=True)
    found, _ = liblinear_format.parse(b"".join(lines[::-1]) + b"w\n" + rows, "m")
    assert_same(found, liblinear_format.parse(BODY, "m")[0])


def test_numbers_in_any_decimal_notation_are_read():
    content = edited(b"0.5 0 -1.25 \n", b"\t+.5  00. -125E-2\r\n")
    assert_same(liblinear_format.parse(content, "m")[0], liblinear_format.parse(BODY, "m")[0])


# Which of the two formats

LIBSVM_BODY = (
    b"svm_type c_svc\nkernel_type linear\nnr_class 2\ntotal_sv 1\nrho 0.5\nlabel 1 -1\n"
    b"nr_sv 1 0\nSV\n0.5 1:1 \n"
)
KINDS = {"libsvm": (libsvm_format, LIBSVM_BODY), "liblinear": (liblinear_format, BODY)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first_line", [b"", FOREIGN.encode() + b"\n"])
@pytest.mark.parametrize("step", [1, -1])
def test_the_telling_keyword_names_the_format_wherever_it_stands(kind, first_line, step):
    module, body = KINDS[kind]
    head, end, rows = body.partition(module.LAYOUT.end.encode() + b"\n")
    lines = head.splitlines(keepends=True)[::step]
    assert header.kind(first_line + b"".join(lines) + end + rows) == kind
    module.parse(b"".join(lines) + end + rows, "m")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"+1 1:0.5\n",
        b"svm_typ",
        b"nr_class 2\n" * 40 + b"svm_type c_svc\n",
        b"\xff" * 99,
    ],
)
def test_what_is_no_model_has_no_format(content):
    assert header.kind(content) is None
