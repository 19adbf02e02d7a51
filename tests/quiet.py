"""The machine for one test alone: workers beside it finish their tests, and wait before the next.

A lock that many tests share or one has to itself, in files, as workers are processes. A test goes
through a door to get it, which is shut while one waits for all others to be gone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import IO

import pytest

Quiet = Callable[[], AbstractContextManager[None]]


@pytest.fixture(scope="session")
def _locks(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[IO[str], IO[str]]]:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "door.lock").open("w") as door, (folder / "room.lock").open("w") as room:
        yield door, room


@pytest.fixture(autouse=True)
def quiet(_locks: tuple[IO[str], IO[str]]) -> Generator[Quiet]:
    """`with quiet():` no other test runs."""
    door, room = _locks

    def take(kind: int) -> None:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, kind)
        fcntl.flock(door, fcntl.LOCK_UN)

    @contextmanager
    def alone() -> Generator[None]:
        fcntl.flock(room, fcntl.LOCK_UN)
        take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)
            take(fcntl.LOCK_SH)

    take(fcntl.LOCK_SH)
    yield alone
    fcntl.flock(room, fcntl.LOCK_UN)
