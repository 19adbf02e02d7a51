"""The base of relaxlab's errors: what a notebook and a terminal show of one."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from numbers import Integral, Real
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from relaxlab.ir.span import title_of

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = str(Path(__file__).resolve().parents[1])
GENERATED = "<loop function>"
"""The file that loop functions translated to Python are from."""
_LIBRARIES = (
    "site-packages", "dist-packages", str(Path(linecache.__file__).parent), GENERATED
)  # fmt: skip


class UserError(Exception):
    """Base of the errors whose message names the fault and a way out: a notebook shows it with the
    lines of the user's code that led to it, and no frame of the compiler. It can be copied and
    sent to another process, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _error_again, (type(self), self.args), vars(self)

    def _render_traceback_(self, *_: object) -> list[str]:
        """The lines that IPython prints when the error is raised."""
        return _lines_of(self)


def _lines_of(error: Exception, *_: object) -> list[str]:
    """The user's lines that led to an error, and its message."""
    # Python shows the message of a KeyError in quotes, as if it were the key.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    place = list(own_lines(error.__traceback__))
    return [*place, *f"{type(error).__name__}: {text.strip()}".splitlines()]


def show_briefly(error: Exception) -> None:
    """Let a notebook show an error as it shows a `UserError`."""
    vars(error)["_render_traceback_"] = partial(_lines_of, error)


def _error_again(cls: type[UserError], args: tuple[Any, ...]) -> UserError:
    """An error without its attributes, which `__reduce__` gives it."""
    return cls.__new__(cls, *args)


class NestedTooDeeply(UserError, RecursionError):
    """A program is nested deeper than the compiler's functions, which call themselves for each
    level, may go."""

    def __init__(self) -> None:
        super().__init__(
            "expressions of this program are nested too deeply for Python's limit of "
            f"{sys.getrecursionlimit()} calls inside each other: bind parts of them to variables, "
            "let `fuse_ops` put fewer calls into a kernel (max_group), or raise the limit with "
            "sys.setrecursionlimit"
        )


def explaining_depth(fn: Callable[P, R]) -> Callable[P, R]:
    """A function that raises `NestedTooDeeply` instead of RecursionError."""

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except RecursionError as error:
            raise NestedTooDeeply from error

    return call


def kind_of(value: object) -> str:
    """Return the name of a value's type with its article, for messages: "an int", "an ndarray"."""
    name = type(value).__name__
    if value is None:
        return "None"
    vowel = name.lower().startswith(("a", "e", "i", "o", "u", "nda"))
    return f"{'an' if vowel else 'a'} {name}"


def expect(value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Raise TypeError for a value of another kind; what: the sentence that it breaks, "seconds is
    a number"."""
    if not isinstance(value, kind):
        plain = value is None or isinstance(value, str | int | float)
        raise TypeError(f"{what}, not {repr(value) if plain else kind_of(value)}")


def expect_number(value: object, what: str, *, whole: bool = False) -> None:
    """Raise TypeError for a value that is no number, or no whole one; what: as `expect` takes."""
    kinds = (Integral,) if whole else (Real,)
    expect(None if isinstance(value, bool) else value, kinds, what)


def path_of(value: str | os.PathLike[str], what: str) -> Path:
    """Return a path; what: its name in the TypeError for a value that is none."""
    expect(value, (str, os.PathLike), f"{what} is a string or a pathlib.Path")
    return Path(value)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, for messages: "1 argument", "2 arguments", "3 indices"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def tuple_text(items: Iterable[object]) -> str:
    """Return a tuple as Python writes it, its elements as they are printed: "(n, 4)", "(64,)"."""
    texts = [str(item) for item in items]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def own_lines(traceback: TracebackType | None, but: str = PACKAGE) -> Iterator[str]:
    """The lines of a traceback that are neither relaxlab's nor a library's, nor from the folder
    `but`; notebook cells are called "cell"."""
    while traceback is not None:
        code, line = traceback.tb_frame.f_code, traceback.tb_lineno
        file = code.co_filename
        if not file.startswith((PACKAGE, but)) and not any(part in file for part in _LIBRARIES):
            text = linecache.getline(file, line, traceback.tb_frame.f_globals).strip()
            place = f"{title_of(file)}, line {line}"
            yield f"{place}: {text}" if text else place
        traceback = traceback.tb_next


BRIEF = set[Callable[..., Any]]()
"""The functions that `brief` returned."""


def brief(fn: Callable[P, R]) -> Callable[P, R]:
    """A function of the public API whose errors, where they are a `UserError`, come without the
    frames below it; under `python -X dev`, with them."""

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except UserError as error:
            if not sys.flags.dev_mode:
                error.__traceback__ = None
            raise

    BRIEF.add(call)
    return call
