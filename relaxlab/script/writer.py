"""The text under construction: indentation, names, and which IR path each piece came from.

With `mapping` on, printed pieces are bracketed by control characters that name their path and
have no other use in a script (strings are written as escaped literals). `finish` removes them
and returns where each path ended up.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from relaxlab.ir.expr import OuterIndex, PrimExpr, Var
from relaxlab.ir.loops import Buffer
from relaxlab.ir.node import Attrs
from relaxlab.ir.span import Source, Span
from relaxlab.script.names import Names

_OPEN, _SEP, _CLOSE = "\x01", "\x02", "\x03"
_TOKEN = re.compile(f"{_OPEN}(\\d+){_SEP}|{_CLOSE}|\n")


_MEANING = ("tir_var_upper_bound", "relax.force_pure", "donated")
"""Attributes that say what a function may be called with, which arguments it may overwrite, and
that its effects are its own."""


def string(text: str) -> str:
    """A string literal, in double quotes where that needs no escapes."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if '"' not in text else literal


def plain(text: str) -> str:
    """`text` as it will be seen, without the marks of paths."""
    return _TOKEN.sub("", text)


class Writer:
    """Lines of script text."""

    def __init__(
        self, *, mapping: bool = False, types: bool = True, show_meta: bool = True
    ) -> None:
        self.names = Names()
        self.loops: dict[Var, tuple[PrimExpr, PrimExpr]] = {}  # the ranges of enclosing loops
        self.outer: tuple[OuterIndex, str] | None = None  # of the ragged type being written
        self.typed_loops = False  # whether the ends of loops say that they are int64
        self.typed_shapes = False  # whether extents of buffers and constant indices do
        self.implied: frozenset[int] | None = None  # conversions that the reader makes
        self.narrow_symbols = False  # symbols are declared as int32, as which they were read
        self.launches = False  # whether thread loops are written as launches
        self.unplaced: dict[Buffer, str] = {}  # buffers whose allocations are not written yet
        self.in_module = True
        self.module_name = "Module"
        self.types = types
        self.show_meta = show_meta
        self._mapping = mapping
        self._paths: list[str] = []
        self._lines: list[str] = []
        self._depth = 0
        self._before: list[str] = []
        self._opened = ""

    def mark(self, path: str, text: str) -> str:
        """`text`, remembered as the print of the node at `path`."""
        return f"{self._open(path)}{text}{_CLOSE}" if self._mapping else text

    def _open(self, path: str) -> str:
        self._paths.append(path)
        return f"{_OPEN}{len(self._paths) - 1}{_SEP}"

    @contextmanager
    def node(self, path: str) -> Generator[None]:
        """The lines written inside are the print of the node at `path`."""
        if not self._mapping:
            yield
            return
        self._opened += self._open(path)
        count = len(self._lines)
        yield
        if len(self._lines) > count:
            self._lines[-1] += _CLOSE
        else:
            self._opened += _CLOSE

    @contextmanager
    def indented(self) -> Generator[None]:
        """One level deeper, with a scope of names of its own."""
        self._depth += 1
        with self.names.scope():
            yield
        self._depth -= 1

    def shown(self, attrs: Attrs) -> Attrs:
        """Return the attributes of a function to write: all of them, or without `show_meta` those
        that change the meaning of the program."""
        if self.show_meta:
            return attrs
        return Attrs({k: v for k, v in attrs.items() if k in _MEANING})

    def before(self, text: str) -> None:
        """A line to write ahead of the next one (a declaration its expressions need)."""
        self._before.append(text)

    def line(self, text: str = "") -> None:
        """Write one line at the current indentation."""
        for declared in self._before:
            self._lines.append("    " * self._depth + declared)
        self._before.clear()
        indent = "    " * self._depth if text else ""
        self._lines.append(f"{indent}{self._opened}{text}")
        self._opened = ""

    def finish(self, name: str = "<script>") -> tuple[str, dict[str, Span]]:
        """The text, and the span of every marked path in it."""
        raw = "\n".join(self._lines) + "\n"
        if not self._mapping:
            return raw, {}
        places: dict[str, tuple[int, int, int, int]] = {}
        stack: list[tuple[str, int, int]] = []
        pieces: list[str] = []
        line, col, at = 1, 0, 0
        for token in _TOKEN.finditer(raw):
            piece = raw[at : token.start()]
            pieces.append(piece)
            col += len(piece)
            at = token.end()
            if token[0] == "\n":
                pieces.append("\n")
                line, col = line + 1, 0
            elif token[0] == _CLOSE:
                path, first_line, first_col = stack.pop()
                places.setdefault(path, (first_line, first_col, line, col))
            else:
                stack.append((self._paths[int(token[1])], line, col))
        source = Source(name, "".join(pieces) + raw[at:])
        return source.text, {path: Span(source, *place) for path, place in places.items()}
