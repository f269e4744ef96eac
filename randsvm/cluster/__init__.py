"""Data sets on the workers of a Dask cluster.

    messages.py          what the client and the workers send each other
    worker.py            the functions that run on workers, and the cache of a worker
    connection.py        the connection to a scheduler; starts the processes of local:N; compares
                         versions and arithmetic of client and workers
    worker_pool.py       the workers that take part; tasks with deadlines
    text_file.py         a text file read by byte ranges, with checksums
    byte_ranges.py       read text files with all workers: training sets and predictions
    cluster_executor.py  the executors and data sets of a cluster

The client solves; workers hold shards of the rows and scan them. Workers hold nothing but caches:
if a worker is lost, another worker reads its shards again and applies the changes since the last
restart. The results have the same bits. Only this package imports Dask, and only --cluster imports
this package.
"""
