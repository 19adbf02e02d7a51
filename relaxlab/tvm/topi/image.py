"""`tvm.topi.image`: operators on images as tensor expressions."""

from relaxlab.tvm.topi.operators import lookup

__getattr__, __dir__ = lookup("image.")
