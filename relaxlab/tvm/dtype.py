"""`tvm.DataType`: dtypes as objects."""

from __future__ import annotations

from relaxlab.ir import dtypes


class DataType(str):
    """A dtype such as "float16x4", which is the string itself, with its parts."""

    __slots__ = ()

    @property
    def bits(self) -> int:
        """The bits of one lane."""
        return dtypes.bits_of(dtypes.element_of(self))

    @property
    def lanes(self) -> int:
        """The number of lanes; 1 of a scalar."""
        return dtypes.lanes_of(self)

    @property
    def itemsize(self) -> int:
        """The bytes of one element, all lanes of it."""
        return (self.bits * self.lanes + 7) // 8
