"""`tvm.nd`: the former names of arrays and devices."""

from relaxlab.tvm.names import names

_RUNTIME = "relaxlab.tvm.runtime"
_HOMES = {
    "NDArray": f"{_RUNTIME}:Tensor",
    "array": f"{_RUNTIME}:tensor",
    **{n: f"{_RUNTIME}:{n}" for n in ("cpu", "cuda", "device", "empty", "from_dlpack")},
}

__getattr__, __dir__ = names(__name__, _HOMES)
