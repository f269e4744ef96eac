"""LIBLINEAR and this package read each other's models, and no bad file is misread."""

from __future__ import annotations

import ctypes
import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from liblinear import liblinear as bindings
from liblinear import liblinearutil
from model_files import LIBLINEAR, TRAILER, assert_same, edited, without_trailer

from randsvm import files
from randsvm.errors import ModelError
from randsvm.models import liblinear_format
from randsvm.models.liblinear_format import (
    CLASSIFIER_SOLVERS,
    ONE_CLASS_SOLVER,
    REGRESSION_SOLVERS,
    SOLVER_TYPES,
    LiblinearModel,
    shape_of_w,
)
from randsvm.models.load import load

BODY = LIBLINEAR.body


def model_of(
    w,
    solver_type="L2R_L1LOSS_SVC_DUAL",
    nr_class=2,
    bias=1.0,
    **changes,
):
    """A model with the rows of w, its last row for the bias if there is one."""
    w = np.array(w, dtype=np.float64, ndmin=2)
    labels = tuple(range(3, 3 + nr_class))
    model = LiblinearModel(
        solver_type,
        nr_class,
        labels if solver_type in CLASSIFIER_SOLVERS else None,
        nr_feature=len(w) - (bias >= 0),
        bias=bias,
        rho=0.1 + 0.2 if solver_type == ONE_CLASS_SOLVER else None,
        w=w,
    )
    return dataclasses.replace(model, **changes)


def read(path):
    return liblinear_format.parse(files.read_whole(str(path)), str(path))


@pytest.fixture
def rng():
    return np.random.default_rng(5)


# (solver type, classes): what LIBLINEAR trains
TRAINED = [
    *[(solver_type, classes) for solver_type in CLASSIFIER_SOLVERS for classes in (1, 2, 3, 5)],
    *[(solver_type, 2) for solver_type in (*REGRESSION_SOLVERS, ONE_CLASS_SOLVER)],
]
BIASES = [-1.0, 0.0, 1.0, 100.0]


# LIBLINEAR reads what this package writes


def predicted_by_liblinear(path, X):
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
    if solver_type in REGRESSION_SOLVERS:
        assert labels == pytest.approx(expected[:, 0], rel=1e-12, abs=1e-12)
    elif solver_type == ONE_CLASS_SOLVER:
        assert labels.tolist() == np.where(expected[:, 0] > 0, 1, -1).tolist()
    elif classes == 2:
        assert labels.tolist() == np.where(expected[:, 0] > 0, 3, 4).tolist()
    else:
        assert labels.tolist() == (3 + expected.argmax(axis=1)).tolist()


def w_of(loaded):
    """w as LIBLINEAR holds it."""
    solver_type = bindings.solver_names(loaded.param.solver_type).name
    shape = shape_of_w(solver_type, loaded.nr_class, loaded.nr_feature, loaded.bias)
    return np.array(loaded.w[: shape[0] * shape[1]]).reshape(shape)


def test_liblinear_reads_every_number_to_the_last_bit(tmp_path):
    numbers = [1 / 3, 5e-324, -1.7976931348623157e308, 2.2250738585072014e-308, -0.0, 1e16, 1e22]
    model = model_of(np.transpose([numbers]), ONE_CLASS_SOLVER, bias=0.1 + 0.2, rho=-1e-310)
    liblinear_format.write(str(tmp_path / "m"), model, TRAILER)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert w_of(loaded).tobytes() == model.w.tobytes()
    assert (loaded.bias, loaded.rho) == (model.bias, model.rho)


def test_liblinear_reads_our_labels_at_the_ends_of_its_range(tmp_path):
    model = dataclasses.replace(LIBLINEAR.model, label=(-(2**31), 0, 2**31 - 1))
    liblinear_format.write(str(tmp_path / "m"), model, TRAILER)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert loaded.get_labels() == list(model.label)


def test_liblinear_reads_two_thousand_classes_and_so_do_we(tmp_path, rng):
    model = model_of(rng.normal(size=(3, 2000)), nr_class=2000)
    found, _ = liblinear_format.parse(LIBLINEAR.content(model, tmp_path), "m")
    assert_same(found, model)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert loaded.get_labels() == list(model.label)
    assert w_of(loaded).tobytes() == model.w.tobytes()


@pytest.mark.parametrize("bias", [-1.0, 1.0])
def test_liblinear_reads_a_model_without_features(tmp_path, bias):
    model = model_of(np.full((int(bias >= 0), 1), 0.25), bias=bias)
    assert_same(liblinear_format.parse(LIBLINEAR.content(model, tmp_path), "m")[0], model)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert (loaded.nr_feature, w_of(loaded).tolist()) == (0, model.w.tolist())


# This package reads what LIBLINEAR writes


