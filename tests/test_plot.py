"""Pictures and pages: their numbers, their names, and what bad input says."""

import html.parser
import io
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import oracle
import pytest
from click.testing import CliRunner
from commands import run_train
from learning import read_log
from sklearn import datasets, metrics

pytest.importorskip("matplotlib")

from base import page
from command_parts import read_trials
from matplotlib import colors
from matplotlib.contour import ContourSet
from matplotlib.text import Text

import randsvm
from randsvm import SVC, SVR, plot
from randsvm.cli.plot import main
from randsvm.cli.train import train
from randsvm.errors import ModelError, TransferError

HOSTILE = '<script>alert("1")</script> & $\\frac$ ' + "x" * 10_000


def command(*words):
    return CliRunner().invoke(main, list(map(str, words)))


@pytest.fixture
def run(tmp_path):
    """Train on two classes with probabilities and a search; return data, model and log."""
    y, X = oracle.two_gaussians(300)
    data, model, log = oracle.write_svmlight(tmp_path / "d", y, X), tmp_path / "m", tmp_path / "log"
    words = ["-q", "-b", 1, "-v", 3, "-c", "0.25,1,4", "-g", "0.1,1", "--log", log, data, model]
    run_train(*words)
    return str(data), str(model), str(log)


def test_the_areas_and_the_confusion_are_those_of_scikit_learn(run, tmp_path):
    data, model, _ = run
    X, y = datasets.load_svmlight_file(data)
    fitted = randsvm.load(model)
    first = y == int(fitted.model.labels[0])
    f = fitted.decision_function(X)
    titles = " ".join(axis.get_title() for axis in plot.scores(data, model).axes)
    assert f"area {metrics.roc_auc_score(first, f):.4f}" in titles
    figure = plot.scores(data, model)
    legend = [text.get_text() for axis in figure.axes for text in axis.texts]
    confusion = metrics.confusion_matrix(~first, fitted.predict(X) != int(fitted.model.labels[0]))
    assert legend[:4] == [f"{count:,}" for count in confusion.ravel()]
    labels = [one for axis in figure.axes for one in axis.get_legend_handles_labels()[1]]
    for positive, values in ((first, f), (~first, -f)):
        assert any(
            one.endswith(f"area {metrics.average_precision_score(positive, values):.4f}")
            for one in labels
        )


def test_scores_of_arrays_and_of_files_agree(run):
    data, model, _ = run
    X, y = datasets.load_svmlight_file(data)
    pictures = [plot.scores(data, model), plot.scores((X.toarray(), y), randsvm.load(model))]
    one, other = (
        [text.get_text() for axis in figure.axes for text in [axis.title, *axis.texts]]
        for figure in pictures
    )
    assert one == other


def test_an_estimator_is_drawn(tmp_path):
    y, X = oracle.two_gaussians(80)
    names = np.where(y > 0, "yes", "no")
    assert len(plot.boundary((X, names), SVC().fit(X, names)).axes) == 2
    titles = [axis.get_title() for axis in plot.scores((X, names), SVC().fit(X, names)).axes]
    right = 100 * SVC().fit(X, names).score(X, names)
    assert titles[0] == f"{right:.2f}% of 80 rows are right"
    assert "R²" in plot.scores((X, X[:, 0]), SVR().fit(X, X[:, 0])).axes[0].get_title()


def test_the_rounds_of_the_last_run_are_drawn(run):
    records = read_log(Path(run[2]))
    rounds = [one for one in records if one["event"] == "iteration"]
    with Path(run[2]).open("a") as stream:
        stream.write('{"event": "itera')
    gaps, objectives, *_ = plot.convergence(run[2]).axes
    drawn = {tuple(point) for line in gaps.lines for point in line.get_xydata()}
    assert {(one["seconds"], 100 * one["gap"]) for one in rounds if one["gap"]} <= drawn
    drawn = {y for line in objectives.lines for y in line.get_ydata()}
    assert {one["primal"] for one in rounds} | {one["dual"] for one in rounds} <= drawn


def test_a_legend_shows_the_lines_of_its_panel(run):
    def look(line):
        return line.get_color(), line.get_marker(), line.get_linestyle()

    gaps, objectives, *_ = plot.convergence(run[2], run[2]).axes
    drawn = {look(line) for line in gaps.lines if len(line.get_xdata())}
    assert {look(line) for line in gaps.get_legend().get_lines()} == drawn
    dashes = {line.get_linestyle() for line in objectives.lines if len(line.get_xdata())}
    assert {line.get_linestyle() for line in objectives.get_legend().get_lines()} == dashes


