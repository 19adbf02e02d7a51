"""Rules for CPUs."""

from __future__ import annotations

from relaxlab.tvm.tir.dlight.base import ScheduleRule


class GEMV(ScheduleRule):
    """Products of a matrix with a vector."""

    core = ("dot_product", "tiles", "bfloat16_dot", "matmul", "contraction")


class Reduction(ScheduleRule):
    """Reductions."""

    core = ("windows", "columns", "rows")