def trained_by_liblinear(path, solver_type, classes, bias, rng):
    """Train with LIBLINEAR, save with its save_model, return LIBLINEAR's model in memory."""
    X = rng.normal(size=(60, 4)).round(3)
    X[:, 1] = 0  # no weight
    y = (np.arange(60) % classes) * 5 - 7
    X[:, 0] += y
    number = int(bindings.solver_names[solver_type])
    options = f"-s {number} -B {bias} -q" if solver_type != ONE_CLASS_SOLVER else f"-s {number} -q"
    model = liblinearutil.train(y, X, options)
    liblinearutil.save_model(str(path), model)
    return model


def test_a_one_class_model_of_liblinear_can_be_saved_for_it_again(tmp_path, rng):
    truth = trained_by_liblinear(tmp_path / "m", ONE_CLASS_SOLVER, 2, -1, rng)
    load(str(tmp_path / "m")).save(str(tmp_path / "n"))
    X = rng.normal(size=(30, 4))
    found = [
        np.ravel(liblinearutil.predict([], X, model, "-q")[2])
        for model in (truth, liblinearutil.load_model(str(tmp_path / "n")))
    ]
    assert found[1] == pytest.approx(found[0])


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
    label = tuple(truth.get_labels()) if solver_type in CLASSIFIER_SOLVERS else None
    assert found.label == label
    assert found.rho == (truth.rho if solver_type == ONE_CLASS_SOLVER else None)
    assert found.w.any() or classes == 1
    assert found.w.tobytes() == w_of(truth).tobytes()
    assert found.w.shape == w_of(truth).shape


@pytest.mark.parametrize(("solver_type", "classes"), TRAINED)
def test_our_body_is_the_text_that_liblinear_writes_up_to_the_digits(
    tmp_path, rng, solver_type, classes
):
    trained_by_liblinear(tmp_path / "liblinear", solver_type, classes, 1.0, rng)
    found, _ = read(tmp_path / "liblinear")
    ours = without_trailer(LIBLINEAR.content(found, tmp_path))
    theirs = (tmp_path / "liblinear").read_bytes()
    assert re.sub(rb"[^ \n]+", b"", ours) == re.sub(rb"[^ \n]+", b"", theirs)
    for a, b in zip(ours.split(), theirs.split(), strict=True):
        assert a == b or float(a) == float(b)


def test_whole_numbers_are_written_as_liblinear_does(tmp_path):
    model = model_of([[0.0], [-3.0], [10.5], [100.0], [-0.0], [1e-10]], bias=1.0)
    assert without_trailer(LIBLINEAR.content(model, tmp_path)) == (
        b"solver_type L2R_L1LOSS_SVC_DUAL\nnr_class 2\nlabel 3 4\nnr_feature 5\nbias 1\nw\n"
        b"0 \n-3 \n10.5 \n100 \n-0 \n1e-10 \n"
    )


# Writing, then reading, is the identity

finite = st.floats(allow_nan=False, allow_infinity=False)
int32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def models(draw):
    solver_type = draw(st.sampled_from(SOLVER_TYPES))
    classifier = solver_type in CLASSIFIER_SOLVERS
    nr_class = draw(st.integers(1, 5)) if classifier else 2
    own_format = draw(st.booleans())
    labels = st.lists(int32, min_size=nr_class, max_size=nr_class, unique=True).map(tuple)
    nr_feature, bias = draw(st.integers(0, 20)), draw(finite)
    shape = shape_of_w(solver_type, nr_class, nr_feature, bias)
    without_label = not classifier or (own_format and draw(st.booleans()))
    return LiblinearModel(
        solver_type,
        nr_class,
        label=None if without_label else draw(labels),
        nr_feature=nr_feature,
        bias=bias,
        rho=draw(finite) if solver_type == ONE_CLASS_SOLVER else None,
        w=draw(hnp.arrays(np.float64, shape, elements=finite)),
        own_format=own_format,
    )


@pytest.mark.slow
@given(
    models(),
    st.dictionaries(st.sampled_from(["seed", "note", "D"]), st.text()),
    st.sampled_from([1, 7, 64, 1 << 20]),
)
@settings(max_examples=300)
def test_what_is_written_is_read_to_the_last_bit(tmp_path_factory, model, trailer, block):
    path = tmp_path_factory.getbasetemp() / "identity"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liblinear_format, "BLOCK_NUMBERS", block)
        patch.setattr(liblinear_format, "BLOCK_BYTES", block)
        liblinear_format.write(str(path), model, trailer)
        found, found_trailer = read(path)
    assert_same(found, model)
    assert found_trailer == trailer


