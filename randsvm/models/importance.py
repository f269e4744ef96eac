"""Permutation importance: how much worse a model predicts when one feature is shuffled.

The features of a column of text in a table are shuffled together, as the texts of that column.

The rows are read in blocks. Columns of as many features as fit a bound of memory are shuffled at
once, and each such group of features takes two passes over the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from randsvm import files
from randsvm.arrays import sorted_union
from randsvm.data.labels import LabelTable
from randsvm.data.svmlight import Block
from randsvm.errors import ContentError, ModelError, ParameterError
from randsvm.events import (
    FeatureImportance,
    Importances,
    Progress,
    Watch,
    emit,
    listening,
    silent,
)
from randsvm.models.load import check_is_not_model, load
from randsvm.models.metrics import Accuracy, Metric, RegressionErrors
from randsvm.models.model import Model, ModelRows
from randsvm.models.prediction import weights_at
from randsvm.models.row_files import RowFiles
from randsvm.parallel import ThreadPool
from randsvm.parameters.run import ImportanceParams, Resources
from randsvm.records import NamedTuple, dataclass

# Bytes of shuffled columns in memory.
COLUMN_BYTES = 1 << 28
VALUE_BYTES = 8


def importance(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: str | os.PathLike[str],
    *,
    params: ImportanceParams | None = None,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Importances:
    """Compute the permutation importance of each feature, or of each column of a table.

    Parameters
    ----------
    data : str, PathLike or sequence of these
        Files of labelled rows, preferably rows that the model was not trained with. The files are
        read several times.
    model : str or PathLike
        Model file of randsvm, LIBSVM or LIBLINEAR.
    params : ImportanceParams, optional
        Repetitions and seed.
    resources : Resources, optional
        Worker threads.
    watch : callable, default=silent
        Called with each event of `randsvm.events`.

    Returns
    -------
    Importances
        The importance of each feature, the largest first.

    Raises
    ------
    ContentError
        If no row is labelled.
    DataError, ModelError
        If the rows or the model are unusable.
    InputError, TransferError
        If a file cannot be opened or read.

    Notes
    -----
    The importance of a feature is the loss of accuracy, or of a regression the growth of the mean
    squared error, if its values are shuffled among the rows; it is the mean over repetitions. The
    shuffles depend on the seed, the feature and the repetition alone. The categories of a column of
    text are shuffled as one feature.

    References
    ----------
    Breiman, "Random Forests", Machine Learning 45, 2001; Fisher, Rudin, Dominici, "All Models are
    Wrong, but Many are Useful", JMLR 20, 2019.
    """
    began = time.perf_counter()
    params, resources = params or ImportanceParams(), resources or Resources()
    paths, model = files.inputs(data), os.fspath(model)
    for path in paths:
        if files.is_stream(path):
            raise ParameterError("--importance reads TEST_FILE several times: name a file")
        check_is_not_model(path, "TEST_FILE MODEL_FILE")
    with listening(watch):
        loaded = load(model)
        if loaded.has_row_numbers:
            raise ModelError(
                f"{model}: expected a model of features, found one with a precomputed kernel"
            )
        with ThreadPool(resources.workers) as pool:
            rows = RowFiles(loaded, model, paths, params.format, no_header=params.no_header)
            scan = _Scan(rows, loaded, params, pool)
            found = scan.importances()
        outcome = Importances(
            model=model,
            rows=scan.base.labelled,
            score_name=scan.base.score_name,
            score=scan.base.score,
            repeats=params.repeats,
            seed=params.seed,
            features=found,
            seconds=time.perf_counter() - began,
        )
        emit(outcome)
        return outcome


class _Unit(NamedTuple):
    """A group of features that are shuffled together: one, or those of a column of text.

    start, width : the first feature index, and the number of features
    name : of the column of a table; is_text : whether its features are categories
    """

    start: int
    width: int = 1
    name: str | None = None
    is_text: bool = False


@dataclass(frozen=True)
class _Shuffled:
    """A unit and its shuffled columns, (repeats, n) float64.

    The columns have the values of the feature; for a column of text the number of the category,
    from 1, or 0 for none.
    """

    unit: _Unit
    columns: np.ndarray


class _Scan:
    """Passes over the files."""

    def __init__(
        self, rows: RowFiles, model: Model, params: ImportanceParams, pool: ThreadPool
    ) -> None:
        self.rows, self.model, self.params, self.pool = rows, model, params, pool
        self.base = self._metric()
        self.n = 0
        self.passes_done = 0
        features = np.empty(0, np.int32)
        for block, y in self._blocks():
            self.n += len(block)
            features = sorted_union(features, block.features)
            rows_of_block = self.model.rows(block.indptr, block.indices, block.values)
            self._count(self.base, y, rows_of_block, block.weights)
        if not self.base.labelled:
            name = files.joint_name(rows.paths)
            raise ContentError(f"{name}: expected labelled rows, found none")
        rows.report_other_texts()
        if rows.columns is not None:
            self.units = [
                _Unit(start, column.width, column.name, column.categories is not None)
                for column, start in rows.columns.with_starts(model.zero_based)
            ]
            return
        if not model.counts_unseen:
            seen = model.seen
            known = np.isin(features, model.features) if seen is None else seen.contains(features)
            features = features[known]
        self.units = [_Unit(feature) for feature in features.tolist()]

    def _metric(self) -> Metric:
        return RegressionErrors() if self.model.is_regression else Accuracy()

    def importances(self) -> list[FeatureImportance]:
        """Return the importance of each feature, the largest first."""
        repeats = self.params.repeats
        at_once = max(1, COLUMN_BYTES // (VALUE_BYTES * (repeats + 1) * self.n))
        losses = np.empty((len(self.units), repeats))
        for begin in range(0, len(self.units), at_once):
            group = self.units[begin : begin + at_once]
            losses[begin : begin + at_once] = self._losses(group)
        means = losses.mean(axis=1)
        errors = np.full(len(means), np.nan)
        if repeats > 1:
            errors = losses.std(axis=1, ddof=1) / repeats**0.5
        order = np.argsort(-means, kind="stable")
        return [
            FeatureImportance(
                self.units[k].start, float(means[k]), float(errors[k]), self.units[k].name
            )
            for k in order
        ]

    def _losses(self, group: Sequence[_Unit]) -> np.ndarray:
        """Return the loss of score of each unit and repetition, (units, repeats)."""
        shuffled = self._shuffled(group)
        metrics = [[self._metric() for _ in range(self.params.repeats)] for _ in group]
        begin = 0
        for block, y in self._blocks():
            rows = slice(begin, begin + len(block))
            work = partial(self._add, block, y, rows)
            for _ in self.pool.map_in_order(work, zip(shuffled, metrics, strict=True)):
                pass
            begin = rows.stop
            emit(Progress("shuffling features", begin, self.n, "row"))
        scores = np.array([[one.score for one in row] for row in metrics])
        return self.base.sign * (self.base.score - scores)

    def _shuffled(self, group: Sequence[_Unit]) -> list[_Shuffled]:
        """Return the shuffled columns of units."""
        columns = np.zeros((len(group), self.n))
        starts, widths = np.array([(unit.start, unit.width) for unit in group]).T
        is_text = np.array([unit.is_text for unit in group])
        begin = 0
        for block, _ in self._blocks():
            row = np.repeat(np.arange(len(block)), np.diff(block.indptr))
            at = np.maximum(np.searchsorted(starts, block.indices, "right") - 1, 0)
            category = block.indices - starts[at] + 1
            inside = (category > 0) & (category <= widths[at])
            values = np.where(is_text[at], category, block.values)
            columns[at[inside], begin + row[inside]] = values[inside]
            begin += len(block)
        return [
            _Shuffled(unit, self._shuffle(unit.start, column))
            for unit, column in zip(group, columns, strict=True)
        ]

    def _shuffle(self, feature: int, column: np.ndarray) -> np.ndarray:
        """Return the shuffles of a column, (repeats, n)."""
        found = np.empty((self.params.repeats, self.n))
        for repeat in range(self.params.repeats):
            random = np.random.default_rng([self.params.seed, feature, repeat])
            found[repeat] = random.permutation(column)
        return found

    def _add(
        self, block: Block, y: np.ndarray, rows: slice, work: tuple[_Shuffled, list[Metric]]
    ) -> None:
        """Add the rows of a block to the metric of each repetition."""
        shuffled, metrics = work
        start, width, _, is_text = shuffled.unit
        indptr, indices, values, places = with_entry(block, start, width)
        for column, metric in zip(shuffled.columns[:, rows], metrics, strict=True):
            values[places] = column > 0 if is_text else column
            if is_text:
                indices[places] = start + np.maximum(column - 1, 0)
            self._count(metric, y, self.model.rows(indptr, indices, values), block.weights)

    def _count(
        self, metric: Metric, y: np.ndarray, rows: ModelRows, weights: np.ndarray | None
    ) -> None:
        """Add rows to a metric."""
        f = self.model.decision(rows, labels_only=True)
        metric.add(y, f, self.model.predicted(f), weights)

    def _blocks(self) -> Iterator[tuple[Block, np.ndarray]]:
        """Yield the blocks of a pass, with class indices or targets, (m,) float64."""
        model, rows, paths = self.model, 0, self.rows.paths
        table = LabelTable(
            paths[0], unlabelled=True, names=model.labels, any_label=model.is_one_class
        )
        row_weights = weights_at(self.params.row_weights, paths)
        for block in self.rows.blocks(begin_file=partial(setattr, table, "path")):
            if row_weights is not None:
                block = row_weights.of(block)
            rows += len(block)
            yield block, block.y if model.is_regression else table.classes(block)
        if row_weights is not None:
            row_weights.check_end()
        if self.passes_done and rows != self.n:
            name = files.joint_name(paths)
            raise ContentError(f"{name}: expected {self.n} rows again, found {rows}")
        self.passes_done += 1


def with_entry(
    block: Block, start: int, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr, indices and values in which every row has an entry, and its places, (m,).

    start, width : a row has at most one of these features, and gets the first of them if it has
    none
    """
    m = len(block)
    row = np.repeat(np.arange(m), np.diff(block.indptr))
    own = (block.indices >= start) & (block.indices < start + width)
    missing = np.ones(m, bool)
    missing[row[own]] = False
    rows = np.concatenate([row, np.flatnonzero(missing)])
    indices = np.concatenate([block.indices, np.full(missing.sum(), start, np.int32)])
    values = np.concatenate([block.values, np.zeros(missing.sum(), block.values.dtype)])
    order = np.lexsort((indices, rows)) if missing.any() else np.arange(len(rows))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=m))])
    indices = indices[order]
    inside = (indices >= start) & (indices < start + width)
    return indptr, indices, values[order], np.flatnonzero(inside)
