"""A loop function's WGSL with the lines of the loop function that they are from."""

from __future__ import annotations

from relaxlab.codegen.gpu.listing import source_lines
from relaxlab.codegen.listing import Listing, Pane, locate, loops_pane
from relaxlab.codegen.wgsl.dialect import WGSL
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target


def kernel_listing(name: str, func: PrimFunc, target: Target) -> Listing:
    """A kernel as loops and as WGSL. Raises CodegenError for what WGSL cannot express."""
    located = locate(func, name)
    lines, _ = source_lines(located.func, name, WGSL, target.facts)
    panes = (loops_pane(located.numbered()), Pane("wgsl", "WGSL", lines))
    return Listing(panes, located.origins)
