"""`tvm.relax.testing`: modules that build programs for tests."""

from relaxlab.tvm.names import names

_HOMES = {
    name: f"relaxlab.tvm.relax.testing.nn:{name}"
    for name in (
        "Linear", "LogSoftmax", "Module", "Parameter", "Placeholder", "ReLU", "Sequential",
        "checkpoint", "emit", "emit_checkpoint", "emit_te", "init_params",
    )
}  # fmt: skip

__getattr__, __dir__ = names(__name__, _HOMES)
