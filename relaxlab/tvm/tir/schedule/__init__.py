"""`tvm.tir.schedule`, today's `tvm.s_tir.schedule`: schedules of loop functions."""

from relaxlab.tvm.names import names

_HOMES = {
    "BlockRV": "relaxlab.tvm.tir.schedule.handles:BlockRV",
    "InstructionKind": "relaxlab.tvm.tir.schedule.trace:InstructionKind",
    "LoopRV": "relaxlab.tvm.tir.schedule.handles:LoopRV",
    "SBlockRV": "relaxlab.tvm.tir.schedule.handles:BlockRV",
    "Schedule": "relaxlab.tvm.tir.schedule.schedule:Schedule",
    "ScheduleError": "relaxlab.schedule.error:ScheduleError",
    "Trace": "relaxlab.tvm.tir.schedule.trace:Trace",
}

__getattr__, __dir__ = names(__name__, _HOMES)
