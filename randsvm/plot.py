"""Draw training runs, searches, scores, boundaries and explanations as figures of matplotlib.

Logs, data and models are names of files; models may also be fitted models or estimators, and data
may be a pair (X, y) of arrays. All rows are kept in memory. Each function returns a figure that
belongs to no window: ``figure.savefig("gap.svg")`` writes it, and a notebook shows it. Needs
matplotlib and scikit-learn (extra plot).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from randsvm import files
from randsvm.arrays import FEATURES, CsrMatrix, rows_over
from randsvm.errors import ContentError, ModelError, ParameterError
from randsvm.events import PERCENT_SCORES, SCHEMA
from randsvm.models.fitted import FittedModel, decision_values, load
from randsvm.models.model_text import check_is_not_model
from randsvm.models.row_files import RowFiles
from randsvm.parameters.run import PredictParams

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import AutoLocator, MaxNLocator
    from sklearn import metrics
    from sklearn.calibration import calibration_curve
except ImportError as error:
    raise ParameterError(
        "pictures need matplotlib and scikit-learn: pip install matplotlib scikit-learn"
    ) from error

__all__ = ["boundary", "convergence", "explain", "path", "scores", "search"]

Record: TypeAlias = "dict[str, Any]"  # of a log

# Okabe and Ito's colours, which readers with any colour vision tell apart. Classes and runs take
# them in this order in every picture, each with a mark and a line of its own for prints in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F")
MARKS = ("o", "^", "s", "D", "v", "P", "X", "*")
# Colour of text and axes; a page replaces it by that of the text around the picture.
INK = "#1d1f21"
# Colour of lines on areas, which are light on any page.
DARK = "#1f2123"
GREY = COLOURS[-1]
# A page of 800 pixels shows pictures of up to 8 inches in their own size, so that text of 9 points
# has 12 pixels; it would make wider ones smaller.
WIDTH, HEIGHT = 8.0, 3.1  # of a picture at most, and of a panel, inches
SMALL = 9  # size of the smallest text, points
STYLE: Any = {
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
    "axes.prop_cycle": f"cycler(color={list(COLOURS)}, linestyle={['-', '--'] * 4})",
} | dict.fromkeys(
    ("legend.fontsize", "xtick.labelsize", "ytick.labelsize", "figure.labelsize"), SMALL
)
STYLE |= dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
)
in_style = mpl.rc_context(STYLE)
LONGEST_NAME = 24  # characters of a label or a file name in a picture
GRID_POINTS = 150  # on each side of a boundary
MAX_POINTS = 4_000  # rows that a picture shows, drawn at random with a fixed seed
MAX_COLUMNS = 10  # of a matrix over the whole width whose cells have room for their number
MAX_TICKS = 40  # names of classes beside a matrix
MAX_BARS = 20
BINS = 10  # of a calibration


class Panel(NamedTuple):
    """A panel of the picture of a training.

    lines : field of the records -> its label and dashes
    """

    title: str
    lines: dict[str, tuple[str, str]]
    is_logarithmic: bool = False


# Kind of the records of a training -> field and label of the horizontal axis.
AXES = {"iteration": ("seconds", "seconds since the start"), "epoch": ("number", "epoch")}
PANELS = {
    "iteration": (
        Panel("gap of the best solution, %", {"gap": ("gap", "-")}, is_logarithmic=True),
        Panel("objectives", {"primal": ("P, primal", "-"), "dual": ("D, dual", "--")}),
        Panel(
            "violators: rows that violate the KKT conditions",
            {"violators": ("violators", "-")},
            is_logarithmic=True,
        ),
    ),
    "epoch": (
        Panel(
            "mean loss of rows before their step",
            {"loss": ("rows of the epoch", "-"), "held_out": ("held-out rows", "--")},
        ),
        Panel("accuracy of rows before their step, %", {"errors": ("accuracy", "-")}),
    ),
}


def shortened(name: object, longest: int = LONGEST_NAME) -> str:
    """Return a name on one line, cut in the middle if it is long; it is no formula."""
    text, half = " ".join(str(name).split()), (longest - 1) // 2
    cut = text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"
    return cut.replace("$", r"\$")


def panels(
    count: int, columns: int = 2, width: float = WIDTH, height: float = HEIGHT
) -> tuple[Figure, list[Any]]:
    """Return a figure and the axes of its panels; the last panel fills its row.

    Parameters
    ----------
    count, columns : int
        Number of panels, and of those beside each other.
    width : float
        Width of the figure, inches.
    height : float
        Height of a panel, inches.
    """
    columns = min(count, columns)
    figure = Figure(figsize=(width, -(-count // columns) * height))
    grid = figure.add_gridspec(-(-count // columns), columns)
    axes = [figure.add_subplot(grid[divmod(at, columns)]) for at in range(count - 1)]
    return figure, [*axes, figure.add_subplot(grid[-1, (count - 1) % columns :])]


def write(figure: Figure, stream: Any, **options: Any) -> None:
    """Write a figure in the style of all pictures. options : of Figure.savefig."""
    with mpl.rc_context(STYLE | {"svg.hashsalt": str(id(figure))}):
        figure.savefig(stream, **options)


def _label(axis: Any, x: str, y: str, title: str = "", legend: str | None = None) -> None:
    """Write the labels of the axes and the title. legend : its place; None: no legend."""
    axis.set(xlabel=x, ylabel=y, title=title)
    if legend is not None:
        axis.legend(loc=legend)


def _style(number: int) -> Record:
    """Return the colour and the mark of a class or a run."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)]}


