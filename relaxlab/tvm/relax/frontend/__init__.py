"""`tvm.relax.frontend`: programs that build modules."""

from relaxlab.tvm.names import names

_HOMES = {"detach_params": "relaxlab.tvm.relax.frontend.imported:detach_params"}
__getattr__, __dir__ = names(__name__, _HOMES)
