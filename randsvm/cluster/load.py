"""D on a cluster: the first pass over a file, by its workers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from randsvm.cluster import worker
from randsvm.cluster.cluster_executor import ClusterDataset, ClusterExecutor
from randsvm.cluster.first_pass import first_pass
from randsvm.cluster.ranges import Text, text_of
from randsvm.cluster.worker import Rows
from randsvm.cluster.worker_pool import WorkerPool
from randsvm.data.dataset import Dataset
from randsvm.data.reading import ParseOptions, digest_of, hexdigest
from randsvm.data.shard_executor import Shard
from randsvm.errors import ParameterError
from randsvm.events import Progress, emit
from randsvm.parameters.run import Resources


def load(paths: Sequence[str], options: ParseOptions, resources: Resources) -> Dataset:
    """D, read by the workers of resources.cluster. Raises DataError for bad text (with
    file:line:column), InputError, TransferError, ClusterError, ParameterError."""
    if resources.cache is not None:
        raise ParameterError("--cache does not go with --cluster yet: workers keep what they parse")
    texts = [text_of(path, options) for path in paths]
    assert resources.cluster is not None
    worker_pool, key = WorkerPool(resources.cluster), uuid.uuid4().hex
    worker_pool.key = key
    try:
        return _loaded(worker_pool, key, texts, resources)
    except BaseException:
        worker_pool.notify_all(worker.leave, key)
        worker_pool.close()
        raise


def _loaded(
    worker_pool: WorkerPool, key: str, texts: Sequence[Text], resources: Resources
) -> Dataset:
    source = first_pass(worker_pool, key, texts)
    rows = Rows(key, source, resources.data_bytes, resources.tmpdir)
    # What this process may have to read of the text, once there are no workers, it keeps as well.
    store = source.store(resources.data_bytes, resources.tmpdir)
    D = ClusterDataset(source.summary, store, resources.workers)
    D.executor = executor = ClusterExecutor(worker_pool, rows)

    def digested(shard: Shard) -> bytes:
        return digest_of(D.store.read(shard.number))

    digests = []
    for digest in executor.map(digested, D.shards):
        digests.append(digest)
        emit(Progress("reading", int(D.starts[len(digests)]), D.n))
    D.summary = replace(D.summary, digest=hexdigest(digests, D.summary.names))
    return D
