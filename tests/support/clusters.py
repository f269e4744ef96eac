"""Connections and workers: parts of randsvm.cluster that tests start and end."""

from randsvm.cluster import connection, executor
from randsvm.cluster.connection import Connection
from randsvm.cluster.executor import ClusterExecutor, calls_on
from randsvm.cluster.workers import WorkerPool