# ---- logs --------------------------------------------------------------------------------------


def read_log(log: str) -> list[Record]:
    """Return the records of the last run in a log; lines that were cut short are left out.

    Raises InputError if the file cannot be opened, and ContentError if it is no log, or if another
    version of randsvm wrote the run.
    """
    records = [one for one in files.read_json_lines(log) if {"event", "run"} <= one.keys()]
    if not records:
        raise ContentError(f"{log}: expected a log of randsvm (--log), found none of its records")
    last = records[-1]
    if last.get("schema") != SCHEMA:
        found = f"schema {last.get('schema')} of randsvm {last.get('version')}"
        raise ContentError(f"{log}: expected records of schema {SCHEMA}, found {found}")
    return [one for one in records if one["run"] == last["run"]]


def _column(records: Sequence[Record], name: str) -> np.ndarray:
    """Return a field of records, (m,) float64; nan where it is null."""
    return np.array([one[name] for one in records], float)


@in_style
def convergence(*logs: str | Sequence[Record]) -> Figure:
    """Draw how training runs converged: gap, P and D, and violators against seconds.

    Of a training by `sgd` it draws the loss and the accuracy of each epoch.

    Parameters
    ----------
    *logs : str or sequence of dict
        Names of logs, of which the last run is drawn, or records of a run.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    InputError, ContentError
        If a log cannot be read, or if its last run has neither rounds nor epochs.
    """
    runs: dict[str, list[Record]] = {}
    for log in logs:
        name = shortened(Path(log).stem) if isinstance(log, str) else "training"
        records = read_log(log) if isinstance(log, str) else log
        found = [one for one in records if one["event"] in ("iteration", "epoch")]
        if not found:
            raise ContentError(f"{name}: its last run has neither rounds nor epochs")
        runs[name if name not in runs else f"{name} ({len(runs) + 1})"] = found
    everything = [one for found in runs.values() for one in found]
    if len({one["event"] for one in everything}) > 1:
        raise ContentError("rounds of kernel machines and epochs of sgd have no common axis")

    def has(field: str) -> bool:
        return any(one[field] is not None for one in everything)

    kind = everything[0]["event"]
    x, x_label = AXES[kind]
    shown = [panel for panel in PANELS[kind] if any(map(has, panel.lines))]
    figure, axes = panels(len(shown), columns=1, height=2.1)
    for axis, panel in zip(axes, shown, strict=True):
        lines = {field: line for field, line in panel.lines.items() if has(field)}
        for number, found in enumerate(runs.values()):
            _draw_run(axis, found, x, lines, number)
        _set_scales(axis, panel)
        if kind == "epoch":
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        for label, dashes in lines.values() if len(lines) > 1 else []:
            axis.plot([], [], dashes, color=INK, label=label)
        _label(axis, "", "", legend="best" if len(lines) > 1 else None)
        axis.set_title(panel.title, loc="left")
        axis.sharex(axes[-1])
        axis.tick_params(labelbottom=axis is axes[-1])
    axes[-1].set_xlabel(x_label)
    for number, (name, found) in enumerate(runs.items()):
        problems = len({one.get("machine") for one in found})
        several = f" ({problems} binary problems)" if problems > 1 else ""
        axes[0].plot([], [], "-", label=name + several, **_style(number))
    axes[0].legend()
    if any(one.get("inner_set") for one in everything):
        figure.supxlabel("marks: rounds on all rows")
    return figure


def _draw_run(axis: Any, records: list[Record], x: str, lines: Any, number: int) -> None:
    """Draw some fields of a run. Each binary problem has lines of its own.

    lines : field -> its label and dashes
    """
    machines = dict.fromkeys(one.get("machine") for one in records)
    style = _style(number) | {"markersize": 4, "linewidth": 0.6 if len(machines) > 1 else 1.4}
    for machine in machines:
        own = [one for one in records if one.get("machine") == machine]
        on_all_rows = np.flatnonzero([not one.get("inner_set") for one in own])
        for field, (_, dashes) in lines.items():
            values = _column(own, field)
            values = {"gap": 100 * values, "errors": 100 * (1 - values)}.get(field, values)
            axis.plot(_column(own, x), values, dashes, markevery=on_all_rows, **style)


def _set_scales(axis: Any, panel: Panel) -> None:
    """Set a logarithmic axis, without the values that are 0, or leave out few very large values."""
    values = np.concatenate([line.get_ydata() for line in axis.lines])
    if panel.is_logarithmic:
        if (values > 0).any():
            axis.set_yscale("log", nonpositive="mask")
        return
    # The first P may be a hundred times the optimum.
    if np.nanmax(values) > 2 * (most := np.nanquantile(values, 0.9)) > 0:
        axis.set_ylim(top=1.1 * most)


