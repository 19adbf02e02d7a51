"""Lower what registered patterns match to calls of library functions; the rest stays generated."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.module import Module
from relaxlab.passes.base import module_pass
from relaxlab.passes.blas_patterns import BLAS
from relaxlab.passes.libraries import library_pattern
from relaxlab.passes.patterns.rewrite import rewrite_matches

__all__ = ["BLAS", "lower_to_libraries"]


@dataclass(frozen=True, slots=True)
class LibraryOptions:
    """`use`: the names of the registered pairs that are on, the first that fits wins."""

    use: tuple[str, ...] = ()


@module_pass("lower_to_libraries", LibraryOptions, needs=("normalize",))
def lower_to_libraries(mod: Module, options: LibraryOptions) -> Module:
    """Replace matches of the chosen pairs of `passes.libraries` by library calls.

    This is partial lowering (the paper's section 4.6): library calls, operators that become loop
    functions and loop functions of the user's are one program under one memory plan. A match that
    its library cannot compute stays as it is, with a remark. Raises KeyError for a name that
    nothing is registered under.
    """
    for one in [library_pattern(name) for name in options.use]:
        mod = rewrite_matches(mod, one.pattern, one.lower, f"lower_to_libraries: {one.name}")
    return mod
