"""D on a cluster: the first pass over a file, by its workers."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from randsvm.cluster.crew import Crew
from randsvm.cluster.first_pass import first_pass, text_of
from randsvm.cluster.home import ClusterHome
from randsvm.cluster.text import Text, TextStore
from randsvm.cluster.worker import Rows
from randsvm.data.dataset import Dataset
from randsvm.data.home import Shard
from randsvm.data.reading import ParseOptions, digest_of, hexdigest
from randsvm.errors import ParameterError
from randsvm.events import Progress, tell
from randsvm.parameters.run import Resources


class ClusterDataset(Dataset):
    """D whose shards live on workers; the master has what it has learnt of them."""

    home: ClusterHome

    def __reduce__(self) -> tuple[Any, ...]:
        return self.home.pickled(self)

    def close(self) -> None:
        self.home.close()
        super().close()


def load(path: str, options: ParseOptions, resources: Resources) -> Dataset:
    """D, read by the workers of resources.cluster. Raises DataError for bad text (with
    file:line:column), InputError, TransferError, ClusterError, ParameterError."""
    if resources.cache is not None:
        raise ParameterError("--cache does not go with --cluster yet: workers keep what they parse")
    text = text_of(path, options)
    assert resources.cluster is not None
    crew = Crew(resources.cluster)
    try:
        return _loaded(crew, text, resources)
    except BaseException:
        crew.close()
        raise


def _loaded(crew: Crew, text: Text, resources: Resources) -> Dataset:
    key = uuid.uuid4().hex
    source = first_pass(crew, key, text)
    rows = Rows(key, source, resources.data_bytes, resources.tmpdir)
    D = ClusterDataset(source.summary, TextStore(source, 0, None), 1)
    D.home = home = ClusterHome(crew, rows)

    def digested(shard: Shard) -> bytes:
        return digest_of(D.store.read(shard.number))

    digests = []
    for digest in home.map(digested, D.shards):
        digests.append(digest)
        tell(Progress("reading", int(D.starts[len(digests)]), D.n))
    D.summary = replace(D.summary, digest=hexdigest(digests, D.summary.names))
    return D
