"""Labels of data in which novelties are searched may be anything; they do not change the model."""

import numpy as np
import pytest

import randsvm
from randsvm.parameters.run import CertifyParams


@pytest.fixture
def files(tmp_path):
    """Write the same rows with labels +1 and -1, with names, and partly with names."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    novel = np.abs(X).max(axis=1) > 2
    labels = {
        "numbers": ["-1" if one else "1" for one in novel],
        "names": ["odd" if one else "usual" for one in novel],
        "mixed": ["-1" if one else "other" for one in novel],
    }
    for name, words in labels.items():
        text = [f"{word} 1:{a:.4f} 2:{b:.4f}\n" for word, (a, b) in zip(words, X, strict=True)]
        (tmp_path / name).write_text("".join(text))
    randsvm.train(str(tmp_path / "names"), tmp_path / "m", task="one-class", nu=0.2)
    return {name: tmp_path / name for name in (*labels, "m")}


def test_rows_with_other_labels_have_no_score(files, predict):
    named = predict(files["names"], files["m"])
    numbered = predict(files["numbers"], files["m"])
    assert named.lines == numbered.lines
    assert "Accuracy" in numbered.out and "Accuracy" not in named.out
    assert "rows with other labels than 1 and -1, as 'odd': not scored" in named.err.replace(
        "'usual'", "'odd'"
    )
    mixed = predict(files["mixed"], files["m"])
    novel = [line == "-1" for line in numbered.lines]
    rows = [text.startswith("-1") for text in files["mixed"].read_text().splitlines()]
    right = sum(a and b for a, b in zip(novel, rows, strict=True))
    assert f"({right}/{sum(rows)})" in mixed.out


def test_certificates_do_not_depend_on_labels(files):
    found = [
        randsvm.certify(str(files[name]), str(files["m"]), params=CertifyParams(nu=0.2))
        for name in ("numbers", "names", "mixed")
    ]
    assert found[0].gap <= 0.001
    assert len({(one.primal, one.dual) for one in found}) == 1


def test_a_search_counts_rows_with_other_labels_as_wrong(files):
    """Neither of the two answers is theirs."""
    found = []

    def watch(event):
        if type(event).__name__ == "Tried":
            found.append(event.score)

    randsvm.train(str(files["names"]), watch=watch, task="one-class", nu=0.2, folds=3)
    assert found == [0.0]


@pytest.mark.parametrize(
    "words",
    [
        {"algorithm": "sgd"},
        {"algorithm": "sgd", "nu": 0.2},
        {"components": 50, "gamma": 1.0, "nu": 0.2},
    ],
    ids=["hinge", "share", "kernel"],
)
def test_linear_novelty_detection_ignores_other_labels_too(files, predict, tmp_path, words):
    """Whichever loss it has, and whichever line of the model file tells it."""
    model = str(tmp_path / "linear")
    randsvm.train(str(files["names"]), model, task="one-class", **words)
    assert randsvm.load(model).info()["task"] == "one-class"
    named, numbered = (predict(files[name], model) for name in ("names", "numbers"))
    assert named.lines == numbered.lines
    assert "Accuracy" in numbered.out and "Accuracy" not in named.out
    X = np.random.default_rng(0).normal(size=(60, 2))
    fitted = randsvm.train(randsvm.Arrays(X, ["odd"] * 60), task="one-class", **words)
    assert set(fitted.predict(X).tolist()) <= {1, -1}
