"""Structural equality and hashing, up to renaming of bound variables and buffers.

The two programs are walked together. Variables correspond one to one: fields marked as binders
rebind, and within a function a symbol met for the first time (in a parameter's shape, in a
`match_cast`) is bound there. Spans never matter; names of variables never matter.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.errors import UserError
from relaxlab.ir.module import Module
from relaxlab.ir.node import Atom, Attrs, Node, binder_names, field_names

_NAMED = (graph.GlobalVar, graph.ExternFunc, graph.Op)


def _same_arrays(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _float_bits(value: float) -> bytes:
    """A zero has a sign, and a NaN equals itself."""
    return struct.pack("<d", value)


class StructuralMismatch(UserError, AssertionError):
    """Two programs differ; the message names the path to the first difference."""


def structural_equal(a: Any, b: Any, *, map_free_vars: bool = False) -> bool:
    """True if `a` and `b` are the same program up to bound names."""
    return _Matcher(map_free_vars).difference(a, b, "") is None


def assert_structural_equal(a: Any, b: Any, *, map_free_vars: bool = False) -> None:
    """Raise `StructuralMismatch`, naming the path of the first difference, unless equal."""
    found = _Matcher(map_free_vars).difference(a, b, "")
    if found is not None:
        raise StructuralMismatch(found)


class _Matcher:
    """The correspondence between the variables and buffers of two programs."""

    def __init__(self, free: bool) -> None:
        self.forward: dict[Atom, Atom] = {}
        self.backward: dict[Atom, Atom] = {}
        self.free = free
        self.compared: set[tuple[int, int]] = set()

    def difference(self, a: Any, b: Any, path: str) -> str | None:
        if isinstance(a, _NAMED):
            same = type(a) is type(b) and a == b
            return None if same else _report(path, a, b)
        if type(a) is not type(b):
            return _report(path, a, b)
        if isinstance(a, Atom):
            return self._atoms(a, b, path)
        if isinstance(a, Module):
            return self._modules(a, b, path)
        if isinstance(a, Node):
            return self._fields(a, b, path)
        if isinstance(a, tuple):
            return self._tuples(a, b, path)  # type: ignore[reportUnknownArgumentType]
        if isinstance(a, Attrs):
            if tuple(a) != tuple(b):
                return _report(path, a, b)
            pairs = ((f"{path}[{k!r}]", a[k], b[k]) for k in a)
            return self._first(pairs)
        if isinstance(a, np.ndarray):
            same = _same_arrays(cast("NDArray[Any]", a), b)
            return None if same else _report(path, a, b)
        if isinstance(a, float):
            return None if _float_bits(a) == _float_bits(b) else _report(path, a, b)
        return None if a == b else _report(path, a, b)

    def _first(self, pairs: Iterable[tuple[str, Any, Any]]) -> str | None:
        for path, a, b in pairs:
            found = self.difference(a, b, path)
            if found is not None:
                return found
        return None

    def _tuples(self, a: tuple[Any, ...], b: tuple[Any, ...], path: str) -> str | None:
        found = self._first(
            (f"{path}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=False))
        )
        if found is None and len(a) != len(b):
            return f"{path or '.'}: {len(a)} items against {len(b)}"
        return found

    def _fields(self, a: Node, b: Node, path: str) -> str | None:
        binders = binder_names(type(a))
        was_free, self.free = self.free, self.free or isinstance(a, _SCOPES)
        for name in field_names(type(a)):
            x, y = getattr(a, name), getattr(b, name)
            if name in binders:
                self._unbind(x, y)
            found = self.difference(x, y, f"{path}.{name}")
            if found is not None:
                return found
        self.free = was_free
        return None

    def _unbind(self, a: Any, b: Any) -> None:
        for x, y in zip(_atoms_in(a), _atoms_in(b), strict=False):
            self.backward.pop(self.forward.pop(x, x), None)
            self.forward.pop(self.backward.pop(y, y), None)
            self._bind(x, y)

    def _bind(self, a: Atom, b: Atom) -> None:
        self.forward[a] = b
        self.backward[b] = a

    def _atoms(self, a: Any, b: Any, path: str) -> str | None:
        # In both directions, or two variables of one program could stand for one of the other.
        if a in self.forward or b in self.backward:
            if self.forward.get(a) is not b or self.backward.get(b) is not a:
                return _report(path, a, b)
        elif a is b or self.free:  # also to itself, so that it corresponds to nothing else
            self._bind(a, b)
        else:
            return _report(path, a, b)
        return self._declarations(a, b, path) if self._fresh(a, b) else None

    def _fresh(self, a: Atom, b: Atom) -> bool:
        """True if this pair's declarations were not compared yet."""
        key = (id(a), id(b))
        if key in self.compared:
            return False
        self.compared.add(key)
        return True

    def _declarations(self, a: Any, b: Any, path: str) -> str | None:
        """Compare what is declared about two corresponding variables: all but the name."""
        names = [n for n in field_names(cast("type[Node]", type(a))) if n != "name"]
        return self._first((f"{path}.{n}", getattr(a, n), getattr(b, n)) for n in names)

    def _modules(self, a: Module, b: Module, path: str) -> str | None:
        if set(a) != set(b):
            return f"{path or '.'}: functions {sorted(a)} against {sorted(b)}"
        for name, fn in a.items():  # functions may share a symbol, which each binds for itself
            found = _Matcher(self.free).difference(fn, b[name], f"{path}[{name!r}]")
            if found is not None:
                return found
        return self.difference(a.attrs, b.attrs, f"{path}.attrs")


