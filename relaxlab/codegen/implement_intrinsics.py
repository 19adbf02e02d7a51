"""The code of tensor intrinsics in place of their descriptions."""

from __future__ import annotations

from relaxlab.codegen.errors import CodegenError
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.loops import Block
from relaxlab.ir.node import replace
from relaxlab.schedule.tensor_intrin import TENSOR_INTRIN, TensorIntrin
from relaxlab.schedule.tensorize import description, implementation


def implemented(block: Block) -> Block:
    """Return a block that is a tensor intrinsic with the intrinsic's code as its body, any other
    as it is. Raises CodegenError for one that does not compute what the intrinsic does."""
    name = block.annotations.get(TENSOR_INTRIN)
    if name is None:
        return block
    try:
        intrin = TensorIntrin.get(name)
    except KeyError as e:
        raise CodegenError(f"block {block.name!r}: {e.args[0]}") from None
    params = intrin.desc.buffers
    matched = block.match_buffers[-len(params) :]
    views = [m.buffer for m in matched]
    if [(v.shape, v.dtype) for v in views] != [(p.shape, p.dtype) for p in params] or (
        not structural_equal(description(intrin, views), block.body)
    ):
        raise CodegenError(
            f"block {block.name!r} is to be the tensor intrinsic {name!r}, but its body is not the "
            "intrinsic's description over the block's last match buffers"
        )
    body, allocated = implementation(intrin, matched, block.body.span)
    return replace(block, body=body, alloc_buffers=(*block.alloc_buffers, *allocated))
