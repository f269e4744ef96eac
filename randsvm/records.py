"""Dataclasses and named tuples that are quick to define.

Most of the time of a small run goes into imports, and a quarter of it went into
`dataclasses.dataclass`, which compiles up to six methods for each class (0.4 ms in Python 3.11).
The methods below are ordinary functions that read the fields of their class.
`dataclasses.fields`, `replace` and `asdict` work as with any dataclass.

`typing.NamedTuple` compiles each annotation and the __new__ of each class; here annotations stay
text, and all classes share their methods.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter, itemgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
    from inspect import Signature
    from typing import NamedTuple as NamedTuple
else:
    import dataclasses

    class _NamedTupleType(type):
        """Makes a subclass of tuple of a class with annotations."""

        def __new__(cls, name, bases, namespace):
            names = tuple(namespace["__annotations__"])
            defaults = {field: namespace.pop(field) for field in names if field in namespace}
            getters = {
                field: property(itemgetter(place), doc=f"Alias for field number {place}")
                for place, field in enumerate(names)
            }
            own = {
                "__slots__": (),
                "__match_args__": names,
                "__signature__": _LateSignature(),
                "_fields": names,
                "_field_defaults": defaults,
            }
            return type(name, (tuple,), {**_TUPLE_METHODS, **own, **getters, **namespace})

    class NamedTuple:
        """The base of named tuples, as `typing.NamedTuple`."""

        def __mro_entries__(self, bases):
            return (type.__new__(_NamedTupleType, "NamedTuple", (), {}),)

    NamedTuple = NamedTuple()

    def dataclass(cls=None, /, *, frozen=False, kw_only=False, eq=True, repr=True):
        """Make a class a dataclass, as `dataclasses.dataclass` does with the same arguments."""
        if cls is None:
            return lambda one: dataclass(one, frozen=frozen, kw_only=kw_only, eq=eq, repr=repr)
        # dataclasses imports inspect to give its signature to a class without a docstring.
        cls.__doc__ = cls.__doc__ or cls.__name__
        # Without these methods and without frozen, dataclasses compiles nothing.
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        own = set(vars(cls))
        methods = {}
        if "__init__" not in own:
            methods |= {"__init__": _initializer(cls), "__signature__": _LateSignature()}
        if repr:
            methods["__repr__"] = _repr
        if eq:
            methods["__eq__"], hashed = _comparison(cls)
            # Python sets __hash__ = None in a class that defines __eq__.
            if vars(cls).get("__hash__") is None:
                own.discard("__hash__")
                methods["__hash__"] = hashed if frozen else None
        if frozen:
            methods |= {"__setattr__": _set, "__delattr__": _delete}
        for name, method in methods.items():
            if name not in own:
                setattr(cls, name, method)
        return cls


def _new_tuple(cls: Any, /, *values: Any, **given: Any) -> Any:
    """Return a named tuple: the __new__ of its class."""
    names, defaults = cls._fields, cls._field_defaults
    if given or len(values) != len(names):
        if len(values) > len(names):
            raise TypeError(f"{cls.__qualname__} takes at most {len(names)} arguments")
        complete = list(values)
        for name in names[len(values) :]:
            if name not in given and name not in defaults:
                raise TypeError(f"{cls.__qualname__} needs the argument {name!r}")
            complete.append(given.pop(name) if name in given else defaults[name])
        if given:
            name = next(iter(given))
            found = "got two values of" if name in names else "has no argument"
            raise TypeError(f"{cls.__qualname__} {found} {name!r}")
        values = tuple(complete)
    return tuple.__new__(cls, values)


def _make_tuple(cls: Any, values: Any) -> Any:
    """Return a named tuple from the values of all fields, in order."""
    found = tuple.__new__(cls, values)
    if len(found) != len(cls._fields):
        raise TypeError(f"{cls.__qualname__} needs {len(cls._fields)} values, found {len(found)}")
    return found


def _replace_values(self: Any, /, **given: Any) -> Any:
    """Return a copy of the tuple with new values of some fields."""
    found = tuple.__new__(type(self), map(given.pop, self._fields, self))
    if given:
        raise TypeError(f"{type(self).__qualname__} has no field {next(iter(given))!r}")
    return found


def _tuple_as_dict(self: Any) -> dict[str, Any]:
    """Return the value of each field by its name."""
    return dict(zip(self._fields, self, strict=True))


def _tuple_repr(self: Any) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{type(self).__name__}({shown})"


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(self)


_TUPLE_METHODS = {
    "__new__": _new_tuple,
    "__repr__": _tuple_repr,
    "__getnewargs__": _values,
    "_make": classmethod(_make_tuple),
    "_replace": _replace_values,
    "__replace__": _replace_values,
    "_asdict": _tuple_as_dict,
}


def _initializer(cls: Any) -> Callable[..., None]:
    """Return the __init__ of a dataclass."""
    plan = [(f.name, f.init, f.default, f.default_factory) for f in fields(cls)]
    positional = [f.name for f in fields(cls) if f.init and not f.kw_only]
    has_post_init = hasattr(cls, "__post_init__")

    def __init__(self: Any, *values: Any, **given: Any) -> None:  # noqa: N807
        if len(values) > len(positional):
            raise TypeError(
                f"{cls.__qualname__} takes at most {len(positional)} positional arguments"
            )
        for name, value in zip(positional, values, strict=False):
            if name in given:
                raise TypeError(f"{cls.__qualname__} got two values of {name!r}")
            given[name] = value
        # __setattr__ of a frozen class would refuse.
        attributes = self.__dict__
        for name, init, default, factory in plan:
            if init and name in given:
                attributes[name] = given.pop(name)
            elif factory is not MISSING:
                attributes[name] = factory()
            elif default is not MISSING:
                attributes[name] = default
            elif init:
                raise TypeError(f"{cls.__qualname__} needs the argument {name!r}")
        if given:
            raise TypeError(f"{cls.__qualname__} has no argument {next(iter(given))!r}")
        if has_post_init:
            self.__post_init__()

    return __init__


class _LateSignature:
    """A descriptor that makes the signature of a dataclass or named tuple at its first use."""

    def __get__(self, instance: object, owner: Any) -> Signature:
        if instance is not None or vars(owner).get("__signature__") is not self:
            raise AttributeError("__signature__")
        from inspect import Parameter, Signature

        either, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
        if issubclass(owner, tuple):
            defaults = dict.fromkeys(owner._fields, Parameter.empty) | owner._field_defaults
            types = owner.__annotations__
            return Signature(
                [Parameter(name, either, default=defaults[name], annotation=types[name])
                 for name in owner._fields]
            )  # fmt: skip
        parameters = []
        for f in fields(owner):
            kind = by_name if f.kw_only else either
            stated = [one for one in (f.default, f.default_factory) if one is not MISSING]
            default = stated[0] if stated else Parameter.empty
            if f.init:
                parameters.append(Parameter(f.name, kind, default=default, annotation=f.type))
        return Signature(sorted(parameters, key=lambda one: one.kind), return_annotation=None)


def _comparison(cls: Any) -> tuple[Callable[[Any, object], bool], Callable[[Any], int]]:
    """Return the __eq__ and the __hash__ of a dataclass."""
    names = [f.name for f in fields(cls) if f.compare]
    # With one name, attrgetter would return the value itself, not a tuple as the comparison of
    # `dataclasses` does: two equal arrays would then compare as an array.
    compared: Callable[[Any], Any] = (
        attrgetter(*names)
        if len(names) > 1
        else lambda record: tuple(getattr(record, name) for name in names)
    )

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(compared(self))

    return __eq__, __hash__


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_change(record: Any, name: str) -> None:
    """Raise FrozenInstanceError; as in `dataclasses`, a subclass that is no dataclass itself may
    change attributes that are not fields."""
    if "__dataclass_fields__" in vars(type(record)) or name in record.__dataclass_fields__:
        raise FrozenInstanceError(f"{type(record).__qualname__} is frozen: {name!r} cannot change")


def _set(self: Any, name: str, value: object) -> None:
    _refuse_change(self, name)
    object.__setattr__(self, name, value)


def _delete(self: Any, name: str) -> None:
    _refuse_change(self, name)
    object.__delattr__(self, name)