_SCOPES = (graph.Function, loops.PrimFunc, types.FuncType)


def _atoms_in(value: Any) -> list[Atom]:
    if isinstance(value, Atom):
        return [value]
    if isinstance(value, tuple):
        return [a for item in value for a in _atoms_in(item)]  # type: ignore
    return []


def _report(path: str, a: Any, b: Any) -> str:
    return f"{path or '.'}: {_show(a)} against {_show(b)}"


def _show(value: Any) -> str:
    if isinstance(value, expr.PrimExpr | types.Type):
        return f"{type(value).__name__} {value}"
    text = repr(value)
    return text if len(text) <= 120 else f"{type(value).__name__} {text[:100]}…"


def structural_key(root: Any) -> str:
    """A hex digest equal for structurally equal programs (free variables count by position)."""
    digest = hashlib.sha256()
    numbers: dict[Atom, int] = {}
    fresh = itertools.count()

    def feed(value: Any) -> None:
        if isinstance(value, _NAMED):
            digest.update(f"{type(value).__name__}:{value.name!r};".encode())
        elif isinstance(value, Atom):
            known = value in numbers
            number = numbers[value] if known else numbers.setdefault(value, next(fresh))
            digest.update(f"#{type(value).__name__}{number};".encode())
            if not known:
                for name in field_names(type(value)):
                    if name != "name":
                        feed(getattr(value, name))
        elif isinstance(value, Module):
            # By name: the order of definition has no meaning.
            for name, fn in sorted(value.functions, key=lambda item: item[0]):
                digest.update(f"fn {name!r};".encode())
                # Functions count their own atoms: a change in one leaves the digests of the others
                # alone, and a symbol that two functions share is bound in each.
                numbers.clear()
                feed(fn)
            feed(value.attrs)
        elif isinstance(value, Node):
            digest.update(f"({type(value).__name__};".encode())
            for name in field_names(type(value)):
                if name in binder_names(type(value)):
                    for atom in _atoms_in(getattr(value, name)):
                        numbers.pop(atom, None)
                feed(getattr(value, name))
            digest.update(b")")
        elif isinstance(value, tuple):
            # With lengths: without, nested tuples of other shapes would read the same.
            digest.update(f"[{len(value)};".encode())  # type: ignore
            for item in value:  # type: ignore
                feed(item)
        elif isinstance(value, Attrs):
            digest.update(f"<{len(value)};".encode())
            for k, v in value.items():
                feed(k)
                feed(v)
        elif isinstance(value, np.ndarray):
            array = cast("NDArray[Any]", value)
            digest.update(f"{array.dtype}{array.shape};".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        elif isinstance(value, float):
            digest.update(b"float" + _float_bits(value))
        else:
            digest.update(f"{value!r};".encode())

    feed(root)
    return digest.hexdigest()
