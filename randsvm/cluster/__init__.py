"""Scans of large data sets, fits of folds, sgd and predictions on the workers of a Dask cluster.

    actor.py       what a worker holds of a run, and the tasks that it does
    connection.py  the connection to a scheduler, which carries the messages; starts the processes
                   of local:N; compares versions and arithmetic of client and workers
    workers.py     the workers as the client sees them: which take part, what each holds and does
    executor.py    the executors of data sets, and calls for predictions

The client keeps all rows and solves the subproblems. Each worker has one actor (an object of Dask
that stays there) for a run. It holds chunks of rows and the states of their shards, such as their
running values. The client knows what each actor holds.

A scan is a query of these states:

    1. RemoteStates.query makes the task: changes of the states, and a function of each state.
    2. ClusterExecutor.assign chooses the shards of each worker.
    3. WorkerPool.reports sends each worker what its actor lacks, and then the task.
    4. Actor.handle does the task (query_states) and replies with reports and with what it holds.
    5. If a worker is lost, another one gets its chunks and does its part of the task.

Changes have numbers, and a state ignores those that it has seen. The client keeps the changes from
the last restart on, which make a lost state again from nothing: the first change of a restart does
not depend on what the state was before (ShardStates.restart). So the results have the same bits.

Only this package imports Dask, and only --cluster imports this package.
"""
