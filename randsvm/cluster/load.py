"""D on a cluster: the first pass over a file, by its workers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from randsvm.cluster import worker
from randsvm.cluster.cluster_executor import ClusterDataset, ClusterExecutor
from randsvm.cluster.first_pass import first_pass
from randsvm.cluster.ranges import text_of
from randsvm.cluster.text import Source
from randsvm.cluster.worker import Rows
from randsvm.cluster.worker_pool import WorkerPool
from randsvm.data.dataset import Dataset
from randsvm.data.reading import ParseOptions, RoundedError, digest_of, hexdigest
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
    worker_pool, key, precise = WorkerPool(resources.cluster), uuid.uuid4().hex, uuid.uuid4().hex
    worker_pool.key = key
    try:
        source = first_pass(worker_pool, key, texts)
        try:
            return _loaded(worker_pool, key, source, resources)
        except RoundedError:
            worker_pool.notify_all(worker.leave, key)
            worker_pool.key = precise
            source = replace(source, summary=replace(source.summary, precise=True))
            return _loaded(worker_pool, precise, source, resources)
    except BaseException:
        worker_pool.notify_all(worker.leave, key)
        worker_pool.notify_all(worker.leave, precise)
        worker_pool.close()
        raise


def _loaded(worker_pool: WorkerPool, key: str, source: Source, resources: Resources) -> Dataset:
    """Raises RoundedError where rounding shows in a chunk and the source is not `precise`."""
    rows = Rows(key, source, resources.data_bytes, resources.tmpdir)
    # What this process may have to read of the text, once there are no workers, it keeps as well.
    store = source.store(resources.data_bytes, resources.tmpdir)
    D = ClusterDataset(source.summary, store, resources.workers)
    D.executor = executor = ClusterExecutor(worker_pool, rows)

    def digested(shard: Shard) -> tuple[bytes, bool]:
        chunk = D.store.read(shard.number)
        return digest_of(chunk), chunk.precise

    digests = []
    for digest, precise in executor.map(digested, D.shards):
        if precise and not source.summary.precise:
            raise RoundedError
        digests.append(digest)
        emit(Progress("reading", int(D.starts[len(digests)]), D.n))
    D.summary = replace(D.summary, digest=hexdigest(digests, D.summary.names))
    return D
