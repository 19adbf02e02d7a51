"""`tvm.base`, from which older programs import the error."""

from relaxlab.tvm.names import names

_HOMES = {"TVMError": "relaxlab.tvm.error:TVMError"}

__getattr__, __dir__ = names(__name__, _HOMES)
