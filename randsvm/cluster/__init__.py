"""Scans of large data sets, fits of folds, sgd and predictions on the workers of a Dask cluster.

    actor.py       what a worker holds of a run, and the tasks that it does
    connection.py  the connection to a scheduler, which carries the messages; starts the processes
                   of local:N; compares versions and arithmetic of client and workers
    workers.py     the workers as the client sees them: which take part, what each holds and does
    executor.py    the executors of data sets, and calls for predictions

The client keeps all rows and solves the subproblems. Each worker has one actor (an object of Dask
that stays there) for a run. It holds chunks of rows and the states of their shards, and the client
knows what each actor holds. If a worker is
lost, the client sends its chunks and all changes since the last restart to another one. The results
have the same bits. Only this package imports Dask, and only --cluster imports this package.
"""
