"""`tvm.ir.Op`: operators by their registered names."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.op_table import op_names
from relaxlab.tvm.spelling import Spelling

_PREFIX = "relax."


class Op(metaclass=Spelling, core=graph.Op):
    """An operator; its `name` is that in scripts, equal to TVM's with its prefix."""

    @staticmethod
    def get(op_name: str) -> graph.Op:
        """The operator that TVM registers under this name, such as "relax.add"."""
        return graph.Op(op_name.removeprefix(_PREFIX))

    @staticmethod
    def list_op_names() -> list[str]:
        """The names of all operators, as TVM has them."""
        return [_PREFIX + name for name in op_names()]
