"""Cross-checks between machines: a result that would change the search is measured on another one.

A machine may be broken, or busy with something else, and say of every program that it is fast or
that it fails. Such a claim is believed where a second machine says so too; where the two
contradict each other a third decides, and whoever stands alone has a strike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.ir.brief import Brief
from relaxlab.tuning.children import TrialFailed
from relaxlab.tuning.executor import Reply
from relaxlab.tuning.measured import measured_of
from relaxlab.tuning.statistics import Interval

MOST = 3
"""Machines that measure one program, at most."""
STRIKES = 3
"""Contradictions after which a machine is not used any more; chance makes one now and then."""

ALIKE = 1.05
"""The factor between the intervals of two machines up to which they agree: those of one kind differ
in memory and in what else they run."""


@dataclass(frozen=True, slots=True, repr=False)
class Report(Brief):
    """A machine's reply to the request for a measurement."""

    machine: str
    reply: Reply

    @property
    def ratio(self) -> Interval | None:
        """The factor by which the program is faster; None where it failed."""
        if isinstance(self.reply, TrialFailed):
            return None
        measured = measured_of(self.reply[0]["ratios"])
        return measured.interval or Interval(*3 * (measured.ratio,))

    @property
    def is_claim(self) -> bool:
        """True if the search would go another way than without the trial."""
        return isinstance(self.reply, TrialFailed) or measured_of(self.reply[0]["ratios"]).is_faster


@dataclass(frozen=True, slots=True, repr=False)
class Verdict(Brief):
    """The reply that is believed, and the machine that stands alone against it, if there is one."""

    reply: Reply
    alone: str | None = None


def verdict_of(reports: Sequence[Report], others: int) -> Verdict | None:
    """The verdict on what machines reported about one program; None where one of the `others`, the
    number of machines that have not been asked, has to be asked first."""
    last = reports[-1]
    if not last.is_claim and len(reports) == 1:
        return Verdict(last.reply)
    for report in reports[:-1]:
        if _agree(report, last):
            # The latest is an independent measurement; the first was chosen for being fast.
            odd = [r.machine for r in reports[:-1] if not _agree(r, last)]
            return Verdict(last.reply, odd[0] if odd else None)
    if others and len(reports) < MOST:
        return None
    return Verdict(min(reports, key=_promise).reply)


def _agree(one: Report, other: Report) -> bool:
    before, after = one.ratio, other.ratio
    if before is None or after is None:
        return before is after
    both_slow = not (one.is_claim or other.is_claim)
    apart = max(before.low / after.high, after.low / before.high)
    return both_slow or apart <= ALIKE


def _promise(report: Report) -> float:
    return 0.0 if report.ratio is None else report.ratio.middle
