"""randsvm-predict: labels as they were spelled, decision values as LIBSVM computes them."""

import csv
import gzip

import numpy as np
import oracle
import pytest
from base import STANDARD_OUTPUTS
from commands import run_predict, run_train
from csr_rows import csr
from libsvm import svmutil
from model_files import kernel_model, load_model, rows_of
from scipy import sparse

import randsvm
from randsvm import Arrays
from randsvm.errors import DataError, InputError, ModelError, OutputError, RandsvmError

# Apart enough for a model without a training error.
ROWS = "{0} 1:1 2:0.5\n{0} 1:2\n{1} 1:-1 2:1\n{1} 1:-2 2:-1\n"


@pytest.fixture
def files(tmp_path):
    """files(name=text, ...): the files, in tmp_path; returns their paths."""

    def write(**texts):
        paths = [tmp_path / f"{name}.svm" for name in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text)
        return paths

    return write


# ---- labels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first, second",
    [("+1", "-1"), ("-1", "1"), ("1.0", "2e0"), ("spam", "ham"), ("0", "1"), ("99999999999", "3")],
)
def test_labels_come_out_as_training_spelled_them(files, train, predict, first, second):
    (path,) = files(a=ROWS.format(first, second))
    predicted = predict(path, train(path).model)
    assert predicted.lines == [first, first, second, second]
    assert predicted.out == "Accuracy = 100% (4/4) (classification)\n"


def test_the_first_spelling_of_a_label_counts(files, train, predict):
    text = ROWS.format("+1", "-1.0").replace("+1 1:2", "1 1:2").replace("-1.0 1:-2", "-1 1:-2")
    path, other = files(a=text, b=ROWS.format("1e0", "-1"))
    model = train(path).model
    for data in (path, other):
        predicted = predict(data, model)
        assert predicted.lines == ["+1", "+1", "-1.0", "-1.0"]
        assert "(4/4)" in predicted.out


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_each_row_has_one_line_so_labels_have_no_line_ends(tmp_path, end):
    X, y = np.array([[1.0], [-1.0]]), [f"a{end}b", "c"]
    table = tmp_path / "t.csv"
    table.write_text(f'x,y\n1,"a{end}b"\n-1,c\n', newline="")
    with pytest.raises(DataError, match=r":2:2: expected a label without line ends"):
        randsvm.train(table, label_column="y")
    # In memory they are labels like others.
    found = randsvm.train(Arrays(X, y), tmp_path / "m")
    assert found.predict(X).tolist() == y
    (tmp_path / "d").write_text("? 1:1\n")
    with pytest.raises(ModelError, match=r"expected labels without line ends, .* found 'a"):
        run_predict(tmp_path / "d", tmp_path / "m", tmp_path / "o")


def test_unlabelled_rows_are_predicted_and_left_out_of_the_accuracy(files, train, predict):
    path, other = files(a=ROWS.format("spam", "ham"), b=ROWS.format("?", "spam"))
    model = train(path).model
    predicted = predict(other, model)
    assert predicted.lines == ["spam", "spam", "ham", "ham"]
    assert predicted.out == "Accuracy = 0% (0/2) (classification)\n"
    only = predict(*files(c="? 1:1\n? 1:-1\n"), model)
    assert (only.lines, only.out) == (["spam", "ham"], "")
    assert "no labelled rows" in only.err


def test_a_label_that_training_never_saw_is_a_wrong_answer(files, train, predict):
    path, other = files(a=ROWS.format("1", "2"), b=ROWS.format("1", "3"))
    assert predict(other, train(path).model).out == "Accuracy = 50% (2/4) (classification)\n"


def test_targets_of_a_regression_are_no_classes_of_a_model(files, train, predict):
    """No option of a prediction changes the task of the model."""
    path, other = files(a=ROWS.format("1", "2"), b=ROWS.format("1", "0.5"))
    with pytest.raises(DataError) as error:
        predict(other, train(path).model)
    assert str(error.value).endswith("expected a whole number as the class, found '0.5'")


def test_spellings_of_labels_have_no_effect_on_a_regression(files, train, predict):
    (path,) = files(a="0.5 1:1\n1.5 1:2\n")
    found = predict(path, train(path, "-s", "svr").model, "--labels", "libsvm")
    assert "note: --labels has no effect with a regression\n" in found.err


