"""`tvm.relax.backend`: passes that lower some operators, and patterns by their names."""

from relaxlab.tvm.names import names

_HOMES = {
    "DispatchSampling": "relaxlab.tvm.relax.backend.dispatch:DispatchSampling",
    "DispatchSortScan": "relaxlab.tvm.relax.backend.dispatch:DispatchSortScan",
    "get_pattern": "relaxlab.tvm.relax.backend.pattern_registry:get_pattern",
    "get_patterns_with_prefix":
        "relaxlab.tvm.relax.backend.pattern_registry:get_patterns_with_prefix",
}  # fmt: skip

__getattr__, __dir__ = names(__name__, _HOMES)
