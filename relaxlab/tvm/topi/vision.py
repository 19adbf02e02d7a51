"""`tvm.topi.vision`: operators on boxes as tensor expressions."""

from relaxlab.tvm.topi.operators import lookup

__getattr__, __dir__ = lookup("vision.")
