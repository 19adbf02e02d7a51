"""Short texts of values for `__repr__`: one line, however much hangs below them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, cast

FIELD = 60
"""Characters of a field: a name, a shape, the start of a message."""
FIELDS = 12
ITEMS = 4
"""Items of a sequence that are shown; the rest is counted."""


class Brief:
    """Base of values whose `repr` is one line: the type and the public fields, each cut short."""

    __slots__ = ()

    def brief(self) -> str:
        """The text of the value as a field of another."""
        return f"{type(self).__name__}(…)"

    def __repr__(self) -> str:
        shown = [name for name in _fields(self) if not name.startswith("_")]
        parts = [f"{name}={brief(getattr(self, name))}" for name in shown[:FIELDS]]
        more = ["…"] if len(shown) > FIELDS else []
        return f"{type(self).__name__}({', '.join([*parts, *more])})"


def _fields(value: Any) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [f.name for f in dataclasses.fields(value) if f.repr]
    return [*getattr(value, "__dict__", ())]


def brief(value: Any) -> str:
    """The text of a field."""
    if isinstance(value, Brief):
        return cut(value.brief())
    if isinstance(value, tuple | list | set | frozenset):
        items = cast("Iterable[Any]", value)
        return _items(map(brief, items), len(value))  # type: ignore[reportUnknownArgumentType]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        texts = (f"{k if isinstance(k, str) else brief(k)}: {brief(v)}" for k, v in pairs)
        return "{" + _items(texts, len(pairs))[1:-1] + "}"
    if hasattr(value, "__array_interface__"):
        return f"array({value.shape}, {value.dtype})"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):  # a function or a class
        return name
    return cut(repr(value))


def _items(texts: Iterable[str], count: int) -> str:
    shown = list(islice(texts, ITEMS))
    more = [f"… {count} in all"] if count > ITEMS else []
    return f"({', '.join([*shown, *more])})"


def cut(text: str, width: int = FIELD) -> str:
    """The first line of a text, up to a width."""
    first, rest, _ = text.partition("\n")
    return f"{first[: width - 1]}…" if rest or len(first) > width else first
