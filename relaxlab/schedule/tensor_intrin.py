"""Tensor intrinsics: the computation of a hardware instruction, and the code that calls it.

Both are loop functions in the script language, read when they are first asked for. A scheduled
function names the intrinsic and keeps its description (`tensorize`), which the interpreter and
analyses go by; code generation puts the implementation in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from relaxlab.ir.brief import Brief
from relaxlab.ir.equal import structural_key
from relaxlab.ir.errors import counted
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import free_symbols
from relaxlab.ir.target import Target

TENSOR_INTRIN = "tensor_intrin"
"""The annotation of a block that is an intrinsic: its name."""

Functions = tuple[PrimFunc, PrimFunc]


@dataclass(frozen=True, slots=True, repr=False)
class TensorIntrin(Brief):
    """A pair of loop functions with the same parameters: `desc` computes in loops what `impl`
    computes with the instruction. `features` names the target features that it needs, `family` what
    it computes, for as many elements as the instruction has.

    The parameters are buffers of constant shape, with strides that may be symbols. Their dimensions
    match the last dimensions of the buffers that the intrinsic is applied to. `digest` identifies a
    definition that is not part of the package, for the keys of compiled programs.
    """

    name: str
    define: Callable[[], Functions]
    features: frozenset[str] = frozenset()
    family: str = ""
    digest: str = ""

    @property
    def desc(self) -> PrimFunc:
        """The function that defines what is computed."""
        return self.define()[0]

    @property
    def impl(self) -> PrimFunc:
        """The function that calls the instruction."""
        return self.define()[1]

    @staticmethod
    def register(
        name: str, desc: PrimFunc, impl: PrimFunc, features: Iterable[str] = (), *,
        family: str = "", override: bool = False,
    ) -> TensorIntrin:  # fmt: skip
        """Make an intrinsic known under `name`. Raises ValueError when it is known or malformed."""
        if name in _REGISTRY and not override:
            raise ValueError(f"tensor intrinsic {name!r} is registered; pass override=True")
        require_pair(name, desc, impl)
        digest = f"{name} {structural_key(desc)} {structural_key(impl)}"
        intrin = TensorIntrin(name, lambda: (desc, impl), frozenset(features), family, digest)
        _REGISTRY[name] = intrin
        return intrin

    @staticmethod
    def get(name: str) -> TensorIntrin:
        """The intrinsic of that name. Raises KeyError."""
        if name not in _REGISTRY:
            near = get_close_matches(name, _REGISTRY, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "see TensorIntrin.names()"
            raise KeyError(f"no tensor intrinsic {name!r}; {hint}")
        return _REGISTRY[name]

    @staticmethod
    def names() -> tuple[str, ...]:
        """All registered names."""
        return tuple(sorted(_REGISTRY))

    @staticmethod
    def best(family: str, target: Target) -> TensorIntrin | None:
        """The first intrinsic of a family, in the order of registration, whose features the target
        has; None if there is none."""
        of_family = (i for i in _REGISTRY.values() if i.family == family)
        return next((i for i in of_family if i.features <= target.features), None)


@dataclass(frozen=True, slots=True)
class RegisterScope:
    """A scope of buffers that are no memory but registers, which only tensor intrinsics use.

    A kernel with such a buffer has room for one. Every thread runs `enter` before the kernel's
    loops and `leave` after them, loop functions without parameters.
    """

    name: str
    define: Callable[[], Functions]

    @property
    def enter(self) -> PrimFunc:
        """The function that sets the registers up."""
        return self.define()[0]

    @property
    def leave(self) -> PrimFunc:
        """The function that gives the registers back."""
        return self.define()[1]


def declare(
    name: str, define: Callable[[], Functions], features: Iterable[str] = (), family: str = ""
) -> None:
    """Make an intrinsic of the package known, whose functions are made when they are first asked
    for. `family`: `name` itself if it is empty."""
    _REGISTRY[name] = TensorIntrin(name, cache(define), frozenset(features), family or name)


def declare_scope(name: str, define: Callable[[], Functions]) -> None:
    """Make a scope of registers known, by functions that enter and leave it."""
    _SCOPES[name] = RegisterScope(name, cache(define))


def register_scope(name: str) -> RegisterScope | None:
    """The scope of registers of that name; None for a scope of memory."""
    return _SCOPES.get(name)


def registered_digests() -> tuple[str, ...]:
    """The digests of all intrinsics that are not part of the package."""
    return tuple(i.digest for i in _REGISTRY.values() if i.digest)


def require_pair(name: str, desc: PrimFunc, impl: PrimFunc) -> None:
    """Raise ValueError unless the functions can be an intrinsic's."""
    if len(desc.params) != len(desc.buffers) or len(impl.params) != len(impl.buffers):
        raise ValueError(f"tensor intrinsic {name!r}: parameters are buffers")
    if len(desc.params) != len(impl.params):
        counts = f"{counted(len(desc.params), 'buffer')}, impl {len(impl.params)}"
        raise ValueError(f"tensor intrinsic {name!r}: both take the same; desc takes {counts}")
    for d, i in zip(desc.buffers, impl.buffers, strict=True):
        if d.shape != i.shape or d.dtype != i.dtype:
            raise ValueError(
                f"tensor intrinsic {name!r}: {d.name} is {d.dtype}{list(map(str, d.shape))} in "
                f"desc, {i.dtype}{list(map(str, i.shape))} in impl"
            )
    free = [v.name for f in (desc, impl) for v in free_symbols(f) if v not in _strides(f)]
    if free:
        raise ValueError(f"tensor intrinsic {name!r}: symbols without a value: {free}")
    used = {n.buffer for n in walk(desc.body) if isinstance(n, BufferLoad | BufferStore)}
    unused = [b.name for b in desc.buffers if b not in used]
    if unused:
        raise ValueError(f"tensor intrinsic {name!r}: desc does not use {', '.join(unused)}")


def _strides(func: PrimFunc) -> set[PrimExpr]:
    """The strides of parameters: symbols among them are those of the buffers that are given."""
    return {s for b in func.buffers for s in b.strides}


_REGISTRY: dict[str, TensorIntrin] = {}
_SCOPES: dict[str, RegisterScope] = {}
