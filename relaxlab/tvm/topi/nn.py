"""`tvm.topi.nn`: operators of neural networks on tensor expressions."""

from relaxlab.tvm.topi.operators import lookup

__getattr__, __dir__ = lookup("nn.")
