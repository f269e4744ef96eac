"""Shards on the workers of a Dask cluster; see data/home.py for what is asked of them.

    text.py    a text file by byte ranges: what a range holds, and shards that are read again
    worker.py  what a worker does: plain tasks over what it has cached
    connection.py  a client of the scheduler, made whole or not at all
    worker_pool.py    the workers as they come and go, and tasks for them with a deadline each
    home.py    the home of the shards: who has which, and what to do where one was lost
    calls.py   works on all rows of small data sets, such as the cells of a grid search
    ranges.py  texts by ranges of bytes, and work on them in order
    first_pass.py  what the rows are, learnt by ranges;  load.py  D, out of all this

The master owns the truth, workers only cache: where one is lost, another reads its shards again and
makes the changes since the last restart once more, to the same bits. Only this room knows dask, and
nobody imports it without --cluster.
"""