# ---- paths ---------------------------------------------------------------------------------------


@in_style
def path(log: str | Sequence[Record]) -> Figure:
    """Draw a path over C: the features that have a weight, and the scores.

    Parameters
    ----------
    log : str or sequence of dict
        Name of a log, whose last run is drawn, or records of a run.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    InputError, ContentError
        If the log cannot be read, or if its last run has no path.
    """
    records = read_log(log) if isinstance(log, str) else log
    points = [one for one in records if one["event"] == "point"]
    if not points:
        raise ContentError("its last run has no path: expected the log of a training with --path")
    C, tried = _column(points, "C"), [one["cross_validation"] for one in points]
    result = records[-1].get("cross_validation")
    own = next((one for one in points if result and one["cross_validation"] == result), points[-1])
    is_class = own["error"] is not None
    name, field = ("accuracy", "error") if is_class else ("mean squared error", "squared_error")
    rows = _column(points, field)
    lines = {"training rows": (100 * (1 - rows) if is_class else rows, 0 * C)}
    if None not in tried:
        scores, errors = _column(tried, "score"), np.nan_to_num(_column(tried, "standard_error"))
        # Other scores of the training rows are not known.
        lines = lines if (score := tried[0]["score_name"]) == name else {}
        name, lines["held-out rows,\n± standard error"] = score, (scores, errors)
    shown = {name + ", %" * (name in PERCENT_SCORES): lines}
    if own["nonzero_weights"] is not None:
        used = _column(points, "nonzero_weights")
        shown = {"features with a weight": {"": (used, 0 * C)}} | shown
    figure, axes = panels(len(shown), columns=1, height=2.4)
    for axis in axes:
        axis.set_xscale("log")
    for axis, (title, lines) in zip(axes, shown.items(), strict=True):
        axis.sharex(axes[-1])
        highest = max(lines, key=lambda label: lines[label][0][-1])
        for number, (label, (values, errors)) in enumerate(lines.items()):
            style = _style(number) | {"markersize": 5, "linestyle": "--" if number else "-"}
            axis.errorbar(C, values, yerr=errors if errors.any() else None, **style)
            # Of two labels for nearly equal values one is above the other.
            side = "bottom" if label == highest else "top"
            place = {"transform": axis.get_yaxis_transform(), "va": side, "fontsize": SMALL}
            axis.text(1.01, values[-1], label, **place)
        axis.set_title(title, loc="left")
        axis.axvline(own["C"], color=GREY, linewidth=1, linestyle=":")
        axis.tick_params(labelbottom=axis is axes[-1])
    axes[-1].set_xlabel("C")
    axes[0].set_title(f"model: C = {own['C']:.4g}", loc="right", fontsize=SMALL)
    gap = 100 * _column(points, "gap").max()
    figure.suptitle(f"{len(C)} values of C, gap at most {gap:.2g}%", fontsize="medium")
    return figure


# ---- searches ----------------------------------------------------------------------------------


def is_loss(one: Record) -> bool:
    """Return whether a smaller score of a combination is better."""
    return str(one["score_name"]).endswith(("error", "loss"))


def quality(one: Record) -> float:
    """Return the score of a combination, negative if a smaller one is better; -inf without one."""
    if one["score"] is None:
        return -np.inf
    return float(-one["score"] if is_loss(one) else one["score"])


def trials(records: Sequence[Record]) -> tuple[list[Record], Record]:
    """Return the last record of each combination of a search, and that of the chosen one.

    Raises ContentError if there was no search.
    """
    tried = [one for one in records if one["event"] == "tried"]
    tried = list({tuple(one["values"].items()): one for one in tried}.values())
    if not tried:
        raise ContentError("its last run tried no combination: expected the log of a search")
    chosen = [one["tried"][0] for one in records if one["event"] == "searched"]
    chosen += [one["cross_validation"] for one in records if one.get("cross_validation")]
    of_chosen = [one for one in tried if chosen and one["values"] == chosen[-1]["values"]]
    whole = [one for one in tried if one["dropped_after"] is None] or tried
    return tried, max(of_chosen or whole, key=lambda one: (one["rows"], quality(one)))


