"""Schedules without search for GPUs: an ordered list of rules, the first that fits a kernel wins.

They look at a kernel's blocks, not at its name, and bind every loop nest to blocks and threads.
"""

from relaxlab.schedule.rules_gpu.table import rules

__all__ = ["rules"]
