"""Splitting a scheduled loop function into launches, and the program of each thread of a launch."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.brief import Brief
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.ir.loops import Buffer, Stmt


@dataclass(frozen=True, slots=True)
class ThreadAxis:
    """`var` is the index of the block or thread along axis `name` (`blockIdx.x`, `threadIdx.y`),
    from 0 to `extent` - 1. A threadIdx axis has a constant extent."""

    name: str
    var: Var
    extent: PrimExpr


@dataclass(frozen=True, slots=True, repr=False)
class Launch(Brief):
    """One kernel of a GPU.

    `body` has no blocks and no thread loops: every thread of every block runs all of it, with
    its own values of the axes' variables. Loops are serial, unrolled or vectorized. Threads of a
    block meet at `Evaluate(tvm_storage_sync("shared"))`; lanes of a warp exchange values by
    `warp_shuffle_xor(value, mask)`. `shared` buffers exist once per block, `local` ones once per
    thread; both have constant shapes. `buffers` and `scalars` are the parameters, symbols of
    buffers' shapes included; `sizes` the scalars that are not negative. The launch happens where
    `condition` (over scalars) holds. `facts`: the GPU that it is for.
    """

    name: str
    condition: PrimExpr
    axes: tuple[ThreadAxis, ...]
    buffers: tuple[Buffer, ...]
    scalars: tuple[Var, ...]
    shared: tuple[Buffer, ...]
    local: tuple[Buffer, ...]
    body: Stmt
    facts: Facts = CUDA
    sizes: tuple[Var, ...] = ()

    def extents(self, kind: str) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """The sizes along x, y and z of `blockIdx` (the grid) or `threadIdx` (a block)."""
        known = {axis.name: axis.extent for axis in self.axes}
        x, y, z = (known.get(f"{kind}.{d}", IntImm(1)) for d in "xyz")
        return x, y, z


@dataclass(frozen=True, slots=True, repr=False)
class DeviceKernel(Brief):
    """A loop function as launches, made one after the other on one stream.

    `buffers` are its parameters, `workspace` main memory that it allocates itself (empty after
    `lift_workspace`), `scalars` its symbols in the order of `ir.host.kernel_symbols`.
    """

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Var, ...]
    workspace: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
