"""The node protocol shared by graph functions and loop functions.

A node is a frozen, slotted dataclass. Its children are whatever nodes its fields hold, directly
or inside tuples; rebuilding a node means rebuilding the fields that changed. There are no visitor
classes: `children` and `map_children` read the fields, and passes dispatch with `match`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, cast, dataclass_transform

from relaxlab.ir.brief import Brief
from relaxlab.ir.display import Displayed
from relaxlab.ir.span import Span


class Node(Displayed, Brief):
    """Base of every IR node. Nodes compare by identity unless a subclass says otherwise."""

    __slots__ = ()
    span: Span | None


N = TypeVar("N", bound=Node)
T = TypeVar("T")


def span_field(*, default: None, kw_only: Literal[True] = True) -> Any:
    """A `span` field: where the node came from. Never part of equality.

    The default is passed in sight: type checkers do not see it otherwise.
    """
    return dataclasses.field(default=default, repr=False, compare=False, kw_only=kw_only)


def hint_field(*, default: str, kw_only: Literal[True] = True) -> Any:
    """A `name_hint` field: how a definition was called. Never part of equality; printers use it."""
    return dataclasses.field(
        default=default, repr=False, compare=False, kw_only=kw_only, metadata={"hint": True}
    )


def binder(**kwargs: Any) -> Any:
    """A field whose variables or buffers are *defined* here (structural equality rebinds them)."""
    return dataclasses.field(metadata={"binder": True}, **kwargs)


@dataclass_transform(
    frozen_default=True, field_specifiers=(span_field, binder, hint_field, dataclasses.field)
)
def node(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, slotted dataclass that keeps the equality and the text (`repr`) that its
    base class defines."""
    return dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


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

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._items.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attrs) and self._items == other._items

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


def children(n: Node) -> list[Node]:
    """The direct child nodes of `n`, in field order (atoms such as variables included)."""
    found: list[Node] = []
    if not isinstance(n, Atom):
        for name in field_names(type(n)):
            _collect(getattr(n, name), found)
    return found


def _collect(value: Any, found: list[Node]) -> None:
    """Append the nodes in a field's value to `found`."""
    if isinstance(value, Node):
        found.append(value)
    elif isinstance(value, tuple):
        for item in value:  # type: ignore[reportUnknownVariableType]
            _collect(item, found)
    elif type(value) is Attrs:  # faster than isinstance, which asks an abstract base class
        for item in value.values():
            _collect(item, found)


def map_children(n: N, fn: Callable[[Node], Node]) -> N:
    """`n` with `fn` applied to each direct child; `n` itself when no child changed."""
    if isinstance(n, Atom):
        return n
    changes: dict[str, Any] = {}
    for name in field_names(type(n)):
        old = getattr(n, name)
        new = _map_value(old, fn)
        if new is not old:
            changes[name] = new
    return replace(n, **changes) if changes else n


def _map_value(value: Any, fn: Callable[[Node], Node]) -> Any:
    if isinstance(value, Node):
        return fn(value)
    if isinstance(value, tuple):
        items: list[Any] = [_map_value(item, fn) for item in value]  # type: ignore
        if all(a is b for a, b in zip(items, value, strict=True)):  # type: ignore
            return value  # type: ignore
        return tuple(items)
    if type(value) is Attrs:
        mapped = {k: _map_value(v, fn) for k, v in value.items()}
        return value if all(mapped[k] is value[k] for k in value) else Attrs(mapped)
    return value


def replace(n: N, **changes: Any) -> N:
    """A copy of `n` with the given fields changed; the span stays."""
    return dataclasses.replace(n, **changes)  # type: ignore[type-var]


def rewrite(n: Node, fn: Callable[[Node], Node | None]) -> Any:
    """Rewrite `n` bottom-up: `fn` returns the replacement of a rebuilt node, or None to keep it.

    A replacement without a span inherits the span of the node it replaces.
    """
    rebuilt = map_children(n, lambda c: rewrite(c, fn))
    new = fn(rebuilt)
    if new is None or new is rebuilt:
        return rebuilt
    span: Span | None = getattr(n, "span", None)
    if span is not None and getattr(new, "span", span) is None and not isinstance(new, Atom):
        new = replace(new, span=span)
    return new


def walk(n: Node) -> Iterator[Node]:
    """All nodes below and including `n`, parents first."""
    stack = [n]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(children(top)))
