"""Write one self-contained HTML page about a training run: for mail, or a folder of nightly jobs.

The page needs no network and no script. Its pictures are SVG in the page, in the colours of its
text, so that it is readable on dark and light screens and on paper.
"""

import html
import io
import platform
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from randsvm import files, plot
from randsvm.errors import ContentError, RandsvmError
from randsvm.models.fitted import load
from randsvm.plot import Record

FIELDS = "score", "standard_error", "rows", "dropped_after"
MAX_ROWS = 200  # combinations in the table of a search
LONGEST_TEXT = 500  # characters of a name or a label
# rem of the page for each inch of a picture: on narrow screens wide pictures scroll.
LEAST_SCALE = 3.2

CSS = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:auto;padding:1rem;
overflow-wrap:anywhere;background:#fff;color:#1d1f21}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem;border-bottom:1px solid #8886}
table{border-collapse:collapse}
td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
.scroll{overflow-x:auto}.scroll td,.scroll th{white-space:nowrap;text-align:right}
pre{white-space:pre-wrap;padding:.6rem;background:#8882}
figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto}
.bad{color:#c22;font-weight:bold}.scroll tr:nth-child(2){font-weight:bold}
@media(prefers-color-scheme:dark){body{background:#16181a;color:#e6e6e6}.bad{color:#f77}}
@media print{body{background:#fff;color:#000}h2{break-after:avoid}figure{break-inside:avoid}}
"""


def text(value: object) -> str:
    """Return a value as text of HTML; a long one is cut."""
    shown = str(value)
    cut = f"{shown[:LONGEST_TEXT]} … ({len(shown):,} characters)"
    return html.escape(shown if len(shown) <= LONGEST_TEXT else cut)


def training_page(
    records: Sequence[Record], model: str | None = None, data: str | None = None
) -> str:
    """Return the page of a training run.

    Parameters
    ----------
    records : sequence of dict
        Records of its log.
    model : str, optional
        Its model file; by default the one that the records name.
    data : str, optional
        Labelled rows that the model is judged by.

    Returns
    -------
    str
        HTML.

    Raises
    ------
    ContentError
        If the records are not those of a training run that ended.
    """
    end = records[-1] if records else {}
    if end.get("event") not in ("trained", "failed") or "algorithm" not in end:
        raise ContentError("expected the log of a training run that ended, found another")
    saved = end["event"] == "trained" and end["saved"]
    model = model or (end["model"] if saved else None)
    title = f"{end['command']} {end['algorithm']}: {_names(end['data'])}"
    sections = [_outcome(end, records), *_pictures(records, model, data), _search_table(records)]
    sections += [_description(end), _commands(end, model, data)]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += f"<title>{text(title)}</title><style>{CSS}</style>"
    body = f"<h1>{text(title)}</h1>\n" + "\n".join(filter(None, sections))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def check_page(path: str) -> None:
    """Raise OutputError if a page cannot be written, or would replace a file of another kind."""
    files.check_output(path, "a page", lambda head: head.startswith(b"<!DOCTYPE html>"))


def write_page(path: str, page: str) -> None:
    """Write a page; it replaces only a page. Raises OutputError or TransferError."""
    check_page(path)
    with files.create_output(path) as stream:
        stream.write(page.encode("utf-8", "backslashreplace"))


def _names(name: str | Sequence[str]) -> str:
    return name if isinstance(name, str) else ", ".join(name)


def _table(rows: Sequence[tuple[Any, ...]]) -> str:
    """Return a table. rows : a name, a value and its format, if it needs one; None has no row."""
    cells = [
        f"<tr><th>{text(name)}</th><td>{text(format(value, *form))}</td></tr>"
        for name, value, *form in rows
        if value is not None
    ]
    return f"<table>{''.join(cells)}</table>"


def _outcome(end: Record, records: Sequence[Record]) -> str:
    """Return how the training ended, and what was missed."""
    missed = []
    if end["event"] == "failed":
        missed.append(f"failed: {end['problem']}")
    elif not end["saved"]:
        missed.append("the model was not written")
    asked, gap = end.get("gap_asked"), end.get("gap")
    if asked is not None and (gap is None or gap > asked):
        missed.append(f"the gap of {asked:g} that was asked for was not reached")
    missed += [one["problem"] for one in records if one["event"] == "unwritten"]
    notes = [one["text"] for one in records if one["event"] == "notice"]
    rows = [
        ("ended", end.get("stopped")),
        ("exit code", end["exit_code"]),
        ("gap", gap, ".4%"),
        ("P, primal objective", end.get("primal"), ".6g"),
        ("D, dual objective", end.get("dual"), ".6g"),
        ("J = P/(C n)", end.get("J"), ".6g"),
        ("support vectors", end.get("support_vectors"), ","),
        ("of these at C", end.get("bounded"), ","),
        ("violators", end.get("violators"), ","),
        ("features with a weight", end.get("nonzero_weights"), ","),
        ("time", f"{end['seconds']:.2f} s"),
        ("peak memory", f"{end['peak_memory'] / 1e6:,.0f} MB"),
    ]
    bad = "".join(f'<p class="bad">{text(one)}</p>' for one in missed)
    good = "".join(f"<p>note: {text(one)}</p>" for one in notes)
    return f"<h2>How it ended</h2>{bad}{_table(rows)}{good}"


def _pictures(records: Sequence[Record], model: str | None, data: str | None) -> list[str]:
    """Return the sections with the pictures that the records, the model and the data allow."""
    kinds = [one["event"] for one in records]
    drawn: list[tuple[str, Callable[[], Any]]] = []
    if kinds.count("iteration") + kinds.count("epoch") > 1:
        drawn.append(("Convergence", lambda: plot.convergence(records)))
    if kinds.count("point") > 1:
        drawn.append(("Path", lambda: plot.path(records)))
    if kinds.count("tried") > 1:
        drawn.append(("Search", lambda: plot.search(records)))
    if model is not None and data is not None:
        drawn.append((f"Scores on {data}", lambda: plot.scores(data, model)))
        if load(model).model.width == 2:
            drawn.append(("Decision values", lambda: plot.boundary(data, model)))
    sections = []
    for title, draw in drawn:
        try:
            picture = svg(draw())
        except RandsvmError as error:
            picture = f"<p>{text(error)}</p>"
        sections.append(f"<h2>{text(title)}</h2><figure>{picture}</figure>")
    return sections


def svg(figure: Any) -> str:
    """Return a figure as an element of HTML whose ink has the colour of the text around it."""
    stream = io.StringIO()
    plot.write(figure, stream, format="svg", transparent=True, metadata={"Date": None})
    drawn = stream.getvalue().replace(plot.INK, "currentColor").partition("<svg ")[2]
    return f'<svg style="min-width:{LEAST_SCALE * figure.get_figwidth():.0f}rem" {drawn}'


def _search_table(records: Sequence[Record]) -> str:
    if sum(one["event"] == "tried" for one in records) < 2:
        return ""
    tried, best = plot.trials(records)
    tried.sort(key=lambda t: (t is not best, t["dropped_after"] is not None, -plot.quality(t)))
    head = [*best["values"], best["score_name"], "standard error", "rows", "dropped after folds"]
    lines = ["".join(f"<th>{text(name)}</th>" for name in head)]
    for one in tried[:MAX_ROWS]:
        values = [*one["values"].values(), *(one[field] for field in FIELDS)]
        lines.append("".join(f"<td>{'' if v is None else f'{v:.6g}'}</td>" for v in values))
    rows = "".join(f"<tr>{line}</tr>" for line in lines)
    rest = f"<p>and {len(tried) - MAX_ROWS:,} more</p>" if len(tried) > MAX_ROWS else ""
    return f'<h2>Combinations, best first</h2><div class="scroll"><table>{rows}</table></div>{rest}'


def _description(end: Record) -> str:
    """Return what ran, on which data and where."""
    sizes = " / ".join(f"{end[size]:,}" for size in ("n", "d", "nnz") if end.get(size))
    rows = [
        ("data", _names(end["data"])),
        ("rows, features, nonzeros", sizes),
        ("digest of the data", end.get("digest")),
        ("model", end["model"]),
        ("certificate", end.get("certificate")),
        ("randsvm", end["version"]),
        ("Python, system", f"{platform.python_version()}, {platform.platform()}"),
        ("host", end["host"]),
        ("time in UTC", end["time"]),
        ("run", end["run"]),
    ]
    return f"<h2>What ran</h2>{_table(rows)}"


def _commands(end: Record, model: str | None, data: str | None) -> str:
    """Return the commands that repeat the training and its prediction."""
    training = [end["data"]] if isinstance(end["data"], str) else end["data"]
    words = shlex.join([*training, end["model"]])
    lines = [f"{end['command']} {end['algorithm']} {end.get('parameters', '')} {words}"]
    if model is not None and data is not None:
        words = shlex.join([data, model, f"{model}.predictions"])
        lines.append(f"randsvm-predict --metrics {words}")
    return f"<h2>To repeat it</h2><pre>{html.escape(chr(10).join(lines))}</pre>"
