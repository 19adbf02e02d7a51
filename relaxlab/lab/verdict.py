"""Verdicts on answers to exercises, and the decorator that makes a check of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.ir.errors import UserError, own_lines

NO_ANSWER = "there is no answer yet; replace the ... in the cell above"


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

    exercises = str(Path(check.__code__.co_filename).parent)

    def places(error: BaseException | None) -> list[str]:
        """The learner's lines that led to an error."""
        return [*own_lines(error.__traceback__ if error else None, exercises)]

    @wraps(check)
    def run(*answer: Any) -> Verdict:
        try:
            if any(a is None or a is ... for a in answer):
                raise Hint(NO_ANSWER)
            return Verdict(True, check(*answer))
        except Hint as hint:
            return Verdict(False, "\n".join([str(hint), *places(hint.__cause__)[-1:]]))
        except UserError as error:
            return Verdict(False, f"the program is refused:\n{str(error).strip()}")
        except Exception as error:  # noqa: BLE001  an answer of a form that no check can foresee
            # Libraries and functions of the learner's that the program calls.
            if lines := places(error):
                return Verdict(False, f"your code fails: {_fault(error)}\n{lines[-1]}")
            *_, form = (t for name, t in check.__annotations__.items() if name != "return")
            return Verdict(False, f"an answer of the form {form} is asked for ({_fault(error)})")

    return run


def ask(answer: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of the answer. Raises Hint if it fails, from its error."""
    if not callable(answer):
        raise Hint(f"the answer must be a function, is {answer!r}")
    try:
        return answer(*args)
    except Exception as error:
        raise Hint(f"the function fails: {_fault(error)}") from error


def value_of(answer: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of the answer, with lists for tuples, iterators and arrays
    and plain numbers for NumPy's. Raises Hint if it fails or returns nothing."""
    result = _plain(ask(answer, *args))
    if result is None:
        raise Hint("the function returns None; does it end with `return` and the result?")
    if result is ...:
        raise Hint(NO_ANSWER)
    return result


def whole(value: object) -> int | None:
    """Return a whole number of any type as an int; None for what is none."""
    match _plain(value):
        case bool():
            return None
        case int() | float() as number if number % 1 == 0:
            return int(number)
        case _:
            return None


def _plain(value: Any) -> Any:
    match value:
        case np.ndarray() | np.generic():
            return value.tolist()
        case list() | tuple() | Iterator():
            return [_plain(v) for v in value]
        case _:
            return value


def _fault(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
