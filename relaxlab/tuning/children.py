"""Worker processes of a tuner (`worker.py`): each answers one request at a time, and may be killed.

They are new interpreters, not forks: they have none of the threads and locks of the process that
tunes, they run on every system, and what they are told is text, so that workers on other machines
can be told the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TypeAlias, TypeVar

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError
from relaxlab.tuning.messages import Message, receive, send

_T = TypeVar("_T")
_R = TypeVar("_R")
ROOT = Path(__file__).parents[2]
"""The folder in which the package is."""
START_SECONDS = 600.0
"""Within which a process has started and answered its first message, on a machine that is busy with
everything else."""


class TrialFailed(UserError, RuntimeError):
    """A request failed, and nothing but that: the reason, in a line."""


Answer: TypeAlias = tuple[Message, list[bytes]]
"""A message of a worker, and bytes that belong to it."""


@dataclass(frozen=True, slots=True, repr=False)
class Request(Brief):
    """A message to a worker, with bytes that belong to it. seconds: within which there is an
    answer. opening: a request that the process has to have answered before this one; None where it
    may be any."""

    message: Message
    blobs: tuple[bytes, ...] = ()
    seconds: float = START_SECONDS
    opening: Request | None = None


class Child:
    """A worker process, started on its first request, and again after it ended."""

    def __init__(self) -> None:
        self._opened: Request | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def ask(self, request: Request) -> Answer:
        """The answer to a request. Raises TrialFailed where there is none in time, where the
        process ends, and with the reason where the worker says that it failed."""
        if self._process is None:
            self._start()
        if request.opening is not None and request.opening != self._opened:
            self._opened = None  # unless it is answered
            self._exchange(request.opening)
            self._opened = request.opening
        return self._exchange(request)

    def kill(self) -> None:
        """End the process, at any moment and from any thread: a request fails with it."""
        process = self._process
        if process is not None:
            _kill(process)

    def close(self) -> None:
        """End the process; no other thread is asking it."""
        if self._process is not None:
            _kill(self._process)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._errors):
                assert stream is not None
                with suppress(OSError):  # what it did not read any more
                    stream.close()
        self._process = self._opened = None

    def _start(self) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        # Closed in `close`, with the process.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "relaxlab.tuning.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env={**os.environ, "PYTHONPATH": path},
            # Ctrl-C is for the process that tunes, which ends its workers.
            start_new_session=True,
        )  # fmt: skip

    def _exchange(self, request: Request) -> Answer:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def kill() -> None:
            late.set()
            _kill(process)

        timer = threading.Timer(request.seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            send(process.stdin, request.message, request.blobs)
            answer, parts = receive(process.stdout)
        except (EOFError, OSError):
            reason = f"no answer within {request.seconds:.3g} s" if late.is_set() else self._end()
            self.close()
            raise TrialFailed(reason) from None
        except BaseException:  # Ctrl-C: the answer would be taken for that of the next request
            self.close()
            raise
        finally:
            timer.cancel()
        if "error" in answer:
            raise TrialFailed(answer["error"])
        return answer, parts

    def _end(self) -> str:
        """A text on how the process ended."""
        assert self._process is not None and self._errors is not None
        code = self._process.wait()
        if code < 0:
            return f"the process was ended by {signal.Signals(-code).name}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with the code {code}: {lines[-1] if lines else 'no message'}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it forked, which have its pipes, too."""
    # Until it is waited for, no other process gets its number.
    if process.returncode is None and hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


class Pool:
    """Worker processes that answer requests side by side."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._children = [Child() for _ in range(count)]
        self._idle: SimpleQueue[Child] = SimpleQueue()
        for child in self._children:
            self._idle.put(child)
        self._threads = ThreadPoolExecutor(count)

    def map(self, function: Callable[[Child, _T], _R], items: Sequence[_T]) -> list[_R]:
        """The results of the function for a worker and each item."""

        def run(item: _T) -> _R:
            child = self._idle.get()
            try:
                return function(child, item)
            finally:
                self._idle.put(child)

        try:
            return list(self._threads.map(run, items))
        except BaseException:  # Ctrl-C: nobody waits for the answers
            self.kill()
            raise

    def kill(self) -> None:
        """End the processes; requests that are pending fail."""
        for child in self._children:
            child.kill()

    def close(self) -> None:
        """End the pool."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.kill()
        # Waiting requests have failed by now; their threads end, then nothing uses the processes.
        self._threads.shutdown()
        for child in self._children:
            child.close()


@contextmanager
def pool_of(count: int) -> Iterator[Pool]:
    """A pool that is closed at the end."""
    pool = Pool(count)
    try:
        yield pool
    finally:
        pool.close()
