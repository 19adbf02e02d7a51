"""Tensor intrinsics: the computation of a hardware instruction, and the code that calls it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.substitute import free_symbols


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """A pair of loop functions with the same parameters: `desc` computes in loops what `impl`
    computes with the instruction. `features` names the target features that it needs.

    The parameters are buffers of constant shape. Their dimensions match the last dimensions of the
    buffers that the intrinsic is applied to.
    """

    name: str
    desc: PrimFunc
    impl: PrimFunc
    features: frozenset[str] = frozenset()

    @staticmethod
    def register(
        name: str, desc: PrimFunc, impl: PrimFunc, features: Iterable[str] = (), *,
        override: bool = False,
    ) -> TensorIntrin:  # fmt: skip
        """Make an intrinsic known under `name`. Raises ValueError when it is known or malformed."""
        if name in _REGISTRY and not override:
            raise ValueError(f"tensor intrinsic {name!r} is registered; pass override=True")
        if len(desc.params) != len(desc.buffers) or len(impl.params) != len(impl.buffers):
            raise ValueError(f"tensor intrinsic {name!r}: parameters are buffers")
        for d, i in zip(desc.buffers, impl.buffers, strict=True):
            if d.shape != i.shape or d.dtype != i.dtype:
                raise ValueError(
                    f"tensor intrinsic {name!r}: {d.name} is {d.dtype}{list(map(str, d.shape))} in "
                    f"desc, {i.dtype}{list(map(str, i.shape))} in impl"
                )
        free = [v.name for f in (desc, impl) for v in free_symbols(f)]
        if free:
            raise ValueError(f"tensor intrinsic {name!r}: symbols without a value: {free}")
        intrin = TensorIntrin(name, desc, impl, frozenset(features))
        _REGISTRY[name] = intrin
        return intrin

    @staticmethod
    def get(name: str) -> TensorIntrin:
        """The intrinsic of that name. Raises KeyError."""
        if name not in _REGISTRY:
            near = get_close_matches(name, _REGISTRY, n=3, cutoff=0.3)
            hint = f"did you mean {' or '.join(near)}?" if near else "see TensorIntrin.names()"
            raise KeyError(f"no tensor intrinsic {name!r}; {hint}")
        return _REGISTRY[name]

    @staticmethod
    def names() -> tuple[str, ...]:
        """All registered names."""
        return tuple(sorted(_REGISTRY))


_REGISTRY: dict[str, TensorIntrin] = {}
