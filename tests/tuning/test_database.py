"""The database of a tuner: what is kept is kept whole, whoever writes and however they end."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import relaxlab as rl
from relaxlab.runtime.cache import compiler_version, machine_key
from relaxlab.tuning.database import Database, DatabaseError, Key, Record
from relaxlab.tuning.matrix import Matrix, Row
from relaxlab.tuning.statistics import Interval

HOST = rl.Target.host()
RECORD = Record(
    "kernel", machine_key(HOST), 2, compiler_version(), "a processor", 1.5, "accepted", "",
    {"tile": (4, 8), "unroll": 1, "copy": True, "form": "rows"}, ({"n": 3},), (1.2, 1.1, 1.3), "[]",
)  # fmt: skip


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    failed = replace(RECORD, time=1.0, outcome="failed", reason="SIGSEGV", interval=None)
    database.add(RECORD, failed)
    database.add(RECORD)
    assert list(database.records()) == [failed, RECORD]
    assert list(database.records(RECORD.key)) == [failed, RECORD]
    assert not list(database.records(Key("kernel", "another", 2)))
    (point,) = {repr(r.point) for r in database.records()}
    assert point == repr(RECORD.point)  # True is no 1, a tuple no list
    assert repr(database).count("\n") == 0


def test_the_last_search_by_this_compiler_on_this_machine_counts(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    later = replace(RECORD, time=2.0, point={"unroll": 2})
    others = (
        replace(later, version="another compiler"), replace(later, target="another machine"),
        replace(later, threads=1), replace(later, outcome="measured"),
    )  # fmt: skip
    database.add(RECORD, *(replace(r, time=3.0) for r in others))
    assert database.accepted(HOST, 2) == {"kernel": RECORD.point}
    database.add(later)
    assert database.accepted(HOST, 2) == {"kernel": {"unroll": 2}}
    database.add(replace(RECORD, time=4.0, outcome="default", point={}))
    assert database.accepted(HOST, 2) == {}
    assert len(list(database.records())) == 7  # nothing was deleted


def test_json_there_and_back(tmp_path: Path) -> None:
    one, other = Database(tmp_path / "a.db"), Database(tmp_path / "b.db")
    one.add(RECORD, replace(RECORD, time=9.0, interval=None))
    assert other.add_json(one.to_json()) == 2 and other.add_json(one.to_json()) == 2
    assert list(other.records()) == list(one.records())
    for text in ("{", "[1]", json.dumps({"kernel": "k"})):
        with pytest.raises(DatabaseError, match="not the records|other fields"):
            other.add_json(text)
    assert list(other.records()) == list(one.records())


@pytest.mark.parametrize(
    ("version", "later"), [(1, ("matrix", "predicted", "beside")), (2, ("beside",))]
)
def test_files_of_earlier_formats_are_read_and_written(
    tmp_path: Path, version: int, later: tuple[str, ...]
) -> None:
    path = tmp_path / "a.db"
    Database(path).add(RECORD)
    with closing(sqlite3.connect(path)) as connection:
        for column in later:
            connection.execute(f"alter table records drop column {column}")
        connection.execute(f"pragma user_version = {version}")
    matrix = Matrix(({"n": 3},), (Row({"tile": (1, 2)}, (Interval(1.2, 1.1, 1.3),)),), (0,))
    beside = {"tile": (1, 2)}
    new = replace(RECORD, time=2.0, matrix=matrix, predicted=1.5, beside=beside)
    Database(path).add(new)
    assert list(Database(path).records()) == [RECORD, new]
    old = {k: v for k, v in RECORD.to_json().items() if k not in later}
    assert Record.from_json(old) == RECORD


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Database(tmp_path / "none.db", create=False)
    text = tmp_path / "text.db"
    text.write_text("not a database at all, but a text of some length " * 40)
    with pytest.raises(DatabaseError, match="cannot be used as a database"):
        Database(text)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("create table t (x)")
    with pytest.raises(DatabaseError, match="no database of tuned kernels of this version"):
        Database(other)


WRITER = """
import sys
from relaxlab.tuning.database import Database, Record
database = Database(sys.argv[1])
for i in range(100_000):
    pair = [Record(sys.argv[2], "t", 1, "v", "m", float(i), "measured", str(half), {}, (), None,
                   "x" * 2000) for half in "ab"]
    for number, record in enumerate(pair):
        object.__setattr__(record, "point", {"half": number})
    database.add(*pair)
    print(i, flush=True)
"""


def test_writers_that_are_killed_lose_nothing_that_they_kept(tmp_path: Path) -> None:
    """Three write at once, the first records of all into a new file; each is killed at some moment.
    A transaction is there as a whole or not at all, and all that were acknowledged are there."""
    path = tmp_path / "a.db"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, text=True
        )
        for name in "pqr"
    ]
    kept: dict[str, int] = {}
    for name, writer, count in zip("pqr", writers, (5, 9, 14), strict=True):
        assert writer.stdout is not None
        for _ in range(count):
            assert writer.stdout.readline().strip().isdecimal()
        writer.send_signal(signal.SIGKILL)
        last = [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        kept[name] = max(last, default=count - 1)
    database = Database(path, create=False)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    found = Counter((r.kernel, r.time) for r in database.records())
    assert set(found.values()) == {2}
    for name, last in kept.items():
        assert {(name, float(i)) for i in range(last + 1)} <= set(found)
    database.add(RECORD)
    assert RECORD in list(database.records())
