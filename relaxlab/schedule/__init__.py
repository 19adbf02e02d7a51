"""Loop transformations at named places, each checked before it is applied, and their trace."""

from relaxlab.schedule import intrinsics, tile_intrinsics
from relaxlab.schedule.error import Refusal, ScheduleError
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.tensor_intrin import TensorIntrin
from relaxlab.schedule.trace import Instruction

__all__ = [
    "BlockRV",
    "Instruction",
    "LoopRV",
    "Refusal",
    "Schedule",
    "ScheduleError",
    "TensorIntrin",
    "apply_trace",
]

REGISTERED = (intrinsics, tile_intrinsics)
"""The files whose tensor intrinsics schedules may name: importing them registers those."""
