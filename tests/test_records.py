"""Test that quick dataclasses behave as those of the standard library."""

from __future__ import annotations

import abc
import copy
import dataclasses
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest

from randsvm import records
from randsvm.events import Notice
from randsvm.kernels.kernel import Kernel

T = TypeVar("T")
Maker = Callable[..., Any]


def point(dataclass: Maker) -> Any:
    @dataclass(frozen=True)
    class Point(Generic[T]):
        """A point."""

        x: float
        names: list[str] = dataclasses.field(default_factory=list, compare=False)
        y: float = 2.0
        hidden: int = dataclasses.field(default=0, repr=False)
        total: float = dataclasses.field(init=False, default=0.0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

    return Point


def named(dataclass: Maker) -> Any:
    """Return a class that inherits fields, with keyword-only ones and a method of its own."""

    @dataclass(kw_only=True)
    class Named(abc.ABC):
        """A base class."""

        name: str
        size: int = 1

        def __repr__(self) -> str:
            return f"<{self.name}>"

    @dataclass
    class Child(Named):
        """A class with positional fields after keyword-only ones."""

        first: int
        second: int = 7

    return Child


def alone(dataclass: Maker) -> Any:
    @dataclass(frozen=True)
    class Alone:
        """A class of one field, with an __eq__ of its own."""

        x: object

        def __eq__(self, other: object) -> bool:
            return True

    return Alone


CALLS: list[tuple[Callable[[Maker], Any], list[Any], dict[str, Any]]] = [
    (point, [1.0], {}),
    (point, [1.0, ["a"], 3.0, 4], {}),
    (point, [], {"y": 5.0, "x": 1.5}),
    (point, [], {}),
    (point, [1.0], {"x": 1.0}),
    (point, [1.0, [], 2.0, 3, 4.0], {}),
    (point, [1.0], {"total": 3.0}),
    (point, [1.0], {"z": 3.0}),
    (named, [3], {"name": "n"}),
    (named, [3, 4], {"name": "n"}),
    (named, [3, 4, "n"], {}),
    (named, [3], {}),
    (alone, [1], {}),
]


def behaviour(make: Callable[[Maker], Any], dataclass: Maker, given: Any, named: Any) -> Any:
    """Return what a caller sees of a dataclass and of an object of it."""
    cls = make(dataclass)
    try:
        found = cls(*given, **named)
    except TypeError:
        return TypeError
    other = dataclasses.replace(found, **{next(iter(vars(found))): 9})

    def tries(act: Callable[[], object]) -> object:
        try:
            return act()
        except (TypeError, AttributeError) as error:
            return type(error)

    plain = type("Plain", (cls,), {})(*given, **named)  # a subclass that is no dataclass
    return (
        list(vars(found).items()),
        dataclasses.asdict(found),
        [(f.name, f.default, f.type) for f in dataclasses.fields(cls)],
        inspect.signature(cls).return_annotation in (None, "None"),
        [
            (one.name, one.kind, one.default is one.empty, one.annotation)
            for one in inspect.signature(cls).parameters.values()
        ],
        inspect.getdoc(cls),
        cls.__match_args__,
        repr(found),
        repr(other),
        found == cls(*given, **named),
        found == other,
        found == plain,
        found == vars(found),
        tries(lambda: hash(found) == hash(cls(*given, **named))),
        tries(lambda: len({found, copy.deepcopy(found)})),
        tries(lambda: setattr(copy.copy(found), next(iter(vars(found))), 8)),
        tries(lambda: setattr(copy.copy(found), "unknown", 8)),
        tries(lambda: delattr(copy.copy(found), next(iter(vars(found))))),
        tries(lambda: setattr(plain, "unknown", 8)),
        tries(lambda: setattr(plain, next(iter(vars(found))), 8)),
        repr(plain),
    )


@pytest.mark.parametrize(("make", "given", "named"), CALLS)
def test_a_dataclass_behaves_as_that_of_the_standard_library(
    make: Callable[[Maker], Any], given: list[Any], named: dict[str, Any]
) -> None:
    expected = behaviour(make, dataclasses.dataclass, given, named)
    assert behaviour(make, records.dataclass, given, named) == expected


def test_a_field_of_one_array_is_compared_as_in_a_tuple() -> None:
    @records.dataclass(frozen=True)
    class Row:
        """A class of one array."""

        x: np.ndarray

    x = np.arange(3)
    assert Row(x) == Row(x)
    with pytest.raises(ValueError, match="ambiguous"):
        assert Row(x) == Row(x.copy())


def test_equality_and_repr_can_be_left_out() -> None:
    @records.dataclass(eq=False, repr=False)
    class Row:
        """A class compared by identity."""

        x: int

    row = Row(1)
    assert row != Row(1)
    assert row in {row}
    assert "object at" in repr(row)


def test_a_record_that_contains_itself_has_a_repr() -> None:
    @records.dataclass
    class Node:
        """A node."""

        own: list[Any]

    node = Node([])
    node.own.append(node)
    assert repr(node).endswith("Node(own=[...])")


def test_pickles_and_copies_are_equal() -> None:
    kernel = Kernel("rbf", gamma=0.5)
    for copied in (pickle.loads(pickle.dumps(kernel)), copy.copy(kernel), copy.deepcopy(kernel)):
        assert (copied, hash(copied)) == (kernel, hash(kernel))


def test_a_named_tuple_behaves_as_that_of_the_standard_library() -> None:
    def made(base: Any) -> Any:
        class Span(base):  # type: ignore[misc]
            """A span."""

            first: int
            last: int = 2
            step: int = 1

            @property
            def count(self) -> int:
                return self.last - self.first

            def __str__(self) -> str:
                return f"{self.first} to {self.last}"

        return Span

    def behaviour(Span: Any) -> Any:
        span = Span(1, last=4)
        with pytest.raises(TypeError):
            Span()
        for values, given in [
            ((1,), {"unknown": 2}),
            ((1, 2, 3, 4), {}),
            ((1, 2), {"first": 2}),
            ((), {"last": 2}),
        ]:
            with pytest.raises(TypeError):
                Span(*values, **given)
        with pytest.raises(TypeError):
            Span._make([1, 2])
        with pytest.raises((TypeError, ValueError)):  # ValueError before Python 3.13
            span._replace(unknown=2)
        with pytest.raises(AttributeError):
            span.unknown = 2
        with pytest.raises(AttributeError):
            span.first = 2
        return (
            span == (1, 4, 1),
            (span.count, str(span), repr(span), hash(span)),
            (span.first, span.last, span.step, [*span], span[1:]),
            (Span(step=5, first=4), Span._make([7, 8, 9]), copy.copy(span), copy.deepcopy(span)),
            [
                type(one) is Span
                for one in (span._replace(), Span._make([7, 8, 9]), copy.copy(span))
            ],
            (span._fields, span._field_defaults, span._asdict(), span._replace(first=2)),
            [(one.name, one.default) for one in inspect.signature(Span).parameters.values()],
            typing.get_type_hints(Span),
            (inspect.getdoc(Span), Span.__name__, Span.__qualname__, Span.__module__),
            Span.__mro__[1:],
            list(Span.__annotations__),
            Span.__match_args__,
        )

    assert behaviour(made(records.NamedTuple)) == behaviour(made(NamedTuple))


def test_named_tuples_are_pickled() -> None:
    notice = Notice("a sentence")
    assert pickle.loads(pickle.dumps(notice)) == notice
    assert type(pickle.loads(pickle.dumps(notice))) is Notice