def test_more_rows_than_a_block_holds_are_written_and_read(tmp_path, rng):
    w = rng.normal(size=(liblinear_format.BLOCK_NUMBERS, 3)) * 10.0 ** rng.integers(-9, 9, 3)
    model = model_of(w, nr_class=3)
    content = LIBLINEAR.content(model, tmp_path)
    assert len(content) > 3 * liblinear_format.BLOCK_BYTES
    assert_same(liblinear_format.parse(content, "m")[0], model)
    loaded = liblinearutil.load_model(str(tmp_path / "m"))
    assert w_of(loaded).tobytes() == w.tobytes()


def test_numbers_of_numpy_and_any_layout_of_w_are_written_as_numbers(tmp_path):
    model = dataclasses.replace(
        LIBLINEAR.model,
        bias=np.float32(0.25),
        label=(np.int64(2), np.int32(-2), np.int8(0)),
        nr_class=np.int64(3),
        nr_feature=np.int32(2),
        w=np.asfortranarray(LIBLINEAR.model.w),
    )
    found, _ = liblinear_format.parse(LIBLINEAR.content(model, tmp_path), "m")
    expected = dataclasses.replace(LIBLINEAR.model, bias=0.25, label=(2, -2, 0))
    assert_same(found, expected)


# What is refused when writing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rho": 0.5}, "expected the header of L2R_L1LOSS_SVC_DUAL, found 'rho', which only"),
        ({"solver_type": "L2R_LLR"}, "expected solver_type L2R_LR, L2R_L2LOSS_SVC_DUAL, "),
        ({"solver_type": "L2R_L2LOSS_SVR"}, "expected nr_class 2 of L2R_L2LOSS_SVR, found 3"),
        ({"nr_class": 0, "label": ()}, "expected nr_class of 1 or more, found 0"),
        ({"nr_feature": -1}, "expected nr_feature of 0 or more, found -1"),
        ({"w": np.array([[0, 1, 2], [np.inf, 4, 5], [6, 7, 8]])}, "expected finite numbers in w"),
        ({"w": np.full((3, 3), np.nan)}, "m: expected finite numbers in w, found others"),
    ],
)
@pytest.mark.parametrize("own_format", [False, True])
def test_a_model_that_could_not_be_read_is_not_written(tmp_path, changes, message, own_format):
    changed = dataclasses.replace(LIBLINEAR.model, own_format=own_format, **changes)
    assert message in LIBLINEAR.not_written(changed, tmp_path)


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
    model = dataclasses.replace(LIBLINEAR.model, **changes)
    with pytest.raises(ValueError, match="expected w of shape"):
        liblinear_format.write(str(tmp_path / "m"), model, TRAILER)
    assert list(tmp_path.iterdir()) == []


# What is refused when reading


def test_without_a_trailer_a_flipped_bit_is_refused_or_read_as_liblinear_does(
    tmp_path,
):
    body = without_trailer(LIBLINEAR.content(LIBLINEAR.model, tmp_path))
    for position in range(len(body)):
        for bit in range(8):
            flipped = bytearray(body)
            flipped[position] ^= 1 << bit
            read_as_liblinear_or_refuse(bytes(flipped), tmp_path / "flipped")


def read_as_liblinear_or_refuse(content, path):
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
@settings(max_examples=1000)
def test_an_edited_model_is_refused_or_read_as_liblinear_does(tmp_path_factory, content, edits):
    for position, removed, inserted in edits:
        content = content[:position] + inserted + content[position + removed :]
    read_as_liblinear_or_refuse(content, tmp_path_factory.getbasetemp() / "edited")


