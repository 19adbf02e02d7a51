"""No test begins while one has the machine to itself."""

from __future__ import annotations

import fcntl
from typing import IO

import pytest

from tests.quiet import Quiet


def test_a_test_alone_shuts_others_out(quiet: Quiet, _locks: tuple[IO[str], IO[str]]) -> None:
    _, room = _locks
    with open(room.name, "r+") as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)
        with quiet(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
