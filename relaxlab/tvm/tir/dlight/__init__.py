"""`tvm.s_tir.dlight`: schedules without search, `ApplyDefaultSchedule(dl.gpu.Matmul())`."""

from relaxlab.tvm.names import names

_HOMES = {
    name: f"relaxlab.tvm.tir.dlight.base:{name}"
    for name in ("ApplyDefaultSchedule", "ScheduleRule")
}

__getattr__, __dir__ = names(__name__, _HOMES)
