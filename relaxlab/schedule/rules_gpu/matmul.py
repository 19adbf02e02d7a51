"""Matrix products (to come)."""

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    return None