def test_the_accuracy_of_weighted_rows_has_no_count_of_rows(files, train, predict):
    path, other, weights = files(
        a=ROWS.format("1", "2"), b=ROWS.format("1", "3"), weights="3\n3\n1\n1\n"
    )
    predicted = predict(other, train(path).model, "--row-weights", weights)
    assert predicted.out == "Accuracy = 75% (classification)\n"


def test_nothing_is_written_before_rows_are_read(tmp_path, capsysbinary):
    (tmp_path / "a").write_text("x,label\n1,p\n-1,q\n2,p\n-2,q\n")
    model = tmp_path / "m"
    run_train("-q", "--format", "csv", "--label-column", "label", tmp_path / "a", model)
    capsysbinary.readouterr()
    with pytest.raises(RandsvmError, match="zz"):
        run_predict("--keep", "zz", tmp_path / "a", model, "-")
    assert capsysbinary.readouterr().out == b""


@pytest.mark.parametrize("jobs", [1, 3])
def test_lines_are_in_the_order_of_the_rows(made, train, predict, jobs):
    path, _, X = made("checkerboard", 5000)
    trained = train(path, "-g", 5, "-k", 50, "--sample-size", 200)
    model = oracle.read_model(trained.model, 2)
    f = oracle.kernel_matrix("rbf", X, model.Z, 5.0) @ model.beta + model.b
    predicted = predict(path, trained.model, "--jobs", jobs)
    assert predicted.lines == ["+1" if positive else "-1" for positive in f > 0]
    assert predict(path, trained.model, "--scores").scores == pytest.approx(f, rel=1e-6, abs=1e-6)


# ---- decision values ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, note",
    [
        ("-t rbf -g 0.3", "3 values of 2 features that training never saw count in |x|^2"),
        ("-t poly -g 0.3", "ignored 3 values of 2 features that training never saw"),
        ("-t sigmoid -g 0.3", "ignored 3 values of 2 features that training never saw"),
        ("-t linear", "ignored 3 values of 2 features that training never saw"),
    ],
)
def test_features_that_training_never_saw_mean_what_they_mean_to_libsvm(
    files, train, predict, words, note
):
    text = ROWS.format("1", "2")
    more = text.replace("2:0.5", "2:0.5 7:3").replace("2:-1", "2:-1 7:1 2000000:0.5")
    path, wider = files(a=text, b=more)
    model = train(path, *words.split()).model
    expected, found = predict(path, model, "--scores"), predict(wider, model, "--scores")
    y, rows = svmutil.svm_read_problem(str(wider))
    libsvm = svmutil.svm_load_model(str(model))
    _, _, values = svmutil.svm_predict(y, rows, libsvm, "-q")
    assert found.scores == pytest.approx(np.ravel(values), rel=1e-6)
    assert (found.lines == expected.lines) == ("rbf" not in words)
    assert [
        line.partition(", as")[0] for line in found.err.splitlines() if "never saw" in line
    ] == [f"note: {note}"]
    assert "never saw" not in expected.err


def test_a_scaled_row_has_no_features_that_training_never_saw(files, train, predict):
    """They have no scale: what is constant in training is 0."""
    text = ROWS.format("1", "2")
    path, wider = files(a=text, b=text.replace("2:0.5", "2:0.5 7:3"))
    model = train(path, "-g", 0.3, "--scale", "minmax").model
    expected, found = predict(path, model, "--scores"), predict(wider, model, "--scores")
    assert found.lines == expected.lines
    assert "note: ignored " in found.err


def test_a_feature_that_training_saw_counts_though_no_support_vector_has_it(
    tmp_path, train, predict
):
    """Rows far from the margin have a feature of their own: it is in |x|^2 of the kernel."""
    y, X = oracle.two_gaussians(300)
    X = np.column_stack([X * np.where(y > 0, 1, 1)[:, None] + 4 * y[:, None], np.zeros(300)])
    X[np.argmax(y * X[:, 0]), 2] = 0.5
    path, test = oracle.write_svmlight(tmp_path / "a", y, X), tmp_path / "b"
    model = train(path, "-t", "rbf", "-g", 0.01, "-c", 100).model
    assert " 3:" not in model.read_text().partition("\nSV\n")[2].partition("# randsvm")[0]
    X[:, 2] = 1.0
    oracle.write_svmlight(test, y, X)
    f = oracle.libsvm_decisions(svmutil.svm_load_model(str(model)), X)
    predicted = predict(test, model, "--scores")
    assert predicted.scores == pytest.approx(f, rel=1e-6, abs=1e-6)
    assert "ignored" not in predicted.err