@pytest.mark.parametrize(
    ("body", "old", "new", "message"),
    [
        (ONE_COLUMN, b"rho 0.25\n", b"", "m: expected a line 'rho ...'"),
        (ONE_COLUMN, b"0.25", b"inf", "m:5: expected finite numbers after 'rho', found 'i"),
        (BODY, b"L2R_LR", b"L2R_RL", "m:1: expected solver_type L2R_LR, L2R_L2LOSS_SVC_DUAL, L2"),
        (BODY, b" L2R_LR", b"", "m:1: expected solver_type L2R_LR, L2R_L2LOSS_SVC_DUAL, L2R_L2L"),
        (BODY, b"nr_class 3", b"nr_class 0", "m:2: expected nr_class of 1 or more, found 0"),
        (BODY, b"nr_class 3", b"nr_class 4", "m:3: expected 4 numbers after 'label', found 3"),
        (BODY, b"nr_class 3", b"nr_class 3.0", "m:2: expected whole numbers below 2^31 after 'n"),
        (BODY, b"nr_class 3", b"nr_class 2147483647", "m:4: expected less than 2^31 numbers of"),
        (ONE_COLUMN, b"nr_class 2", b"nr_class 3", "m:2: expected nr_class 2 of ONECLASS_"),
        (BODY, b"-1 7", b"-1 1", "m:3: expected different labels, found 1 2 times"),
        (BODY, b"-1 7", b"-1 2147483648", "m:3: expected whole numbers below 2^31 after 'label'"),
        (BODY, b"-1 7", b"-1 0.5", "m:3: expected whole numbers below 2^31 after 'label', found"),
        (
            ONE_COLUMN, b"rho", b"label 1 2\nrho",
            "m:5: expected the header of ONECLASS_SVM, found 'label', which only a classifier has",
        ),
        (
            BODY, b"w\n", b"rho 1\nw\n",
            "m:6: expected the header of L2R_LR, found 'rho', which only ONECLASS_SVM has",
        ),
        (BODY, b"nr_feature 2", b"nr_feature -2", "m:4: expected nr_feature of 0 or more, found"),
        (BODY, b"nr_feature 2", b"nr_feature 2147483648", "m:4: expected whole numbers below 2^"),
        (
            BODY, b"nr_feature 2", b"nr_feature 2147483647",
            "m:4: expected less than 2^31 numbers of w, which LIBLINEAR counts in a C int, "
            "found 2147483648 rows of 3",
        ),
        (
            ONE_COLUMN, b"nr_feature 3", b"nr_feature 2147483647",
            "m:10: expected 2147483647 rows of w (nr_feature and the bias), found 3 whole lines of",
        ),
        (BODY, b"nr_feature 2", b"nr_feature 3", "m:10: expected 4 rows of w (nr_feature and th"),
        (BODY, b"nr_feature 2", b"nr_feature 1", "m:9: expected the end of the model after 2 ro"),
        (BODY, b"bias 1", b"bias -1", "m:9: expected the end of the model after 2 rows of w (nr"),
        (BODY, b"1 2 3 \n", b"\n", "m:9: expected 3 numbers in a row of w, found 0"),
        (BODY, b"1 2 3 \n", b" \r\n", "m:9: expected 3 numbers in a row of w, found 0"),
        (BODY, b"1 2 3 \n", b"1 2\n", "m:9: expected 3 numbers in a row of w, found 2"),
        (BODY, b"0 -1.25 \n-0.5", b"0 \n-1.25 -0.5", "m:7: expected 3 numbers in a row of w, fo"),
        (BODY, b"-0.5 3 8e-05 \n", b"-0.5 3 8e-05 1 \n", "m:8: expected 3 numbers in a row of w"),
        (BODY, b"1 2 3", b"1 x 3", "m:9: expected a finite number of w, found 'x'"),
        (BODY, b"1 2 3", b"1 nan 3", "m:9: expected a finite number of w, found 'nan'"),
        (BODY, b"1 2 3", b"1 -inf 3", "m:9: expected a finite number of w, found '-inf'"),
        (BODY, b"1 2 3", b"1 infinity 3", "m:9: expected a finite number of w, found 'infinity'"),
        (BODY, b"1 2 3", b"1 1e999 3", "m:9: expected a finite number of w, found '1e999'"),
        (BODY, b"1 2 3", b"1 1_0 3", "m:9: expected a finite number of w, found '1_0'"),
        (BODY, b"1 2 3", b"1 0x1p3 3", "m:9: expected a finite number of w, found '0x1p3'"),
        (BODY, b"1 2 3", b"1 2\x003", "m:9: expected a finite number of w, found '2\\x003'"),
        (BODY, b"1 2 3", b"1 2 3 \x01", "m:9: expected a finite number of w, found '\\x01'"),
        (BODY, b"-0.5 3", b"-0.5 3,5", "m:8: expected a finite number of w, found '3,5'"),
        (ONE_COLUMN, b"2 \n", b"2 2 \n", "m:8: expected 1 number in a row of w, found 2"),
        (ONE_COLUMN, b"2 \n", b"\n", "m:8: expected 1 number in a row of w, found 0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_bad_model_is_refused_with_its_line(monkeypatch, body, old, new, message, block):
    monkeypatch.setattr(liblinear_format, "BLOCK_BYTES", block)
    assert message in LIBLINEAR.refused(edited(body, old, new))


def test_only_a_model_in_our_own_layout_may_hold_more_numbers_than_liblinear_counts(
    tmp_path,
):
    too_many = model_of(np.zeros((2, 1)), nr_feature=2**31 - 1)
    with pytest.raises(ModelError, match=r"less than 2\^31 numbers of w"):
        liblinear_format.write(str(tmp_path / "m"), too_many, TRAILER)
    own = dataclasses.replace(too_many, own_format=True)
    with pytest.raises(ValueError, match="expected w of shape"):
        liblinear_format.write(str(tmp_path / "m"), own, TRAILER)


def test_numbers_in_any_decimal_notation_are_read():
    content = edited(BODY, b"0.5 0 -1.25 \n", b"\t+.5  00. -125E-2\r\n")
    assert_same(liblinear_format.parse(content, "m")[0], liblinear_format.parse(BODY, "m")[0])
