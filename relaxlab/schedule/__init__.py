"""Loop transformations at named places, each checked before it is applied, and their trace."""

from relaxlab.schedule.error import Refusal, ScheduleError
from relaxlab.schedule.intrinsics import REGISTERED
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.tensor_intrin import TensorIntrin
from relaxlab.schedule.trace import Instruction

__all__ = [
    "REGISTERED",
    "BlockRV",
    "Instruction",
    "LoopRV",
    "Refusal",
    "Schedule",
    "ScheduleError",
    "TensorIntrin",
    "apply_trace",
]
