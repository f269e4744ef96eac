"""Works side by side in threads: what they tell, the calling thread tells; a signal ends them all.

Knows nothing of what is worked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from queue import SimpleQueue

from randsvm.events import HEARTBEAT, PATIENCE, Progress, Watch, emit


class BrokenOffError(Exception):
    """Raised by an event of a work that is no longer wanted."""


def work_off(
    works: Sequence[Callable[[Watch], None]],
    at_once: int,
    received: Callable[[object], None],
    stage: str,
    unit: str,
) -> None:
    """Call each work with the listener that it has to tell its events to, so many at a time.

    heard: called in this thread for each of these events, but for their progress. Raises what a
    work raises, and what this thread hears; all works have then ended, or will not change anything
    any more, unless one of them tells nothing for PATIENCE seconds.
    """
    events: SimpleQueue[object] = SimpleQueue()
    broken_off = False

    def listen(event: object) -> None:
        if broken_off:
            raise BrokenOffError
        if not isinstance(event, Progress):
            events.put(event)

    pool = ThreadPoolExecutor(at_once, thread_name_prefix="subtask")
    waiting: set[Future[None]] = {pool.submit(partial(work, listen)) for work in works}
    try:
        while waiting:
            ended, waiting = wait(waiting, HEARTBEAT, FIRST_COMPLETED)
            while not events.empty():
                received(events.get())
            for future in ended:
                future.result()
            emit(Progress(stage, len(works) - len(waiting), len(works), unit))
    finally:
        broken_off = True
        pool.shutdown(wait=False, cancel_futures=True)
        wait([future for future in waiting if not future.cancelled()], PATIENCE)
