"""Rules for GPUs."""

from __future__ import annotations

from relaxlab.tvm.tir.dlight.base import ScheduleRule


class Matmul(ScheduleRule):
    """Products of matrices."""

    core = ("hopper_matmul", "tensor_matmul", "register_tiles", "matmul")


class GEMV(ScheduleRule):
    """Products of a matrix with a vector."""

    core = ("reductions",)


class LowBatchGEMV(ScheduleRule):
    """Products of a matrix with few vectors. `bucket` is TVM's number of them."""

    core = ("register_tiles", "reductions")

    def __init__(self, bucket: int = 4) -> None:
        self.bucket = bucket


class Reduction(ScheduleRule):
    """Sums and the like over some axes."""

    core = ("reductions",)


class GeneralReduction(ScheduleRule):
    """Reductions of rows after each other, as in softmax and norms."""

    core = ("rows", "reductions")


class RMSNorm(ScheduleRule):
    """Norms of rows by their squares."""

    core = ("rows",)


class Transpose(ScheduleRule):
    """Permutations of axes."""

    core = ("elementwise",)


class Fallback(ScheduleRule):
    """The rules that fit every function."""

    core = ("elementwise", "nested", "fallback")
