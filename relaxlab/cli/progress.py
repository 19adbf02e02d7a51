"""A line on the terminal with the current step and its time so far."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self


class Progress:
    """Call it with each step; the line disappears at the end. Silent unless stderr is a terminal.

    >>> with Progress() as progress:
    ...     progress("compiling")
    """

    def __init__(self) -> None:
        self._step = ""
        self._start = time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
            _write("")

    def __call__(self, step: str) -> None:
        self._step, self._start = step, time.monotonic()

    def _tick(self) -> None:
        while not self._done.wait(0.2):
            seconds = time.monotonic() - self._start
            _write(f"{self._step} … {seconds:.0f} s" if self._step else "")


def _write(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()
