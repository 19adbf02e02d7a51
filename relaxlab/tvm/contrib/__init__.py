"""`tvm.contrib`, as far as programs use it."""

from relaxlab.tvm.names import names

__getattr__, __dir__ = names(__name__, {})
