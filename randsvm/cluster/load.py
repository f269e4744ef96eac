"""D on a cluster: the first pass over a file, by its workers."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from randsvm.cluster import worker
from randsvm.cluster.crew import Crew
from randsvm.cluster.first_pass import first_pass
from randsvm.cluster.home import ClusterHome
from randsvm.cluster.ranges import Text, text_of
from randsvm.cluster.worker import Regrouping, Rows
from randsvm.data.chunks import RamStore, RawChunk, joined
from randsvm.data.dataset import Dataset
from randsvm.data.home import OneThread, Shard
from randsvm.data.reading import ParseOptions, digest_of, hexdigest
from randsvm.errors import ParameterError
from randsvm.events import Progress, tell
from randsvm.parameters.run import Resources


class ClusterDataset(Dataset):
    """D whose shards live on workers; the master has what it has learnt of them."""

    home: ClusterHome

    def __reduce__(self) -> tuple[Any, ...]:
        return self.home.pickled(self)

    def regrouped(
        self,
        made: Callable[[Dataset, int], RawChunk],
        sizes: np.ndarray,
        counts: np.ndarray,
        limit: int,
        folder: str | None,
    ) -> Dataset:
        """See Dataset; the workers put them together, each those that it is asked for."""
        view, home = super().regrouped(made, sizes, counts, limit, folder), self.home
        grouping = Regrouping(home.rows, pickle.dumps(self), made, sizes, counts)
        rows = Rows(uuid.uuid4().hex, grouping, home.rows.memory, home.rows.folder)
        return view._view(home=ClusterHome(home.crew, rows))

    def of_chunks(self, numbers: Sequence[int]) -> Dataset:
        """See Dataset."""
        return super().of_chunks(numbers)._view(home=self.home.of_chunks(numbers))

    def in_one_thread(self) -> Dataset:
        """See Dataset: its rows come here."""

        def of(shard: Shard) -> RawChunk:
            # A copy: reports are sent when all are made, and a file's buffer has but the last.
            return joined([self.raw(shard)[0]])

        store = RamStore()
        for chunk in self.map(of):
            store.append(chunk)
        return self.stored_in(store)._view(home=OneThread())

    def _view(self, **own: Any) -> Dataset:
        view = super()._view(**own)
        if not isinstance(view.home, ClusterHome):
            # Its rows are here: it is like any other.
            view.__class__ = Dataset
        return view

    def close(self) -> None:
        self.home.leave()
        self.home.crew.close()
        super().close()


def load(paths: Sequence[str], options: ParseOptions, resources: Resources) -> Dataset:
    """D, read by the workers of resources.cluster. Raises DataError for bad text (with
    file:line:column), InputError, TransferError, ClusterError, ParameterError."""
    if resources.cache is not None:
        raise ParameterError("--cache does not go with --cluster yet: workers keep what they parse")
    texts = [text_of(path, options) for path in paths]
    assert resources.cluster is not None
    crew, key = Crew(resources.cluster), uuid.uuid4().hex
    try:
        return _loaded(crew, key, texts, resources)
    except BaseException:
        crew.tell_all(worker.leave, key)
        crew.close()
        raise


def _loaded(crew: Crew, key: str, texts: Sequence[Text], resources: Resources) -> Dataset:
    source = first_pass(crew, key, texts)
    rows = Rows(key, source, resources.data_bytes, resources.tmpdir)
    # What this process may have to read of the text, once there are no workers, it keeps as well.
    store = source.store(resources.data_bytes, resources.tmpdir)
    D = ClusterDataset(source.summary, store, resources.workers)
    D.home = home = ClusterHome(crew, rows)

    def digested(shard: Shard) -> bytes:
        return digest_of(D.store.read(shard.number))

    digests = []
    for digest in home.map(digested, D.shards):
        digests.append(digest)
        tell(Progress("reading", int(D.starts[len(digests)]), D.n))
    D.summary = replace(D.summary, digest=hexdigest(digests, D.summary.names))
    return D