@in_style
def search(log: str | Sequence[Record], axes: Sequence[str] | None = None) -> Figure:
    """Draw the scores of a search: a map of two parameters, or a line where one varies.

    Parameters
    ----------
    log : str or sequence of dict
        Name of a log, whose last run is drawn, or records of a run.
    axes : sequence of str, optional
        One or two parameters; by default the first two that vary. Others have their chosen value.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    InputError, ContentError
        If the log cannot be read, or if its last run was no search.
    ParameterError
        If an axis is no parameter of the search, or if there are more than two.
    """
    tried, best = trials(read_log(log) if isinstance(log, str) else log)
    values = {name: sorted({one["values"][name] for one in tried}) for name in best["values"]}
    varying = [name for name in values if len(values[name]) > 1]
    shown = list(axes or varying[:2] or list(values)[:1])
    if len({*shown}) != len(shown) or len(shown) > 2:
        raise ParameterError(f"expected one or two different parameters, found {', '.join(shown)}")
    if unknown := [name for name in shown if name not in values]:
        raise ParameterError(
            f"the search has no parameter {unknown[0]}: it has {', '.join(values)}"
        )
    rest = [name for name in varying if name not in shown]
    tried = [one for one in tried if all(one["values"][o] == best["values"][o] for o in rest)]
    percent = "%" * (best["score_name"] in PERCENT_SCORES)
    unit = best["score_name"] + (percent and ", %")
    chosen = ", ".join(f"{name} = {best['values'][name]:.4g}" for name in [*shown, *rest])
    score = f"{best['score_name']} {_score(best, 5)} {_error(best)}".strip()
    title = f"chosen: {chosen}\n{score}{percent}"
    counts = [len(values[name]) for name in shown] if len(shown) > 1 else [6, 5]
    width, height = min(WIDTH, 2.2 + 0.65 * counts[0]), min(WIDTH, 1.7 + 0.42 * counts[1])
    figure, (axis,) = panels(1, 1, width, height)
    if len(shown) == 1:
        _draw_line(axis, tried, best, shown[0])
        _label(axis, shown[0], unit, title, "best")
    else:
        _draw_map(figure, axis, tried, best, {name: values[name] for name in shown}, unit)
        _label(axis, shown[0], shown[1], title)
    return figure


def _score(one: Record, digits: int) -> str:
    return "no score" if one["score"] is None else f"{one['score']:.{digits}g}"


def _error(one: Record) -> str:
    return "" if one["standard_error"] is None else f"± {one['standard_error']:.2g}"


def _draw_line(axis: Any, tried: Sequence[Record], best: Record, name: str) -> None:
    tried = sorted(tried, key=lambda one: float(one["values"][name]))
    at = np.array([one["values"][name] for one in tried], float)
    score, error = _column(tried, "score"), np.nan_to_num(_column(tried, "standard_error"))
    axis.errorbar(at, score, yerr=error, fmt="o-", color=COLOURS[0], label="± standard error")
    if (dropped := ~np.isnan(_column(tried, "dropped_after"))).any():
        style = {"color": "white", "zorder": 3, "markeredgecolor": COLOURS[0]}
        axis.plot(at[dropped], score[dropped], "o", label="dropped after some folds", **style)
    star = {"color": COLOURS[1], "markersize": 14, "zorder": 4}
    axis.plot([best["values"][name]], _column([best], "score"), "*", label="chosen", **star)
    axis.set_xscale("log" if at.min() > 0 else "linear")


def _draw_map(
    figure: Figure, axis: Any, tried: Sequence[Record], best: Record, values: Record, unit: str
) -> None:
    """Draw a cell for each combination. Combinations that were not tried stay blank."""
    (x_name, x), (y_name, y) = values.items()
    loss, few = is_loss(best), len(x) <= MAX_COLUMNS and len(y) <= 1.5 * MAX_COLUMNS
    score = np.full((len(y), len(x)), np.nan)
    places = [(y.index(one["values"][y_name]), x.index(one["values"][x_name])) for one in tried]
    score[tuple(zip(*places, strict=True))] = _column(tried, "score")
    # Very bad combinations would leave no colours for the good ones.
    shares = [0.0, 0.6] if loss else [0.4, 1.0]
    low, high = (0.0, 1.0) if np.isnan(score).all() else np.nanquantile(score, shares)
    colours = {"vmin": low, "vmax": high, "cmap": "cividis_r" if loss else "cividis"}
    image = axis.imshow(score, origin="lower", aspect="auto", **colours)
    figure.colorbar(image, ax=axis, label=unit, extend="max" if loss else "min")
    for one, (j, i) in zip(tried, places, strict=True):
        dropped = one["dropped_after"] is not None
        # A cell without a score is white.
        bright = one["score"] is None or np.mean(image.cmap(image.norm(one["score"]))[:3]) > 0.5
        text = f"{_score(one, 4)}\n{'dropped' if dropped else _error(one)}"
        style: Record = {"ha": "center", "va": "center", "color": "black" if bright else "white"}
        axis.text(i, j, text if few else "x" * dropped, fontsize=SMALL, **style)
    i, j = x.index(best["values"][x_name]), y.index(best["values"][y_name])
    frame: Record = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 4}
    axis.add_patch(mpl.patches.Rectangle((i - 0.5, j - 0.5), 1, 1, **frame))
    axis.set_xticks(range(len(x)), [f"{value:.4g}" for value in x], rotation=0 if few else 45)
    axis.set_yticks(range(len(y)), [f"{value:.4g}" for value in y])
    axis.grid(visible=False)
    if not few:
        axis.plot([], [], "x", color=INK, label="dropped after some folds")
        figure.legend(loc="outside lower center")


# ---- rows and their predictions ----------------------------------------------------------------


