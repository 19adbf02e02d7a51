"""`tvm.relax.frontend`: programs that build modules."""

from relaxlab.tvm.names import names

__getattr__, __dir__ = names(__name__, {})
