"""Values of options as LIBSVM's and scikit-learn's users write them."""

import click
import numpy as np
import oracle
import pytest
from base import (
    KERNEL_NAMES,
    Choice,
    KernelParams,
    Options,
    Search,
    Size,
    option_fields,
    read_value,
)
from command_parts import KindType
from learning import learn
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from randsvm.errors import ParameterError

COSTS = KindType(next(spec.kind for f, spec in option_fields(KernelParams) if f.name == "C"))


def grid_py(text):
    """The values that LIBSVM's grid.py tries for -log2c or -log2g begin,end,step."""
    begin, end, step = map(int, text.split(","))
    return [2.0**power for power in range(begin, end + (1 if step > 0 else -1), step)]


@pytest.mark.parametrize(
    "text, values",
    [
        ("3", 3.0),
        ("1,2,8", (1.0, 2.0, 8.0)),
        ("2^-5,2^3", (2**-5, 2**3)),
        ("10^-3", 1e-3),
        ("4^.5", 2.0),
        ("2^-5:2^15:2^2", tuple(grid_py("-5,15,2"))),
        ("2^3:2^-15:2^-2", tuple(grid_py("3,-15,-2"))),
        ("2^-5:2^14:2^2", tuple(grid_py("-5,13,2"))),
        ("1:1000:10", (1.0, 10.0, 100.0, 1000.0)),
        ("0.3,1:4:2,0.3", (0.3, 1.0, 2.0, 4.0)),
        ("AUTO", "auto"),
    ],
)
def test_numbers(text, values):
    assert COSTS.convert(text, None, None) == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "2^",
        "2^x",
        "1^2^3",
        "-8^.5",
        "9^9999",
        "1:2",
        "1:2:3:4",
        "1:8:-2",
        "1:8:0",
        "1:8:1",
        "8:1:2",
        "0:1:2",
        "0.1:0.5:0.1",
        "1:1e9:1.0001",
        "scale",
        "auto,1",
        "nan:1:2",
        "inf:1:2",
    ],
)
def test_what_is_no_number(text):
    with pytest.raises(click.UsageError, match=r"such as 2\^-5:2\^15:2\^2"):
        COSTS.convert(text, None, None)


def test_words_may_be_in_capitals():
    word = KindType(Choice(*KERNEL_NAMES))
    assert [word.convert(text, None, None) for text in ("RBF", "rbf", "2")] == ["rbf"] * 3


def test_a_word_that_is_no_value_of_a_parameter():
    for value in ("auto", "scael"):
        with pytest.raises(ParameterError, match=r"gamma: (expected|must be) a number, "):
            KernelParams(gamma=value)


def test_folds_of_python_callers_are_whole_numbers_of_any_type():
    for given, folds in ((5, (5, 1)), (5.0, (5, 1)), ("5x3", (5, 3)), ((5, 3.0), (5, 3))):
        assert Search(folds=given).folds == folds
    for given in ((5,), (5, "a"), "5x", "5x3x2", 2.5):
        with pytest.raises(ParameterError, match="folds: expected folds such as 5 or 5x3"):
            Search(folds=given)


# ---- gamma --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--scale", "standard"), ("-t", "linear")])
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_gamma_scale_is_scikit_learns(tmp_path, words, density):
    rng = np.random.default_rng(3)
    X = oracle.as_float32(
        rng.normal(2, [1, 5, 0.1], size=(60, 3)) * (rng.random((60, 3)) < density)
    )
    (tmp_path / "d").write_text(oracle.svmlight_text(rng.choice([-1, 1], 60), X))
    learnt = learn("randsvm", tmp_path / "d", tmp_path / "m", "-g", "scale", *words)
    options = learnt.metadata["configuration"].split()
    X, y = load_svmlight_file(str(tmp_path / "d"))
    X = X.toarray()
    if "--scale" in words:
        # Sparse rows are not centred.
        X = StandardScaler(with_mean=density == 1.0).fit_transform(X)
    expected = SVC(gamma="scale").fit(X, y)._gamma
    if "linear" in words:
        assert "-g has no effect with -s svc -t linear" in learnt.notices
        assert "-g" not in options
        return
    assert float(options[options.index("-g") + 1]) == pytest.approx(expected, rel=1e-6)
    assert learn("randsvm", tmp_path / "d", tmp_path / "n", *options[1:]).body == learnt.body


def test_gamma_of_features_that_never_change(tmp_path):
    """As scikit-learn: 1."""
    (tmp_path / "d").write_text("+1 1:2 2:2\n-1 1:2 2:2\n")
    metadata = learn("randsvm", tmp_path / "d", tmp_path / "m", "-g", "scale").metadata
    assert " -g 1 " in metadata["configuration"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("20", 20), ("3K", 3072), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("2tb", 2**41)],
)
def test_sizes(text, count):
    assert KindType(Size()).convert(text, None, None) == count


@pytest.mark.parametrize("group", Options.__subclasses__())
def test_defaults_are_values_that_their_own_options_take(group):
    """They are stored without a check."""
    for f, spec in option_fields(group):
        read = read_value(f.name, spec.kind, f.default)
        assert (read, type(read)) == (f.default, type(f.default))
