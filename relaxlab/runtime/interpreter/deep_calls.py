"""Recursion in the interpreter deeper than Python's own stack of frames.

Python allows about 1000 frames per thread, and one call of an interpreted function takes about ten.
After some levels a call therefore goes on in a thread of its own, while its caller waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from relaxlab.runtime.arrays import ExecutionError

LEVELS_PER_THREAD = 32
"""Calls in one thread. A level of nested branches takes more frames than one without: 32 levels
leave a call about 25."""
MOST_LEVELS = 10_000
"""The depth of recursion of compiled functions: their smallest frames fill 2 MB of stack at about
as many."""


class _Levels(threading.local):
    """The depth of interpreted calls: in this thread, and in all together."""

    here: int = 0
    total: int = 0


_levels = _Levels()


def call_nested(name: str, call: Callable[[], Any]) -> Any:
    """Return `call()`, one level deeper than the call in progress.

    Raises ExecutionError beyond `MOST_LEVELS` levels of the calls that end in one of `name`.
    """
    if _levels.total >= MOST_LEVELS:
        raise ExecutionError(
            f"`{name}` is called too deeply: {MOST_LEVELS:,} calls are in progress"
        )
    if _levels.here >= LEVELS_PER_THREAD:
        return _in_thread(call)
    _levels.here += 1
    _levels.total += 1
    try:
        return call()
    finally:
        _levels.here -= 1
        _levels.total -= 1


def _in_thread(call: Callable[[], Any]) -> Any:
    # The bisection limit and other settings are context variables, which a new thread would not
    # have.
    total, context = _levels.total, copy_context()
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        _levels.here, _levels.total = 1, total + 1
        try:
            results.append(context.run(call))
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)

    # A daemon, so that Ctrl-C, which reaches only the main thread, still ends the process.
    thread = threading.Thread(target=run, name="relaxlab-nested-call", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
