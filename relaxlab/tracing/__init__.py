"""The trace: every pass, the module before and after, its remarks, and the time."""

from relaxlab.tracing.limit import first_rewrites, may_apply
from relaxlab.tracing.record import PassRecord, Remark, Trace, recording, remark

__all__ = [
    "PassRecord", "Remark", "Trace", "may_apply", "first_rewrites", "remark", "recording",
]  # fmt: skip