def luminance(colour):
    """Return the relative luminance as WCAG 2 defines it."""
    rgb = np.array(colors.to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [
        0.2126,
        0.7152,
        0.0722,
    ]


@pytest.mark.parametrize("classes", [2, 4])
def test_a_boundary_is_dark_on_light_areas_whatever_the_colour_of_the_page(classes):
    y, X = oracle.clouds(200, classes=classes)
    axis = plot.boundary((X[:, :2], y), SVC().fit(X[:, :2], y)).axes[0]
    contours = [one for one in axis.collections if isinstance(one, ContourSet)]
    areas = [colour for one in contours if one.filled for colour in one.get_facecolor()]
    lines = [colour for one in contours if not one.filled for colour in one.get_edgecolor()]
    assert areas and lines
    # The page replaces INK by the colour of its text.
    assert plot.INK not in {colors.to_hex(colour) for colour in lines}
    assert {colour[3] for colour in areas} == {1.0}
    light, dark = min(map(luminance, areas)), max(map(luminance, lines))
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_pictures_are_read_at_the_width_of_a_page_and_have_no_empty_panel(run, tmp_path):
    data, model, log = run
    y, X = oracle.clouds(200, classes=26)
    pictures = {
        "convergence": plot.convergence(log),
        "search": plot.search(log),
        "line": plot.search(log, ["C"]),
        "scores": plot.scores(data, model),
        "many classes": plot.scores((X, y), SVC().fit(X, y)),
        "residuals": plot.scores((X, X[:, 0]), SVR().fit(X, X[:, 0])),
        "boundary": plot.boundary(data, model),
        "explain": plot.explain(data, model),
    }
    for name, figure in pictures.items():
        plot.write(figure, io.BytesIO(), format="png")
        assert figure.get_figwidth() <= 8, name
        texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
        assert min(text.get_fontsize() for text in texts) >= 9, name
        assert all(axis.has_data() for axis in figure.axes), name
        # The panels of a row reach from one side of the picture to the other.
        assert max(axis.get_position().x1 for axis in figure.axes) > 0.8, name


def test_every_combination_of_a_search_is_in_its_map(run):
    records = read_log(Path(run[2]))
    tried = [one for one in records if one["event"] == "tried"]
    figure = plot.search(run[2])
    texts = [text.get_text().split("\n")[0] for text in figure.axes[0].texts]
    assert sorted(texts) == sorted(f"{one['score']:.4g}" for one in tried)
    best = records[-1]["cross_validation"]
    assert f"C = {best['values']['C']:.4g}" in figure.axes[0].get_title()
    line = plot.search(run[2], ["C"]).axes[0].lines[0].get_xydata()
    own = {
        (one["values"]["C"], one["score"])
        for one in tried
        if one["values"]["gamma"] == best["values"]["gamma"]
    }
    assert {tuple(point) for point in line} == own


@pytest.mark.parametrize("way", ["cross-validated", "one score", "regression"])
def test_every_point_of_a_path_is_drawn_beside_the_score_of_its_c(tmp_path, way):
    y, X = oracle.two_gaussians(300)
    y = X[:, 0] + y if way == "regression" else y
    data, log = oracle.write_svmlight(tmp_path / "d", y, X), tmp_path / "log"
    words = {
        "cross-validated": ["--penalty", "l1", "--loss", "log", "-v", 3, "--no-racing"],
        "one score": ["-v", 3, "--no-racing", "--select-by", "auc"],
        "regression": ["-s", "svr"],
    }[way]
    path = "-q", "--path", "--gap", 1e-3, "-c", "0.01,0.1,1", "--log", log
    run_train("sgd", *path, *words, data, tmp_path / "m")
    records = read_log(log)
    points = [one for one in records if one["event"] == "point"]
    figure = plot.path(str(log))
    plot.write(figure, io.BytesIO(), format="png")
    assert {axis.get_xscale() for axis in figure.axes} == {"log"}
    drawn = [line.get_xydata().tolist() for axis in figure.axes for line in axis.lines]
    fields = {
        "cross-validated": ["nonzero_weights", "error"],
        "one score": [],
        "regression": ["squared_error"],
    }[way]
    for field in fields:
        values = [100 * (1 - one[field]) if field == "error" else one[field] for one in points]
        assert np.transpose([[one["C"] for one in points], values]).tolist() in drawn
    if "-v" in words:
        scores = [[one["C"], one["cross_validation"]["score"]] for one in points]
        assert scores in drawn
        best = records[-1]["cross_validation"]["values"]["C"]
        assert f"C = {best:.4g}" in " ".join(one.get_title(loc="right") for one in figure.axes)
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 9
    assert figure.get_figwidth() <= 8
    assert "training rows" in {text.get_text() for text in texts} or way == "one score"
    assert "<h2>Path</h2>" in page.training_page(records)


@pytest.mark.parametrize("words", [["--scale", "standard"], []])
def test_rings_are_around_the_support_vectors(tmp_path, words):
    y, X = oracle.checkerboard(150)
    data, model = oracle.write_svmlight(tmp_path / "d", y, X), tmp_path / "m"
    run_train("-q", "-g", 2, *words, data, model)
    axis = plot.boundary(str(data), str(model)).axes[0]
    (rings,) = [one for one in axis.collections if "support" in str(one.get_label())]
    found = np.asarray(rings.get_offsets())
    distances = np.abs(found[:, None] - X[None]).max(axis=2).min(axis=1)
    assert len(found) == randsvm.load(str(model)).model.Z.shape[0]
    assert distances.max() < 1e-5
    assert not [one for one in axis.collections if "other rows" in str(one.get_label())]


def test_the_bars_of_a_row_add_up_to_f(run, predict):
    data, model, _ = run
    figure = plot.explain(data, model, row=3)
    values = predict(data, model, "--scores").scores
    bars = sum(patch.get_width() for patch in figure.axes[0].patches)
    title = figure.axes[0].get_title()
    base = float(re.search(r"base value (\S+)", title)[1])
    assert base + bars == pytest.approx(values[2], rel=1e-3, abs=1e-3)


def test_a_model_of_another_kernel_is_not_explained_whatever_the_rows_are(tmp_path, run):
    data, model = run[0], tmp_path / "linear"
    run_train("-q", "-t", "linear", data, model)
    with pytest.raises(ModelError, match="RBF"):
        plot.explain(str(tmp_path / "missing"), str(model))


class Page(html.parser.HTMLParser):
    """Collects tags and what refers to other places."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        own = [value for name, value in attributes if name in ("href", "src", "xlink:href")]
        self.links += [one for one in own if not one.startswith(("#", "data:"))]

    def handle_data(self, data):
        self.text.append(data)


def test_a_page_is_one_file_with_the_numbers_of_the_run(run, tmp_path):
    data, model, log = run
    made = command("page", log, model, data, tmp_path / "p.html")
    assert made.exit_code == 0, made.output
    text = (tmp_path / "p.html").read_text()
    found, end = Page(text), read_log(Path(log))[-1]
    assert not found.links
    assert "script" not in found.tags
    assert found.tags.count("svg") == 3
    for shown in (f"{end['gap']:.4%}", f"{end['primal']:.6g}", end["run"], end["parameters"]):
        assert shown in found.text or shown in "".join(found.text)
    again = command("page", log, model, tmp_path / "p.html")
    assert again.exit_code == 0
    refused = command("page", log, model, data)
    assert "is not a page" in str(refused.exception)


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# The last option lets the frame's file tell its width to the file around it.
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--enable-logging=stderr",
    "--allow-file-access-from-files",
]
FRAME = """<title></title><iframe id="frame" width="{width}" height="900" src="{page}"></iframe>
<script>frame.onload = () => {{ const shown = frame.contentDocument.documentElement;
document.title = [shown.scrollWidth, shown.clientWidth].join() }}</script>"""


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1400, 400])
def test_a_browser_shows_a_page_without_a_scroll_bar_or_a_message(run, tmp_path, width):
    data, model, log = run
    made, around = tmp_path / "p.html", tmp_path / "around.html"
    assert command("page", log, model, data, made).exit_code == 0
    around.write_text(FRAME.format(width=width, page=made.name))
    words = [*OPTIONS, f"--user-data-dir={tmp_path / 'user'}", "--dump-dom", around.as_uri()]
    shown = subprocess.run([BROWSER, *words], capture_output=True, text=True, check=True)
    page_width, frame = map(int, re.search(r"<title>(\d+),(\d+)", shown.stdout).groups())
    assert 0 < page_width <= frame <= width
    assert "CONSOLE" not in shown.stderr


def test_a_training_writes_its_page_and_keeps_its_model_without_it(tmp_path):
    y, X = oracle.two_gaussians(100)
    data, model = oracle.write_svmlight(tmp_path / "d", y, X), tmp_path / "m"
    (tmp_path / "pages").mkdir()
    made = tmp_path / "pages" / "p.html"
    run_train("-q", "--html", made, data, model)
    assert "How it ended" in "".join(Page(made.read_text()).text)
    precious = tmp_path / "other"
    precious.write_text("precious")
    found = CliRunner().invoke(train, ["-q", "--html", str(precious), str(data), str(model)])
    assert "is not a page" in str(found.exception) and "goes on" not in found.output
    before = model.read_bytes()
    model.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "write_page", unwritable)
        ended = CliRunner().invoke(train, ["-q", "--html", str(made), str(data), str(model)])
    assert getattr(ended.exception, "exit_code", None) == 74
    assert model.read_bytes() == before


def test_a_page_beside_a_model_in_a_stream_is_made_from_the_run(tmp_path):
    y, X = oracle.two_gaussians(100)
    data, made = oracle.write_svmlight(tmp_path / "d", y, X), tmp_path / "p.html"
    ended = CliRunner().invoke(train, ["-q", "--html", str(made), str(data), "-"])
    assert ended.exit_code == 0
    assert ended.stdout.startswith("svm_type")
    (digest,) = re.findall("digest.*?([0-9a-f]{64})", ended.stdout)
    assert digest in made.read_text()


def test_a_page_goes_to_standard_output_alone(tmp_path):
    y, X = oracle.two_gaussians(100)
    data, model = oracle.write_svmlight(tmp_path / "d", y, X), tmp_path / "m"
    ended = CliRunner().invoke(train, ["--html", "-", str(data), str(model)])
    assert Page(ended.stdout).tags[0] == "html"
    assert "support vectors" in ended.stderr
    for words in (["--html", "-", data, "-"], ["--html", "-", "--log", "-", data, model]):
        refused = CliRunner().invoke(train, list(map(str, words)))
        assert "standard output is both" in str(refused.exception)


def test_a_page_repeats_a_long_command_whole(tmp_path):
    y, X = oracle.two_gaussians(60)
    data, made = oracle.write_svmlight(tmp_path / "d", y, X), tmp_path / "p.html"
    grid = ",".join(f"{1 + k / 1000:.3f}" for k in range(100))
    log = tmp_path / "log"
    run_train("-q", "-v", 2, "-c", grid, "--html", made, "--log", log, data, tmp_path / "m")
    repeated = "".join(Page(made.read_text()).text).partition("To repeat it")[2]
    assert read_log(log)[-1]["parameters"] in repeated
    assert "characters)" not in repeated


def test_a_log_of_another_schema_is_refused_and_its_scores_are_not_used(run, tmp_path):
    data, model, log = run
    other = tmp_path / "other"
    other.write_text(re.sub(r'"schema": ?\d+', '"schema":4', Path(log).read_text()))
    for words in (["convergence", other], ["search", other], ["page", other, model, data]):
        refused = command(*words)
        assert "schema 4" in str(refused.exception), words
    assert read_trials(log)
    assert not read_trials(str(other))


def unwritable(path, text):
    raise TransferError(f"writing {path}: No space left on device")


SPARSE_CASES = {
    "targets within the tube": ("-s svr", ["1 1:1", "1 1:2 2:1"]),
    "one row": ("-s svr", ["1 1:1 2:.5 3:2"]),
    "equal targets of nu-svr": ("-s nu-svr", ["1 1:1", "1 1:2"]),
    "epochs without a loss": ("sgd -s svr", ["0 1:0", "0 2:0"]),
    "equal rows": ("", ["1 1:1 2:1", "-1 1:1 2:1"]),
    "no features": ("", ["1", "-1"]),
    "one feature": ("", ["1 1:1", "-1 1:2"]),
    "one row of one class": ("-s one-class", ["1 1:1 2:1"]),
    "a search of equal scores": ("-s svr -v 2 -c 1,2", ["1 1:1", "1 1:2", "1 1:3"]),
    "a search over equal scores": ("-s svr -v 2 -c 1,2 -g 1,2", ["1 1:1", "1 1:2", "1 1:3"]),
}


@pytest.mark.parametrize("name", SPARSE_CASES)
def test_a_training_with_little_to_draw_has_all_its_pictures(tmp_path, name):
    words, rows = SPARSE_CASES[name]
    data, model, log = (str(tmp_path / name) for name in ("d", "m", "log"))
    Path(data).write_text("".join(f"{row}\n" for row in rows))
    html = tmp_path / "page"
    run_train(*words.split(), "-q", "--log", log, "--html", html, data, model)
    assert "How it ended" in html.read_text()
    assert plot.convergence(log).axes
    for picture in (plot.scores(data, model), plot.boundary(data, model)):
        plot.write(picture, io.BytesIO(), format="png")


@pytest.mark.parametrize("grid", [{"C": [1, 2]}, {"C": [1, 2], "gamma": [1, 2]}])
@pytest.mark.parametrize("scores", [[None, 0.5], [None, None]])
def test_a_combination_without_a_score_is_drawn_and_listed_last(grid, scores):
    combinations = [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    tried = [
        {
            "event": "tried",
            "values": values,
            "score_name": "auc",
            "score": scores[at % 2],
            "standard_error": None,
            "rows": 10,
            "dropped_after": None,
        }
        for at, values in enumerate(combinations)
    ]
    figure = plot.search(tried)
    plot.write(figure, io.BytesIO(), format="png")
    title = figure.axes[0].get_title()
    assert ("no score" in title) == (scores[1] is None)
    assert ("0.5" in title) == (scores[1] is not None)


def test_hostile_names_are_text(tmp_path):
    y, X = oracle.two_gaussians(60)
    labels = np.where(y > 0, HOSTILE, r"$\frac$")
    drawn = Page(page.svg(plot.scores((X, labels), SVC().fit(X, labels))))
    assert "script" not in drawn.tags
    shown = page.text(HOSTILE)
    assert "<" not in shown
    assert len(shown) < 1000
    assert r"$\frac$" in "".join(drawn.text)
    assert Page(page._table([(HOSTILE, HOSTILE)])).tags == ["table", "tr", "th", "td"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["convergence", "nothing"], "cannot open nothing"),
        (["convergence", "{data}"], "expected a log of randsvm"),
        (["search", "{sgd}"], "tried no combination"),
        (["path", "{log}"], "its last run has no path"),
        (["search", "{log}", "--axes", "D"], "no parameter D"),
        (["search", "{log}", "--axes", "C,C"], "one or two different parameters"),
        (["search", "{log}", "--axes", "C,gamma,C"], "one or two different parameters"),
        (["scores", "{model}", "{data}"], "is a model, not data"),
        (["boundary", "{data}", "{model}", "--features", "1", "9"], "no feature 9"),
        (["boundary", "{data}", "{model}", "--features", "1", "1"], "two different features"),
        (["explain", "{data}", "{model}", "--row", "999"], "no row 999"),
        (["explain", "{data}", "{model}", "--rows", "0"], "a sample of 1 row or more"),
        (["scores", "{data}", "{model}", "-o", "{data}"], "ends in .png"),
        (["scores", "{data}", "{model}", "-o", "{data}/x.png"], "cannot create"),
        (["page", "{data}", "{model}", "{data}.html"], "expected a log of randsvm"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, words, said):
    data, model, log = run
    sgd = tmp_path / "sgd.log"
    run_train("sgd", "-q", "--log", sgd, data, tmp_path / "linear")
    places = {"data": data, "model": model, "log": log, "sgd": sgd}
    found = command(*[word.format(**places) for word in words])
    assert found.exit_code != 0
    assert said in str(found.exception)
    assert "\n" not in str(found.exception)


@pytest.mark.parametrize("words", [(), ("boundary",)])
def test_h_is_help_as_of_the_other_commands(words):
    found = command(*words, "-h")
    assert (found.exit_code, found.output) == (0, command(*words, "--help").output)


def test_a_picture_replaces_only_a_picture(run, tmp_path):
    log, target = run[2], tmp_path / "p.png"
    for suffix in ("png", "svg", "pdf"):
        assert command("convergence", log, "-o", tmp_path / f"p.{suffix}").exit_code == 0
        assert command("convergence", log, "-o", tmp_path / f"p.{suffix}").exit_code == 0
    target.write_text("precious")
    assert "not a picture" in str(command("convergence", log, "-o", target).exception)
    assert target.read_text() == "precious"
