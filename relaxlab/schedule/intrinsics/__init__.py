"""The tensor intrinsics of the package, a file per family; importing this registers them."""

from relaxlab.schedule.intrinsics import amx, dot2, dot4, mma, reduce

REGISTERED = (amx, dot2, dot4, mma, reduce)
"""The files of intrinsics that schedules may name."""
