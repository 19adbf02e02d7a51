"""Machine code made in a hurry, for programs that run once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxlab.codegen.llvm import jit
from relaxlab.ir.target import Target


def unoptimised(
    functions: Sequence[str], declarations: Mapping[str, str], target: Target
) -> tuple[tuple[bytes, ...], bytes]:
    """Return what `compile_objects` does, unoptimised and without bitcode, which only exports
    read."""
    text = jit.module_text(functions, declarations, target)
    return (jit.compile_quickly(text, target)[0],), b""
