"""The tensor intrinsics of the package, a file per family; importing this registers them."""

from relaxlab.schedule.intrinsics import amx, dot2, dot4, mma, reduce, wgmma

REGISTERED = (amx, dot2, dot4, mma, reduce, wgmma)
"""The files of intrinsics that schedules may name."""