def test_a_zero_based_model_reads_zero_based_rows(made, train, predict, tmp_path):
    path, _, _ = made("two_gaussians", 450)
    zero = tmp_path / "zero"
    zero.write_text(path.read_text().replace(" 1:", " 0:").replace(" 2:", " 1:"))
    expected = predict(path, train(path, "-g", 1).model, "--scores")
    model = train(zero, "-g", 1, "--zero-based").model
    assert predict(zero, model, "--scores").lines == expected.lines
    with pytest.raises(DataError, match=r":1:4: expected an index of 1 or more"):
        predict(zero, train(path, "-g", 1).model)


@pytest.mark.parametrize("labels", [("spam", "ham"), ("99999999999", "3")])
def test_libsvm_refuses_a_model_whose_labels_it_cannot_hold(files, train, predict, labels):
    (path,) = files(a=ROWS.format(*labels))
    model = train(path).model
    assert svmutil.svm_load_model(str(model)) is None
    if "spam" in labels:
        with pytest.raises(ModelError, match="labels that are whole numbers, found 'spam'"):
            predict(path, model, "--labels", "libsvm")


# ---- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("output", STANDARD_OUTPUTS)
def test_rows_from_standard_input_labels_to_standard_output(command, files, train, output):
    (path,) = files(a=ROWS.format("+1", "-1"))
    model = train(path).model
    ended = command("predict", "-", model, output, stdin=gzip.compress(path.read_bytes()))
    assert (ended.returncode, ended.stdout) == (0, "+1\n+1\n-1\n-1\n")
    assert "Accuracy = 100% (4/4) (classification)\n" in ended.stderr


def test_bad_input_leaves_the_old_output(files, train, predict, tmp_path):
    path, bad = files(a=ROWS.format("+1", "-1"), b="+1 1:1\n" * 3000 + "-1 1:x\n")
    model, output = train(path).model, tmp_path / "output"
    output.write_text("old\n")
    with pytest.raises(DataError, match=r"b\.svm:3001:4: expected a number after 1:, found 'x'$"):
        predict(bad, model)
    with pytest.raises(DataError, match=r"expected a number like the first label"):
        predict(*files(c="spam 1:1\n"), model)
    with pytest.raises(InputError):
        predict(tmp_path / "missing", model)
    assert output.read_text() == "old\n"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("which", ["data", "model"])
def test_the_output_replaces_no_input(command, files, train, which):
    (path,) = files(a=ROWS.format("+1", "-1"))
    given = {"data": path, "model": train(path).model}
    before = given[which].read_bytes()
    ended = command("predict", given["data"], given["model"], given[which])
    name = {"data": "TEST_FILE", "model": "MODEL_FILE"}[which]
    assert ended.returncode == 2
    assert ended.stderr == f"randsvm-predict: {given[which]} is both {name} and OUTPUT_FILE\n"
    assert given[which].read_bytes() == before


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
def test_the_output_replaces_no_table(files, train, tmp_path, delimiter):
    """Predictions have labels and numbers, as a table without blanks has fields."""
    (path,), table = files(a=ROWS.format("a;b", "c")), tmp_path / "table"
    model = train(path).model
    table.write_text(f"x{delimiter}y\n1.5{delimiter}u\n")
    with pytest.raises(OutputError, match="exists and is not a file of predictions"):
        run_predict(path, model, table)
    assert table.read_text() == f"x{delimiter}y\n1.5{delimiter}u\n"
    # An output is replaced, whatever its labels have.
    for _ in range(2):
        run_predict(path, model, tmp_path / "out")
    assert (tmp_path / "out").read_text().split() == ["a;b", "a;b", "c", "c"]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("C", [1, 1e4])
@pytest.mark.parametrize("by", ["randsvm", "LIBSVM"])
def test_labels_in_float32_are_those_in_float64(tmp_path, train, predict, classes, C, by):
    """Labels alone are computed in float32; scores, and rows near a hyperplane, in float64."""
    y, X = oracle.clouds(800, 0, classes)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    model = tmp_path / "by_libsvm"
    if by == "randsvm":
        model = train(path, "-g", 0.5, "-c", C).model
    else:
        problem = svmutil.svm_problem(y, sparse.csr_matrix(X))
        parameter = svmutil.svm_parameter(f"-q -g 0.5 -c {C}")
        svmutil.svm_save_model(str(model), svmutil.svm_train(problem, parameter))
    loaded, rows = load_model(model), csr(X.astype(np.float32))
    laid_out = rows_of(loaded, rows.indptr, rows.indices + 1, rows.data)
    exact, fast = loaded.decision(laid_out), loaded.decision(laid_out, labels_only=True)
    assert np.abs(fast - exact).max() < 1e-3 * C
    assert (fast != exact).any()
    expected = loaded.predicted(exact)
    assert (loaded.predicted(fast) == expected).all()
    assert predict(path, model).lines == [loaded.labels[index] for index in expected]


