"""The operators: importing this package fills the operator table.

Each row gives an operator's types, its loop lowering and its NumPy reference. `ops.add(x, y)`
and `ops.nn.softmax(x)` build graph calls of the rows.
"""

from __future__ import annotations

from relaxlab.ir.op_table import op_names
from relaxlab.ops import (  # noqa: F401
    attention,
    attention_var_len,
    blocks,
    boxes,
    calls,
    collectives,
    conv,
    create,
    data,
    datatype,
    devices,
    elementwise,
    factors,
    gather,
    grad,
    grid_sample,
    index,
    inspect,
    linalg,
    losses,
    manipulate,
    memory,
    nn,
    norms,
    pool,
    qdq,
    rearrange,
    reduce,
    regions,
    resize,
    sampling,
    scatter,
    search_sort,
    segments,
    special,
    windows,
)
from relaxlab.ops.define import Builder, builder

# isort: split
# After all rows, which it adds to.
from relaxlab.ops import gradients  # noqa: F401

OPERATORS = frozenset(op_names())
"""The operators of this package: their rows are part of the compiler."""


def __getattr__(name: str) -> Builder:
    return builder(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *(n for n in op_names() if "." not in n)})
