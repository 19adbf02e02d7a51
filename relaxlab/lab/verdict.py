"""Verdicts on answers to exercises, and the decorator that makes a check of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from html import escape
from pathlib import Path
from typing import Any

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import own_lines
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.schedule.error import ScheduleError


class Hint(Exception):  # noqa: N818  an answer that is not right yet is no error
    """Raised by a check: what is wrong with the answer, in a sentence that helps."""


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """The judgement of an answer, right or wrong, and the reason."""

    ok: bool
    text: str

    def __repr__(self) -> str:
        return f"{'✓' if self.ok else '✗ not yet:'} {self.text}"

    def _repr_html_(self) -> str:
        colour = "#2e7d32" if self.ok else "#c77700"
        style = (
            f"border-left: 4px solid {colour}; padding: .3em .8em; "
            "white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere"
        )
        return f'<pre style="{style}">{escape(repr(self))}</pre>'


def exercise(check: Callable[..., str]) -> Callable[..., Verdict]:
    """A check raises `Hint`, or returns what to say about a right answer. The type of its last
    parameter is what learners read where their answer is something else, on which the check fails.
    """

    @wraps(check)
    def run(*answer: Any) -> Verdict:
        try:
            if any(a is None or a is ... for a in answer):
                raise Hint("there is no answer yet; replace the ... in the cell above")
            return Verdict(True, check(*answer))
        except Hint as hint:
            return Verdict(False, str(hint))
        except (DiagnosticError, ExecutionError, ScheduleError) as error:
            return Verdict(False, f"the program is refused:\n{str(error).strip()}")
        except Exception as error:  # noqa: BLE001  an answer of a form that no check can foresee
            # Libraries and functions of the learner's that the program calls.
            exercises = str(Path(check.__code__.co_filename).parent)
            places = [*own_lines(error.__traceback__, exercises)]
            if places:
                return Verdict(False, _failure("your code", error, places))
            *_, form = (t for name, t in check.__annotations__.items() if name != "return")
            fault = f"{type(error).__name__}: {error}"
            return Verdict(False, f"an answer of the form {form} is asked for ({fault})")

    return run


def ask(answer: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of the answer. Raises Hint if it fails."""
    if not callable(answer):
        raise Hint(f"the answer must be a function, is {answer!r}")
    try:
        return answer(*args)
    except Exception as error:
        assert error.__traceback__ is not None
        places = [*own_lines(error.__traceback__.tb_next)]
        raise Hint(_failure("the function", error, places)) from error


def value_of(answer: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of the answer. Raises Hint if it fails or returns nothing."""
    result = ask(answer, *args)
    if result is None:
        raise Hint("the function returns None; does it end with `return` and the result?")
    return result


def _failure(what: str, error: Exception, places: Sequence[str]) -> str:
    """A message of what fails and why, with the last of the learner's lines that led to it."""
    where = f"\n{places[-1]}" if places else ""
    return f"{what} fails: {type(error).__name__}: {error}{where}"
