"""The error of a scheduling primitive whose conditions do not hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relaxlab.ir.errors import UserError
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import Buffer


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for refusing a primitive.

    `condition` is the condition that failed, `place` the loop or block it failed at, `about` the
    loop variables, block names and buffers that stand in the way (a schedule looks up the trace
    step that made them and fills in `cause`).
    """

    primitive: str
    place: str
    condition: str
    suggestion: str | None = None
    about: tuple[Var | Buffer | str, ...] = ()
    cause: str | None = None

    def render(self) -> str:
        """Return the refusal as text: the step and its place, the reason, the earlier step that
        caused it, and a way out."""
        lines = [f"{self.primitive} refused at {self.place}", f"  condition: {self.condition}"]
        if self.cause:
            lines.append(f"  caused by: {self.cause}")
        if self.suggestion:
            lines.append(f"  try: {self.suggestion}")
        return "\n".join(lines)


class ScheduleError(UserError):
    """A scheduling primitive was refused; the function is unchanged. `str()` renders it."""

    def __init__(
        self,
        primitive: str,
        place: str,
        condition: str,
        suggestion: str | None = None,
        about: tuple[Var | Buffer | str, ...] = (),
    ) -> None:
        self.refusal = Refusal(primitive, place, condition, suggestion, about)
        super().__init__(self.refusal)

    def with_cause(self, cause: str) -> ScheduleError:
        """This error naming the trace step that created the obstacle."""
        error = ScheduleError("", "", "")
        error.refusal = replace(self.refusal, cause=cause)
        error.args = (error.refusal,)
        return error

    def __str__(self) -> str:
        return self.refusal.render()
