"""Branches of a kernel that run side by side: threads that wait for what others do at `mbarrier`s.

Each branch has a thread of Python's, of which one runs at a time, until it waits or ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

Holds = Callable[[], bool]


class Deadlock(Exception):
    """Every branch waits for something that none of them will do."""


@dataclass(slots=True)
class _Branch:
    """`waiting`: the condition that it waits for, None while it can run; `turn` is set when it is
    to go on, `failure` what ended it."""

    run: Callable[[], None]
    waiting: Holds | None = None
    done: bool = False
    failure: BaseException | None = None
    turn: threading.Event = field(default_factory=threading.Event)


class Branches:
    """The branches that run at the moment; none where all threads are in one."""

    def __init__(self) -> None:
        self.running: list[_Branch] = []
        self.current: _Branch | None = None
        self.back = threading.Event()
        self.abandoned = False

    def wait(self, holds: Holds) -> None:
        """Let other branches run until the condition holds. Raises Deadlock where it never will."""
        me = self.current
        while not holds():
            if me is None:
                raise Deadlock
            me.waiting = holds
            self.back.set()
            me.turn.wait()
            me.turn.clear()
            if self.abandoned:
                raise Deadlock
            me.waiting = None

    def run(self, bodies: Sequence[Callable[[], None]]) -> None:
        """Run all of them to their ends. Raises what one of them raises."""
        self.running = [_Branch(body) for body in bodies]
        threads = [threading.Thread(target=self._thread, args=(b,)) for b in self.running]
        for thread in threads:
            thread.start()
        try:
            self._turns()
        finally:
            self.abandoned = True
            # One by one: what each of them reports is about the statement that it waits at.
            for branch, thread in zip(self.running, threads, strict=True):
                branch.turn.set()
                thread.join()
            self.running, self.current, self.abandoned = [], None, False

    def _turns(self) -> None:
        while left := [b for b in self.running if not b.done]:
            ready = [b for b in left if b.waiting is None or b.waiting()]
            if not ready:
                raise Deadlock
            for branch in ready:
                self.current = branch
                self.back.clear()
                branch.turn.set()
                self.back.wait()
                if branch.failure is not None:
                    raise branch.failure

    def _thread(self, branch: _Branch) -> None:
        branch.turn.wait()
        branch.turn.clear()
        try:
            if not self.abandoned:
                with np.errstate(all="ignore"):
                    branch.run()
        except BaseException as e:  # noqa: BLE001  raised again where the branches were begun
            branch.failure = e
        branch.done = True
        self.back.set()
