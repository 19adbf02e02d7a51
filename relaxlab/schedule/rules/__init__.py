"""Schedules without search: an ordered list of rules, the first that fits a kernel wins.

A rule looks at the loop function's blocks (analysis-based, like TVM's dlight) and returns the
schedule that it made, or the reason why it does not fit. `fallback` always fits.
"""

from relaxlab.schedule.rules.table import replay_kernel, rules, schedule_kernel

__all__ = ["replay_kernel", "rules", "schedule_kernel"]
