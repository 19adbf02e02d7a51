"""TVM's passes that cannot mean anything in relaxlab, and why."""

from __future__ import annotations

import re

_COMPILERS = (
    "they call compilers that build TVM's run-time modules; [patterns](patterns.md) call libraries"
)
_SEVERAL_GPUS = (
    "they share the memory of several GPUs between processes; a program runs on one device"
)
_HOST = (
    "they make functions for TVM's run time; `build` makes the host program and the kernels of a "
    "loop function"
)
_TILES = (
    "they lower instructions for tiles of matrices; `tensorize` calls those that relaxlab has, and "
    "its code generators place their memory"
)
_HEXAGON = "they are for the memory of Hexagon processors, which relaxlab does not compile for"
REASONS = {
    **dict.fromkeys(("RunCodegen", "AttachExternModules", "SplitCallTIRByPattern"), _COMPILERS),
    **dict.fromkeys(("IPCAllReduceRewrite", "LowerGPUIPCAllocStorage"), _SEVERAL_GPUS),
    **dict.fromkeys(("LowerAsyncDMA", "LowerVtcmAlloc", "VerifyVTCMLimit"), _HEXAGON),
    **dict.fromkeys(("MakePackedAPI", "SplitHostDevice", "LowerTVMBuiltin"), _HOST),
    **dict.fromkeys(
        ("TransformMmaBufferLayout", "InferFragment", "InjectPermutedLayout", "InjectPTXLDG32"),
        _TILES,
    ),
}
"""The reasons, by the names of passes."""


def missing(home: str, name: str) -> AttributeError:
    """The error for a pass of a module of TVM that relaxlab does not have."""
    if name in REASONS:
        reason = re.sub(r"\[(\w+)\]\(\S+\)", r"\1", REASONS[name])  # without links
        return AttributeError(f"{home}.{name} has no meaning in relaxlab: {reason}")
    return AttributeError(f"{home}.{name} is not among the passes that relaxlab has")
