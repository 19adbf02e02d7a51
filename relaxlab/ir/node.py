"""The node protocol shared by graph functions and loop functions.

A node is a frozen, slotted dataclass. Its children are whatever nodes its fields hold, directly
or inside tuples; rebuilding a node means rebuilding the fields that changed. There are no visitor
classes: `children` and `map_children` read the fields, and passes dispatch with `match`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from functools import cache
from operator import attrgetter, is_
from typing import Any, Literal, TypeVar, cast, dataclass_transform

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.display import Displayed
from relaxlab.ir.span import Span

T = TypeVar("T")


def hint_field(*, default: str | None, kw_only: Literal[True] = True) -> Any:
    """A `name_hint` field: how a definition was called. Never part of equality; printers use it.

    The default is passed in sight: type checkers do not see it otherwise.
    """
    return dataclasses.field(
        default=default, repr=False, compare=False, kw_only=kw_only, metadata={"hint": True}
    )


def binder(**kwargs: Any) -> Any:
    """A field whose variables or buffers are *defined* here (structural equality rebinds them)."""
    return dataclasses.field(metadata={"binder": True}, **kwargs)


@dataclass_transform(
    frozen_default=True, field_specifiers=(binder, hint_field, dataclasses.field)
)
def node(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, slotted dataclass that keeps the equality and the text (`repr`) that its
    base class defines."""
    made = dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)
    if not hasattr(made, "__post_init__"):
        _set_fields_directly(made)
    return made


def _set_fields_directly(cls: type[Any]) -> None:
    """Give a frozen, slotted dataclass an `__init__` that takes half the time: making nodes is a
    tenth of what compiling costs. That of `dataclasses` looks up how to set each field."""
    fields = [f.name for f in dataclasses.fields(cls)]
    by_name = [f.name for f in dataclasses.fields(cls) if f.kw_only]
    parameters = ", ".join(
        [n for n in fields if n not in by_name] + ["*"] * bool(by_name) + by_name
    )
    lines = "; ".join(f"_{name}(self, {name})" for name in fields) or "pass"
    setters = {f"_{name}": getattr(cls, name).__set__ for name in fields}
    exec(f"def __init__(self, {parameters}): {lines}", setters)
    init: Any = setters["__init__"]
    for name in ("__annotations__", "__defaults__", "__kwdefaults__", "__qualname__"):
        setattr(init, name, getattr(cls.__init__, name))
    cls.__init__ = init


class _Root:
    """The base of `Node`: a slot for its children, which is no field."""

    __slots__ = ("_children",)


@node
class Node(_Root, Displayed, Brief):
    """Base of every IR node. Nodes compare by identity unless a subclass says otherwise. `span` is
    where the node came from, and never part of equality."""

    span: Span | None = dataclasses.field(default=None, repr=False, compare=False, kw_only=True)


_set_children = _Root._children.__set__  # type: ignore[attr-defined]
N = TypeVar("N", bound=Node)


@cache
def field_names(cls: type) -> tuple[str, ...]:
    """Names of the fields that carry meaning, in definition order: all but span and name hint."""
    return tuple(
        f.name for f in dataclasses.fields(cls) if f.name != "span" and not f.metadata.get("hint")
    )


@cache
def binder_names(cls: type) -> frozenset[str]:
    """Names of the fields of `cls` that define variables or buffers."""
    return frozenset(f.name for f in dataclasses.fields(cls) if f.metadata.get("binder"))


