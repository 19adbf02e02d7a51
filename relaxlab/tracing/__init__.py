"""The trace: every pass, the module before and after, its rewrites and why, and the time."""

from relaxlab.tracing.limit import decide, first_rewrites
from relaxlab.tracing.record import PassRecord, Rewrite, Trace, note, recording

__all__ = [
    "PassRecord", "Rewrite", "Trace", "decide", "first_rewrites", "note", "recording",
]  # fmt: skip
