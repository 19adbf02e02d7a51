"""Loop transformations at named places, each checked before it is applied, and their trace."""

from relaxlab.schedule.error import Refusal as Refusal
from relaxlab.schedule.error import ScheduleError as ScheduleError
from relaxlab.schedule.intrinsics import REGISTERED as REGISTERED
from relaxlab.schedule.replay import apply_trace as apply_trace
from relaxlab.schedule.schedule import BlockRV as BlockRV
from relaxlab.schedule.schedule import LoopRV as LoopRV
from relaxlab.schedule.schedule import Schedule as Schedule
from relaxlab.schedule.tensor_intrin import TensorIntrin as TensorIntrin
from relaxlab.schedule.trace import Instruction as Instruction