class Attrs(Mapping[str, Any]):
    """Immutable, hashable attributes in name order; lists become tuples.

    >>> Attrs(axis=[1, 2], keepdims=False)
    Attrs(axis=(1, 2), keepdims=False)
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, Any] | None = None, /, **kwargs: Any) -> None:
        merged = {**(items or {}), **kwargs}
        self._items = {k: _freeze(merged[k]) for k in sorted(merged)}
        self._hash: int | None = None

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    # Faster than those that `Mapping` derives, which raise exceptions or call once per item.

    def get(self, key: str, default: Any = None) -> Any:
        return self._items.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def items(self) -> ItemsView[str, Any]:
        return self._items.items()

    def values(self) -> ValuesView[Any]:
        return self._items.values()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._items.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attrs) and self._items == other._items

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the hash, for which copies of variables have other values.
        return Attrs, (self._items,)

    def __repr__(self) -> str:
        return f"Attrs({', '.join(f'{k}={v!r}' for k, v in self._items.items())})"

    def with_(self, **kwargs: Any) -> Attrs:
        """A copy with some attributes set; a value of None removes the attribute."""
        merged = {**self._items, **kwargs}
        return Attrs({k: v for k, v in merged.items() if v is not None})


NO_ATTRS = Attrs()


def _freeze(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_freeze(v) for v in cast("Iterable[Any]", value))
    if isinstance(value, Mapping) and not isinstance(value, Attrs):
        return Attrs(cast("Mapping[str, Any]", value))
    return value


class Atom(Node):
    """A leaf that is identified by itself (a variable, a buffer): rewriting never looks inside
    it."""

    __slots__ = ()
    name: str

    def brief(self) -> str:
        return self.name


class _Readers(dict[type, Callable[[Any], tuple[Any, ...]]]):
    """Per class of nodes, a function that returns the values of some of its fields; made when the
    first node of the class is met, as walks read the fields of each node."""

    def __init__(self, names: Callable[[type], tuple[str, ...]]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, cls: type) -> Callable[[Any], tuple[Any, ...]]:
        name = cls.__name__
        if not dataclasses.is_dataclass(cls):
            raise TypeError(
                "expected a node: a module, a function, or a part of one such as a statement; "
                f"got an object of type {name}"
            )
        self[cls] = reader = _reader(self._names(cls))
        return reader


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda n: (get(n),)


@cache
def _all_names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


_PLAIN = frozenset(("str", "int", "float", "bool", "None"))


@cache
def _names_with_nodes(cls: type) -> tuple[str, ...]:
    """The fields of `field_names` that may hold nodes: those not declared as plain values."""
    declared = {f.name: str(f.type).split(" | ") for f in dataclasses.fields(cls)}
    return tuple(name for name in field_names(cls) if not _PLAIN.issuperset(declared[name]))


@cache
def _names_of_children(cls: type[Any]) -> tuple[str, ...]:
    return () if issubclass(cls, Atom) else _names_with_nodes(cls)


@cache
def _rebuilder(cls: type[Any]) -> Callable[[Any, list[Any]], Any]:
    """A function that returns a node as it is but for its fields that may hold nodes."""
    changed = _names_of_children(cls)
    values = {
        name: f"v[{changed.index(name)}]" if name in changed else f"n.{name}"
        for name in _all_names(cls)
    }
    return eval(
        f"lambda n, v: cls({', '.join(f'{k}={v}' for k, v in values.items())})", {"cls": cls}
    )


field_values = _Readers(field_names)
"""`field_values[type(n)](n)`: the values of the fields `field_names` of a node."""

values_with_nodes = _Readers(_names_with_nodes)
"""The same of those fields that may hold nodes, directly or in tuples and attributes."""

_all_values = _Readers(_all_names)
_values_of_children = _Readers(_names_of_children)


def children(n: Node) -> tuple[Node, ...]:
    """The direct child nodes of `n`, in field order (atoms such as variables included)."""
    try:
        # Kept, as passes and primitives walk the same nodes over and over: of 20 calls 19 end here.
        return n._children  # type: ignore[attr-defined]
    except AttributeError:
        pass
    found: list[Node] = []
    for value in _values_of_children[type(n)](n):
        if isinstance(value, Node):
            found.append(value)
        else:
            _collect(value, found)
    made = tuple(found)
    _set_children(n, made)
    return made


def _collect(value: Any, found: list[Node]) -> None:
    """Append the nodes in a field's value, itself no node, to `found`."""
    if isinstance(value, tuple):
        items: Iterable[Any] = value  # type: ignore[reportUnknownVariableType]
    elif type(value) is Attrs:  # faster than isinstance, which asks an abstract base class
        items = value.values()
    else:
        return
    for item in items:  # type: ignore[reportUnknownVariableType]
        if isinstance(item, Node):
            found.append(item)
        else:
            _collect(item, found)


def map_children(n: N, fn: Callable[[Node], Node]) -> N:
    """`n` with `fn` applied to each direct child; `n` itself when no child changed."""
    values = _values_of_children[type(n)](n)
    if not values:
        return n
    mapped: list[Any] = []
    for value in values:  # nodes are mapped here: each frame between costs nested programs depth
        if isinstance(value, Node):
            mapped.append(fn(value))
        elif isinstance(value, tuple):
            items: list[Any] = []
            for item in value:  # type: ignore[reportUnknownVariableType]
                items.append(fn(item) if isinstance(item, Node) else _map_value(item, fn))
            mapped.append(value if all(map(is_, items, value)) else tuple(items))  # type: ignore
        else:
            mapped.append(_map_value(value, fn))
    if all(map(is_, mapped, values)):
        return n
    return _rebuilder(type(n))(n, mapped)


def _map_value(value: Any, fn: Callable[[Node], Node]) -> Any:
    if isinstance(value, Node):
        return fn(value)
    if isinstance(value, tuple):
        items: list[Any] = [_map_value(item, fn) for item in value]  # type: ignore
        return value if all(map(is_, items, value)) else tuple(items)  # type: ignore
    if type(value) is Attrs and value:
        mapped = {k: _map_value(v, fn) for k, v in value.items()}
        return value if all(mapped[k] is value[k] for k in value) else Attrs(mapped)
    return value


def replace(n: N, **changes: Any) -> N:
    """A copy of `n` with the given fields changed; the span stays. Raises TypeError for a name that
    is no field."""
    values = dict(zip(_all_names(type(n)), _all_values[type(n)](n), strict=True))
    return type(n)(**(values | changes))


@names_arguments
def rewrite(n: Node, fn: Callable[[Node], Node | None]) -> Any:
    """Rewrite `n` bottom-up: `fn` returns the replacement of a rebuilt node, or None to keep it. A
    node that occurs several times is rewritten once.

    A replacement without a span inherits the span of the node it replaces.
    """
    made: dict[int, Node] = {}

    def visit(n: Node) -> Node:
        known = made.get(id(n))
        if known is not None:
            return known
        rebuilt = map_children(n, visit)
        new = fn(rebuilt)
        if new is None:
            new = rebuilt
        elif new is not rebuilt and n.span is not None and new.span is None:
            new = new if isinstance(new, Atom) else replace(new, span=n.span)
        made[id(n)] = new
        return new

    return visit(n)


def walk(n: Node) -> Iterator[Node]:
    """All nodes below and including `n`, parents first."""
    stack = [n]
    while stack:
        top = stack.pop()
        yield top
        below = children(top)
        if below:
            stack += below[::-1]
