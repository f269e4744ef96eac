"""The home of shards that live on the workers of a cluster: who has which, and what to do where one
was lost.

Knows nothing of text, of states, or of dask.
"""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import cloudpickle

from randsvm.cluster import worker
from randsvm.cluster.crew import Crew
from randsvm.cluster.worker import OWN, Missing, Rows, Run, Visit
from randsvm.data.dataset import Dataset
from randsvm.data.home import Change, Log, Shard, States
from randsvm.errors import ClusterError

Report = TypeVar("Report")
State = TypeVar("State")

# So many answers more than there are shards may be lost one after the other: then it is no
# accident.
LOST = 50

# A message to some shards; whole: to those that have missed something.
Message = Callable[[bool], bytes]


class Owners:
    """Which worker has which shard: neighbours together, as many as it has threads for."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.of: dict[int, str] = {}

    def assigned(self, shards: Sequence[Shard]) -> dict[str, list[Shard]]:
        """The shards of each worker. Those of a worker that is gone, and of one that has far more
        than its share since others have come, move."""
        members = self.crew.members()
        if not members:
            return {}
        share = {name: -(-len(shards) * n // sum(members.values())) for name, n in members.items()}
        found: dict[str, list[Shard]] = {name: [] for name in members}
        homeless = []
        for shard in shards:
            owner = self.of.get(shard.number)
            # A worker keeps a little more than its share: to move a shard is to read it again.
            if owner in found and len(found[owner]) < share[owner] + share[owner] // 4:
                found[owner].append(shard)
            else:
                homeless.append(shard)
        for name in sorted(found, key=lambda name: len(found[name]) - share[name]):
            room = max(share[name] - len(found[name]), 0)
            found[name] += homeless[:room]
            homeless = homeless[room:]
        for name, some in found.items():
            some.sort(key=lambda shard: shard.number)
            self.of.update({shard.number: name for shard in some})
        return {name: some for name, some in found.items() if some}


class ClusterHome:
    """The workers of a crew; see Home. sent: bytes of messages so far."""

    def __init__(self, crew: Crew, rows: Rows) -> None:
        self.crew, self.key = crew, rows.key
        self.rows = pickle.dumps(rows)
        self.owners = Owners(crew)
        self.sent = 0

    def map(self, work: Callable[[Shard], Report], shards: Sequence[Shard]) -> Iterator[Report]:
        """See Home."""
        message = cloudpickle.dumps(work)
        for run in self.runs(worker.work, lambda whole: message, shards):
            yield run.report

    def states(self, make: Callable[[Shard], State], shards: Sequence[Shard]) -> States[State]:
        """See Home."""
        return _StatesThere(self, make, shards)

    def pickled(self, D: Dataset) -> tuple[Any, ...]:
        """A view of the rows as it is sent: what is its own, to be put on the rows there."""
        own = {name: getattr(D, name) for name in OWN}
        return worker.view, (self.key, own, D.chosen)

    def close(self) -> None:
        self.crew.tell_all(worker.leave, self.key)
        self.crew.close()

    def runs(
        self, task: Callable[..., Any], message: Message, shards: Sequence[Shard]
    ) -> Iterator[Run]:
        """What the shards report, in their order."""
        waiting: dict[int, Run] = {}
        following = {a.number: b.number for a, b in itertools.pairwise(shards)}
        number = shards[0].number if shards else None
        try:
            for run in self._answered(task, message, shards):
                waiting[run.first] = run
                while number in waiting:
                    run = waiting.pop(number)
                    yield run
                    number = following.get(run.last)
        finally:
            self.crew.drop()

    def _answered(
        self, task: Callable[..., Any], message: Message, shards: Sequence[Shard]
    ) -> Iterator[Run]:
        """The same as they come."""
        left, lost = {shard.number: shard for shard in shards}, 0
        ordinary = message(False)

        def give(name: str, some: list[Shard], text: bytes, rows: bytes | None = None) -> None:
            threads = self.crew.members().get(name, 1)
            self.sent += len(text) + (len(rows) if rows else 0)
            self.crew.give(name, (some, text), task, self.key, rows, text, some, threads)

        def assign(some: Sequence[Shard]) -> list[Shard]:
            """Give tasks for these; what nobody is there for."""
            found = self.owners.assigned(some)
            for name, theirs in found.items():
                give(name, theirs, ordinary)
            return [] if found else list(some)

        homeless = assign(shards)
        while left:
            if homeless:
                homeless = assign(homeless)
            answer = self.crew.answer()
            if answer is None:
                continue
            some, text = answer.token
            lost = lost + 1 if answer.lost or isinstance(answer.result, Missing) else 0
            if lost > LOST + len(shards):
                raise ClusterError("the workers lose what they are given again and again")
            if answer.lost:
                homeless += [shard for shard in some if shard.number in left]
            elif isinstance(answer.result, Missing):
                if answer.result.rows:
                    give(answer.worker, some, text, self.rows)
                else:
                    behind = set(answer.result.shards)
                    for these, again in ((True, message(True)), (False, ordinary)):
                        part = [shard for shard in some if (shard.number in behind) == these]
                        if part:
                            give(answer.worker, part, again)
            else:
                for run in answer.result:
                    # Who was slow may answer after all, when another has done it.
                    if run.first in left:
                        for covered in range(run.first, run.last + 1):
                            left.pop(covered, None)
                        yield run


class _StatesThere(Generic[State]):
    """See States. The changes since the last restart are kept, for states that are lost."""

    def __init__(
        self, home: ClusterHome, make: Callable[[Shard], State], shards: Sequence[Shard]
    ) -> None:
        self.home, self.shards = home, shards
        self.run, self.make = uuid.uuid4().hex, cloudpickle.dumps(make)
        self.log = Log[State]()
        # How many changes every state has seen.
        self.done = 0

    def change(self, *changes: Change[State]) -> None:
        self.log.changes += changes

    def restart(self, *changes: Change[State]) -> None:
        self.log.forget()
        self.change(*changes)

    @property
    def settled(self) -> bool:
        return self.done == self.log.end

    def visit(self, question: Callable[[State], Report]) -> Iterator[tuple[int, Report]]:
        log, end = self.log, self.log.end

        def message(whole: bool) -> bytes:
            first = log.first if whole else max(self.done, log.first)
            changes = log.since(first)
            whole = first == log.first
            return cloudpickle.dumps(Visit(self.run, self.make, first, whole, changes, question))

        for run in self.home.runs(worker.visit, message, self.shards):
            yield run.rows, run.report
        self.done = end

    def close(self) -> None:
        self.home.crew.tell_all(worker.forget, self.run)
