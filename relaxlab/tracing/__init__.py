"""The trace: every pass, the module before and after, its rewrites and why, and the time."""

from relaxlab.tracing.record import PassRecord, Rewrite, Trace, note, recording

__all__ = ["PassRecord", "Rewrite", "Trace", "note", "recording"]