def test_a_row_on_the_hyperplane_is_computed_in_float64(tmp_path, train):
    y, X = oracle.two_gaussians(2000)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    loaded = load_model(train(path, "-g", 1).model)

    def decision(x, labels_only=False):
        indices, values = np.array([1, 2], np.int32), x.astype(np.float32)
        rows = rows_of(loaded, np.array([0, 2]), indices, values)
        return loaded.decision(rows, labels_only)[0, 0]

    above, below = np.array([1.0, 1.0]), np.array([-1.0, -1.0])
    assert decision(above) > 0 > decision(below)
    for _ in range(30):
        middle = (above + below) / 2
        above, below = (middle, below) if decision(middle) > 0 else (above, middle)
    assert abs(decision(middle)) < 1e-5
    assert decision(middle, labels_only=True) == decision(middle)
    assert decision(X[0], labels_only=True) != decision(X[0])


@pytest.mark.parametrize("gamma", [0.2, 0.05, 0.001])
def test_rounding_that_adds_up_over_features_changes_no_label(gamma):
    """All products of an exponent are the same here, and so are the errors of their sum."""
    ones = csr(np.ones((3, 1000), np.float32))
    for margin in (1e-5, 1e-4, 1e-3, 1e-2):
        model = kernel_model(
            ("rbf", gamma),
            features=np.arange(1, 1001, dtype=np.int32),
            labels=("1", "-1"),
            prediction_type="svc",
            Z=ones,
            beta=np.ones((3, 1)),
            b=np.array([margin - 3]),
        )
        rows = rows_of(model, ones.indptr, ones.indices + 1, ones.data)
        assert (model.decision(rows, labels_only=True) > 0).all()


FORMS = {
    "two": ([], "12", ["", "--scores", "-b 1", "--coverage .9", "--coverage .999", "explain"]),
    "names": ([], "ab", ["", "-b 1", "--coverage .9"]),
    "three": ([], "123", ["", "--scores", "-b 1", "--coverage .9", "explain"]),
    "rest": (["--multiclass", "ovr"], "123", ["", "--scores", "-b 1", "--coverage .9"]),
    "targets": (["-s", "svr"], "12", ["", "-b 1", "--coverage .5", "--coverage .999", "explain"]),
}
TEXT_LABELS = [("yes, sure", "no"), ("a:b", "c"), ('é "x"', "it's"), ("labels", "label sets")]


@pytest.mark.parametrize("name", FORMS)
def test_a_prediction_replaces_its_own_output(tmp_path, name):
    options, labels, predictions = FORMS[name]
    data, model, output = tmp_path / "d", tmp_path / "m", tmp_path / "out"
    rows = [f"{labels[i % len(labels)]} 1:{i * i % 7} 2:{i % 5}" for i in range(9)]
    data.write_text("\n".join([*rows, ""]))
    run_train("-q", "-b", 1, "--conformal", *options, data, model)
    for words in predictions:
        output.unlink(missing_ok=True)
        for _ in range(2):
            run_predict(*words.split(), data, model, output)
        assert (" -inf inf" in output.read_text()) == (
            words == "--coverage .999" and name == "targets"
        )


@pytest.mark.parametrize("labels", TEXT_LABELS)
@pytest.mark.parametrize("words", ["", "-b 1", "--scores", "--coverage .9", "--keep id", "explain"])
def test_a_prediction_of_a_table_replaces_its_own_output(tmp_path, labels, words):
    pytest.importorskip("pyarrow")
    data, model, output = tmp_path / "d.csv", tmp_path / "m", tmp_path / "out"
    with data.open("w") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "x", "y"])
        table.writerows([[i, i * i % 7, labels[i % 3 % 2]] for i in range(20)])
    options = ["--format", "csv", "--label-column", "y", "--ignore-columns", "id"]
    run_train("-q", "-b", 1, "--conformal", *options, data, model)
    for _ in range(2):
        run_predict(*words.split(), data, model, output)