class Rows(NamedTuple):
    """Rows of data, and the model that predicts them.

    fitted : the model. X : (m, width) csr_matrix. y : (m,) float64, class index or target, nan if
    unlabelled. weights : (m,).
    """

    fitted: FittedModel
    X: Any
    y: np.ndarray
    weights: np.ndarray

    def at(self, numbers: np.ndarray) -> Rows:
        """Return some of the rows."""
        return Rows(self.fitted, self.X[numbers], self.y[numbers], self.weights[numbers])


def _some(count: int) -> np.ndarray:
    """Return the numbers of up to MAX_POINTS of `count` rows, ascending."""
    return np.sort(np.random.default_rng(0).permutation(count)[:MAX_POINTS])


def _of_two(f: np.ndarray) -> np.ndarray:
    """Return the f of two classes, above 0 for the first one: (...) of decision values (..., K)."""
    return f[..., 0] if f.shape[-1] == 1 else f[..., 0] - f[..., 1]


def _fitted(model: Any) -> FittedModel:
    """Return the fitted model of a file, a fitted model or an estimator."""
    if isinstance(model, str | os.PathLike):
        return load(model)
    return getattr(model, "model_", model)


def _of_arrays(X: Any, y: Any, fitted: FittedModel) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the rows of arrays, their class indices or targets, and weights of 1."""
    X, y = scipy.sparse.csr_matrix(X), np.asarray(y)
    codes = y.astype(float) if fitted.model.is_regression else np.full(len(y), np.nan)
    if not fitted.model.is_regression:
        labels = zip(fitted.classes, fitted.model.labels, strict=True)
        for code, (value, text) in enumerate(labels):
            codes[(y == value) | (y.astype(str) == text)] = code
    return X, codes, np.ones(len(y))


def _of_files(paths: Sequence[str], model: Any, fitted: FittedModel) -> tuple[Any, ...]:
    """Return the rows of files, their class indices or targets, and their weights."""
    found, parts = fitted.model, []
    features = np.arange(found.width) + found.index_base
    for block in RowFiles(found, str(model), paths, PredictParams()).blocks(jobs=fitted.jobs):
        rows, _ = rows_over(block.X, features)
        parts.append((rows.to_scipy(), block.y, block.weights))
    if not parts:
        raise ContentError("the data have no rows")
    X, *columns = zip(*parts, strict=True)
    return scipy.sparse.vstack(X, format="csr"), *map(np.concatenate, columns)


def _rows(data: Any, model: Any) -> Rows:
    if isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], str):
        fitted = _fitted(model)
        return Rows(fitted, *_of_arrays(*data, fitted))
    paths = files.inputs(data)
    check_is_not_model(paths, "DATA MODEL")
    fitted = _fitted(model)
    return Rows(fitted, *_of_files(paths, model, fitted))


# ---- scores ------------------------------------------------------------------------------------


@in_style
def scores(data: Any, model: Any) -> Figure:
    """Draw how well a model predicts labelled rows.

    Of classes: the confusion matrix; of two classes the ROC and precision-recall curves and the
    decision values of each class; of a model with probabilities their calibration. Of a
    regression: targets and residuals against predictions.

    Parameters
    ----------
    data : str, sequence of str, or tuple (X, y)
        Labelled rows: names of files, or arrays.
    model : str, FittedModel or estimator
        The model.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    ContentError, DataError, ModelError
        If the rows or the model are unusable, or if no row has a label.
    """
    rows = _rows(data, model)
    found, K = rows.fitted.model, len(rows.fitted.model.labels)
    rows = rows.at(np.flatnonzero(rows.y < K if K else ~np.isnan(rows.y)))
    if not len(rows.y):
        raise ContentError("no row has a label of the model: expected labelled rows")
    f = decision_values(found, rows.X, rows.fitted.jobs)
    if not K:
        return _draw_residuals(rows.y, found.predicted(f))
    drawn = [_draw_confusion]
    if K == 2:
        both = len(np.unique(rows.y)) == 2
        drawn += [_draw_roc, _draw_precision_recall] * both + [_draw_decision_values]
    if found.has_probabilities and not found.is_one_class:
        drawn.append(_draw_calibration)
    # A matrix of many classes has the whole width.
    columns, height = (2, HEIGHT) if K <= MAX_COLUMNS // 2 else (1, min(WIDTH, 1.5 + 0.25 * K))
    width = WIDTH * (1 if len(drawn) > 1 or columns == 1 else 0.6)
    figure, axes = panels(len(drawn), columns, width, height)
    for draw, axis in zip(drawn, axes, strict=True):
        draw(axis, rows, f)
    return figure


def _draw_confusion(axis: Any, rows: Rows, f: np.ndarray) -> None:
    found, K = rows.fitted.model, len(rows.fitted.model.labels)
    counts = metrics.confusion_matrix(rows.y, found.predicted(f), labels=range(K))
    names = [shortened(name, 12) for name in found.labels]
    metrics.ConfusionMatrixDisplay(counts, display_labels=names).plot(
        ax=axis,
        cmap="Blues",
        colorbar=False,
        include_values=K <= MAX_COLUMNS,
        values_format=",d",
        text_kw={"fontsize": SMALL},
        xticks_rotation=45 if K > 3 else 0,
    )
    some = range(0, K, -(-K // MAX_TICKS))
    axis.set_xticks(some, [names[code] for code in some])
    axis.set_yticks(some, [names[code] for code in some])
    axis.set_aspect("auto")
    axis.grid(visible=False)
    right = 100 * np.trace(counts) / counts.sum()
    _label(axis, "predicted", "true", f"{right:.2f}% of {counts.sum():,} rows are right")


def _draw_roc(axis: Any, rows: Rows, f: np.ndarray) -> None:
    name, other = (shortened(label, 12) for label in rows.fitted.model.labels)
    drawn = metrics.RocCurveDisplay.from_predictions(
        rows.y == 0,
        _of_two(f),
        name=name,
        sample_weight=rows.weights,
        drop_intermediate=False,
        plot_chance_level=True,
        chance_level_kw={"color": INK, "linestyle": ":", "linewidth": 0.8},
        ax=axis,
    )
    axis.get_legend().remove()
    axis.set_aspect("auto")
    title = f"ROC of {name}: area {drawn.roc_auc:.4f} (dotted: chance)"
    x, y = f"rows of {other} predicted {name}", f"rows of {name} predicted {name}"
    _label(axis, f"false positive rate\n({x})", f"true positive rate\n({y})", title)


def _draw_precision_recall(axis: Any, rows: Rows, f: np.ndarray) -> None:
    for code, f_of_class in enumerate((_of_two(f), -_of_two(f))):
        drawn = metrics.PrecisionRecallDisplay.from_predictions(
            rows.y == code, f_of_class, sample_weight=rows.weights, ax=axis
        )
        name = shortened(rows.fitted.model.labels[code])
        drawn.line_.set_label(f"{name}: area {drawn.average_precision:.4f}")
    axis.set_aspect("auto")
    _label(axis, "recall", "precision", "Precision and recall", "lower left")


def _draw_decision_values(axis: Any, rows: Rows, f: np.ndarray) -> None:
    f, labels = _of_two(f), rows.fitted.model.labels
    low, high = np.quantile(f, [0.001, 0.999])
    bins = np.linspace(min(low, -1.0), max(high, 1.0), 41)
    for code, line in ((0, "-"), (1, "--")):
        if len(own := np.clip(f[rows.y == code], bins[0], bins[-1])):
            label, colour = f"{shortened(labels[code])}: {len(own):,} rows", COLOURS[code]
            axis.hist(own, bins, alpha=0.25, color=colour)
            axis.hist(own, bins, histtype="step", color=colour, linestyle=line, label=label)
    for margin in (-1, 0, 1):
        line = ":" if margin else "-"
        axis.axvline(margin, ymax=0.74, color=INK, linewidth=0.8, linestyle=line)
    title = f"Decision values: f > 0 predicts {shortened(labels[0], 12)}"
    _label(axis, "decision value f (dotted: the margin)", "rows", title)
    axis.margins(y=0.35)  # room for the legend above the bars and the lines
    axis.legend(loc="upper center")


def _draw_calibration(axis: Any, rows: Rows, f: np.ndarray) -> None:
    labels, chances = rows.fitted.model.labels, rows.fitted.model.probabilities(f)
    x, y = "probability of the predicted class", "right labels"
    p, right = chances.max(axis=1), chances.argmax(axis=1) == rows.y
    if len(labels) == 2:
        p, right = chances[:, 0], rows.y == 0
        x, y = (f"{what} {shortened(labels[0])}" for what in ("probability of", "rows of"))
    observed, mean = calibration_curve(right, p, n_bins=BINS)
    axis.plot([0, 100], [0, 100], ":", color=INK, linewidth=0.8)
    axis.plot(100 * mean, 100 * observed, "o-", color=COLOURS[0])
    bars = axis.twinx()
    counts, *_ = bars.hist(100 * p, BINS, range=(0, 100), rwidth=0.9, color=GREY, alpha=0.45)
    bars.set(ylabel="rows (bars)", ylim=(0, 3 * counts.max()))
    bars.yaxis.set_major_formatter("{x:,.0f}")
    bars.grid(visible=False)
    _label(axis, f"{x}, %", f"{y}, %", "Calibration (dotted: perfect)")


def _draw_residuals(y: np.ndarray, f: np.ndarray) -> Figure:
    title = f"{len(y):,} rows"
    title += f": R² {metrics.r2_score(y, f):.4f}" if np.ptp(y) else ""
    title += f"\nmean squared error {metrics.mean_squared_error(y, f):.4g}"
    points = {"color": COLOURS[0], "s": 8, "alpha": 0.7, "linewidths": 0}
    labels = ("target", title), ("target - prediction", "Residuals")
    figure, axes = panels(3)
    for axis, kind, (y_label, own) in zip(axes, ("actual", "residual"), labels, strict=False):
        metrics.PredictionErrorDisplay.from_predictions(
            y,
            f,
            kind=f"{kind}_vs_predicted",
            subsample=min(MAX_POINTS, len(y)),
            random_state=0,
            ax=axis,
            scatter_kwargs=points,
            line_kwargs={"color": INK, "linewidth": 0.8},
        )
        _label(axis, "prediction", y_label, own)
    for place in (axes[0].xaxis, axes[0].yaxis):  # scikit-learn's ticks are no round numbers
        place.set_major_locator(AutoLocator())
    axes[2].hist(y - f, 41, color=COLOURS[0])
    axes[2].axvline(0, color=INK, linewidth=0.8)
    _label(axes[2], "target - prediction", "rows", "Residuals, counted")
    return figure


# ---- boundaries --------------------------------------------------------------------------------


@in_style
def boundary(data: Any, model: Any, features: tuple[int, int] | None = None) -> Figure:
    """Draw the decision function of a model over the rows of data.

    Rows of two features are drawn as they are, and those of a regression of one feature as a curve.
    Of more features two are chosen, where all others have their mean, or the plane of the first two
    principal components is drawn.

    Parameters
    ----------
    data : str, sequence of str, or tuple (X, y)
        Rows: names of files, or arrays.
    model : str, FittedModel or estimator
        The model.
    features : tuple of two int, optional
        Two features by their index in files.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    ContentError, DataError, ModelError
        If the rows or the model are unusable.
    ParameterError
        If a feature is not one of the model, or if both are the same.
    """
    every = _rows(data, model)
    rows = every.at(_some(len(every.y)))
    kind, X = rows.fitted.model, rows.X.toarray()
    if kind.has_row_numbers:
        raise ModelError("a model of kernel values has no features to draw")
    width, first = X.shape[1], kind.index_base
    if width == 1 and not kind.labels:
        return _draw_curve(rows)
    chosen = features or (first, first + width - 1) if features or width <= 2 else ()
    if outside := [j for j in chosen if not first <= j < first + width]:
        raise ParameterError(
            f"no feature {outside[0]}: the model has {first} to {first + width - 1}"
        )
    if features and features[0] == features[1]:
        raise ParameterError(f"expected two different features, found {features[0]} twice")
    origin, note = X.mean(axis=0), ""
    if chosen:
        directions = np.eye(width)[[j - first for j in chosen]]
        names = [f"feature {j}" for j in chosen]
        note = "all other features have their mean" if width > 2 else ""
        origin = origin * (1 - directions.max(axis=0))
    else:
        # The row of zeros gives a second direction to a single row.
        centred = np.vstack([X - origin, np.zeros(width)])
        _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
        shares = 100 * sizes**2 / max(float(np.square(sizes).sum()), 1e-300)
        directions = directions[:2]
        names = [f"principal component {i} ({shares[i - 1]:.0f}% of variance)" for i in (1, 2)]
        note = "f in the plane of two principal components, rows projected on it"
    figure, (axis,) = panels(1, 1, 7.0, 5.5)
    y, points = rows.y, (X - origin) @ directions.T
    _draw_decisions(figure, axis, rows.fitted, points, origin, directions)
    for code, name in enumerate(kind.labels):
        label = f"{shortened(name)}: {int(np.sum(every.y == code)):,} rows"
        axis.scatter(*points[y == code].T, s=14, linewidths=0, label=label, **_style(code))
    if (rest := np.isnan(y) if kind.labels else y == y).any():
        label = "unlabelled rows" if kind.labels else f"{len(every.y):,} rows"
        axis.scatter(*points[rest].T, s=6, color=GREY, label=label)
    _draw_support_vectors(axis, kind, origin, directions)
    _label(axis, names[0], names[1], note)
    axis.grid(visible=False)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)
    return figure


def _draw_curve(rows: Rows) -> Figure:
    x = rows.X.toarray()[:, 0]
    ends = np.linspace(x.min(), x.max(), 4 * GRID_POINTS)
    figure, (axis,) = panels(1, 1, 6.0, 4.0)
    axis.scatter(x, rows.y, s=10, color=GREY, label="rows")
    axis.plot(ends, rows.fitted.decision_function(ends[:, None]), label="prediction")
    _label(axis, f"feature {rows.fitted.model.index_base}", "target", legend="best")
    return figure


def _draw_decisions(
    figure: Figure, axis: Any, fitted: FittedModel, points: np.ndarray, origin: Any, directions: Any
) -> None:
    """Draw f, or the predicted classes, over origin + s directions[0] + t directions[1]."""
    model, K = fitted.model, len(fitted.model.labels)
    pad = 0.05 * np.ptp(points, axis=0) + 1e-12
    sides = np.linspace(points.min(axis=0) - pad, points.max(axis=0) + pad, GRID_POINTS).T
    lines = [np.column_stack([sides[0], np.full(GRID_POINTS, t)]) for t in sides[1]]
    f = np.stack([decision_values(model, origin + s @ directions, fitted.jobs) for s in lines])
    if f.shape[2] > 1 and K != 2:
        classes = np.stack([model.predicted(row) for row in f])
        for code in range(K):
            own, colour = (classes == code).astype(float), _light(_style(code)["color"], 0.25)
            axis.contourf(*sides, own, [0.5, 1.5], colors=[colour])
            axis.contour(*sides, own, [0.5], colors=DARK, linewidths=0.4)
        return
    f = _of_two(f)
    style: Record = {"levels": 14, "cmap": "cividis"}
    if K:
        limit = min(3.0, float(np.abs(f).max()) or 1.0)
        # The colour of the first class is where f > 0.
        ends = [_light(COLOURS[1], 0.5), "white", _light(COLOURS[0], 0.5)]
        cmap = mpl.colors.LinearSegmentedColormap.from_list("classes", ends)
        levels = np.linspace(-limit, limit, 13)
        style = {"levels": levels, "cmap": cmap, "extend": "both"}
        axis.contour(*sides, f, [-1, 0, 1], colors=DARK, linestyles=["--", "-", "--"])
    label = "f (line: 0, dashed: margin)" if K else "prediction"
    figure.colorbar(axis.contourf(*sides, f, **style, zorder=0), ax=axis, label=label)


def _light(colour: str, share: float) -> Any:
    """Return a mixture of this share of a colour with white, which hides the page below it."""
    return 1 - share * (1 - np.array(mpl.colors.to_rgb(colour)))


def _draw_support_vectors(axis: Any, model: Any, origin: np.ndarray, directions: Any) -> None:
    """Draw rings around the support vectors of a kernel machine."""
    if not hasattr(model, "Z"):
        return
    count = model.Z.shape[0]
    some = _some(count)
    Z = np.zeros((len(some), model.width))
    Z[:, np.asarray(model.features) - model.index_base] = model.Z[some].toarray()
    if model.scaling is not None and model.scaling.factor is not None:
        seen = model.seen - model.index_base
        Z[:, seen] /= np.where(model.scaling.factor == 0, 1.0, model.scaling.factor)
        Z[:, seen] += 0.0 if model.scaling.shift is None else model.scaling.shift
    drawn = f" ({len(Z):,} drawn)" if len(Z) < count else ""
    ring = {"facecolors": "none", "edgecolors": GREY, "linewidths": 0.7, "s": 24}
    places = ((Z - origin) @ directions.T).T
    axis.scatter(*places, label=f"{count:,} support vectors{drawn}", **ring)


# ---- explanations ------------------------------------------------------------------------------


@in_style
def explain(data: Any, model: Any, row: int = 1, rows: int = 100) -> Figure:
    """Draw the Shapley values of one row, and their mean size over a sample, as bars.

    Parameters
    ----------
    data : str, sequence of str, or tuple (X, y)
        Rows: names of files, or arrays.
    model : str, FittedModel or estimator
        A model with the RBF kernel. Of several decision values the first one is explained.
    row : int, default=1
        Number of the row, from 1.
    rows : int, default=100
        Number of rows of the sample.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    ModelError
        If the model has another kernel.
    ParameterError
        If the data have fewer rows than `row`, or if `rows` is below 1.
    ContentError, DataError
        If the rows are unusable.
    """
    from randsvm.models.kernel_model import KernelModel
    from randsvm.models.shapley import contributions

    kind = _fitted(model).model
    if not isinstance(kind, KernelModel) or kind.kernel.name != "rbf":
        raise ModelError("expected a model with the RBF kernel, found another")
    X, columns, base = CsrMatrix.from_scipy(_rows(data, model).X), kind.columns, kind.index_base
    X, m = X.with_columns(X.indices + base, FEATURES), X.shape[0]
    if not 1 <= row <= m:
        raise ParameterError(f"the data have rows 1 to {m:,}, no row {row:,}")
    if rows < 1:
        raise ParameterError(f"expected a sample of 1 row or more, found {rows}")
    beta = kind.coefficients
    names = [f"feature {j + base}" for j in range(kind.width)]
    names = names if columns is None else [shortened(c.name) for c in columns.columns]

    def values(number: int) -> np.ndarray:
        phi = np.zeros(len(names))
        numbers, found = contributions(kind, beta, X[number : number + 1], columns)
        phi[numbers if columns is not None else numbers - base] = found[0]
        return phi

    one, sample = values(row - 1), np.random.default_rng(0).permutation(m)[:rows]
    sizes = np.mean([np.abs(values(number)) for number in sample], axis=0)
    empty = float(kind.b[0] + beta[:, 0].sum())
    shown = min(MAX_BARS, max(int(np.count_nonzero(sizes)), 1))
    figure, axes = panels(2, height=1.5 + 0.23 * shown)
    for axis, bars in zip(axes, (one, sizes), strict=True):
        order = np.argsort(-np.abs(bars), kind="stable")[:shown]
        axis.barh(range(shown), bars[order], color=[COLOURS[int(bars[j] < 0)] for j in order])
        axis.set_yticks(range(shown), [names[j] for j in order])
        axis.invert_yaxis()
    axes[0].axvline(0, color=INK, linewidth=0.8)
    title = f"Row {row:,}: f = {empty + one.sum():.4g}\n= base value {empty:.4g} + bars"
    meaning = f" (f > 0: {shortened(kind.labels[0], 12)})" if kind.labels else ""
    _label(axes[0], f"Shapley value: change of f{meaning}", "", title)
    _label(axes[1], "mean of |Shapley value|", "", f"Mean over {len(sample):,} rows\n")
    return figure
