"""Making recorded data small: lines of text as numbers, and JSON as compressed text.

Consecutive modules of a pipeline share most of their lines; each distinct line is written once and
a module is a list of numbers. zlib alone does not see that: its window is smaller than a module.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any


class Interner:
    """Distinct lines of text, numbered in the order in which they were first seen."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    @property
    def lines(self) -> list[str]:
        """The distinct lines; a number is an index into them."""
        return list(self._ids)

    @property
    def items(self) -> list[Any]:
        """The distinct pieces of data, where `number` numbered them."""
        return [json.loads(line) for line in self._ids]

    def number(self, item: Any) -> int:
        """A number for a piece of data that JSON can hold."""
        return self.ids([json.dumps(item)])[0]

    def ids(self, lines: Iterable[str]) -> list[int]:
        """A number for each line."""
        return [self._ids.setdefault(line, len(self._ids)) for line in lines]


def to_json(state: Any) -> bytes:
    """`state` as compact JSON. Raises TypeError for what JSON lacks, ValueError for infinities and
    NaN, which JSON has no spelling for."""
    # NaN is no JSON: a browser would refuse the whole state.
    text = json.dumps(state, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def pack(state: Any) -> str:
    """`state` as JSON (see `to_json`), compressed (zlib), as base64 text."""
    return base64.b64encode(zlib.compress(to_json(state), 9)).decode("ascii")


def unpack(packed: str) -> Any:
    """Return the value given to `pack` (tuples as lists)."""
    return json.loads(zlib.decompress(base64.b64decode(packed)).decode("utf-8", "surrogatepass"))
