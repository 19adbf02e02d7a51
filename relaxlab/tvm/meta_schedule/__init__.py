"""`tvm.meta_schedule`: search for schedules, by relaxlab's tuner."""

from relaxlab.tvm.names import names

_TUNE = "relaxlab.tvm.meta_schedule.tune"
_HOMES = {
    "Database": "relaxlab.tvm.meta_schedule.database:Database",
    "ExtractedTask": "relaxlab.tvm.meta_schedule.relax_integration:ExtractedTask",
    "TuneConfig": f"{_TUNE}:TuneConfig",
    "tune_tir": f"{_TUNE}:tune_tir",
}

__getattr__, __dir__ = names(__name__, _HOMES)
