"""The database of a tuner: trials, and the decisions that were accepted for kernels, in one file.

SQLite in its write-ahead mode: each record is one transaction, which is in the file as a whole or
not at all, however the process ends. Several processes may write at a time, on one machine: a
network's file system has no locks that SQLite can rely on.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError, path_of
from relaxlab.ir.target import Target
from relaxlab.runtime.cache import compiler_version, machine_key
from relaxlab.schedule.decisions import Made, is_in_space
from relaxlab.tuning.matrix import Matrix
from relaxlab.tuning.points import Point, point_from_json

Outcome: TypeAlias = Literal["accepted", "measured", "same", "invalid", "failed", "default"]
"""The ends of a trial. accepted: confirmed to be faster than the default; measured: not, or not
yet; same: it makes the program of an earlier trial; invalid: no rule schedules the kernel so;
failed: it could not be built or run, or computed something else; default: no decisions of a search
were confirmed."""

BUSY_SECONDS = 60.0
"""For which a writer waits for others; each needs a few milliseconds."""
FORMAT = 3
"""The number of the tables' format, in the file's `user_version`."""
_NEW_COLUMNS = {1: ("matrix text", "predicted real", "beside text"), 2: ("beside text",)}
"""The columns that files of earlier formats are given when they are opened."""
_TABLES = """
create table if not exists records (
    id integer primary key,
    kernel text not null, target text not null, threads integer not null,
    version text not null, machine text not null, time real not null,
    outcome text not null, reason text not null,
    point text not null, sizes text not null, interval text, trace text not null,
    matrix text, predicted real, beside text,
    unique (kernel, target, threads, version, machine, time, outcome, point)
);
create index if not exists by_kernel on records (kernel, target, threads);
"""


class DatabaseError(UserError, OSError):
    """A file that is no database of a tuner, or of another version of it."""


@dataclass(frozen=True, slots=True, repr=False)
class Key(Brief):
    """The kernel that a record is about: `Context.key_of` it, `machine_key` of its target, and how
    many threads ran it."""

    kernel: str
    target: str
    threads: int


@dataclass(frozen=True, slots=True, repr=False)
class Record(Brief):
    """One trial, or how the search for a kernel ended (outcomes `accepted` and `default`).

    sizes: the values of the kernel's symbols that it was measured for. interval: how many times as
    fast it is over these sizes as what it was measured beside (for `accepted` the default, else the
    best before it): the middle, the lower and the upper bound; None where nothing was measured, or
    too little. trace: the schedule's, as JSON; "" where there is none. version: of the compiler
    (`compiler_version`); machine: its processor; time: in seconds since 1970.

    matrix: for `accepted` and `default`, what was measured at each size after the search, where
    something was. predicted: how many times as fast as the default a cost model said that a trial
    would be over all sizes, before it was built; None where no model was asked. beside: the point
    that it was measured beside, {} for the default; None where nothing was measured, or where the
    record is of an earlier version.
    """

    kernel: str
    target: str
    threads: int
    version: str
    machine: str
    time: float
    outcome: Outcome
    reason: str
    point: Point
    sizes: tuple[dict[str, int], ...]
    interval: tuple[float, float, float] | None
    trace: str
    matrix: Matrix | None = None
    predicted: float | None = None
    beside: Point | None = None

    @property
    def key(self) -> Key:
        """The kernel that it is about."""
        return Key(self.kernel, self.target, self.threads)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON has them, for `from_json`."""
        return asdict(self)

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Record:
        """The record of these fields. Raises DatabaseError for others."""
        names = {f.name for f in fields(Record)}
        if not names - LATER <= set(found) <= names:
            raise DatabaseError(f"a record has other fields than {', '.join(found)}")
        interval, matrix, beside = found["interval"], found.get("matrix"), found.get("beside")
        lists: dict[str, Any] = {
            "point": point_from_json(found["point"]),
            "sizes": tuple(found["sizes"]),
            "interval": None if interval is None else tuple(interval),
            "beside": None if beside is None else point_from_json(beside),
            "matrix": None if matrix is None else Matrix.from_json(matrix),
        }
        return Record(**{**found, **lists})


LATER = {"matrix", "predicted", "beside"}
"""Fields that records of earlier versions do not have."""


@methods_name_arguments
class Database(Brief):
    """The records of a file. Each method opens it anew: processes that are forked, and threads, may
    use one object."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        """Raises FileNotFoundError where there is no file and none is to be made, DatabaseError for
        a file that is something else."""
        self.path = path_of(path, "the path of a database")
        if not create and not self.path.exists():
            raise FileNotFoundError(2, "there is no such database of tuned kernels", str(path))
        with closing(self._connected()) as connection:
            found = connection.execute("pragma user_version").fetchone()[0]
            tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
            if found in _NEW_COLUMNS:
                _upgrade(connection)
            elif found != FORMAT and (found or tables):
                raise DatabaseError(f"{self.path} is no database of tuned kernels of this version")
            elif not tables or found != FORMAT:
                version = f"pragma user_version = {FORMAT};"
                connection.executescript(f"begin immediate;{_TABLES}{version}commit;")

    def _connected(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            connection.execute("pragma journal_mode = wal")
            # A transaction that a power cut takes away is measured again; kill -9 takes none.
            connection.execute("pragma synchronous = normal")
        except sqlite3.Error as error:
            raise DatabaseError(f"{self.path} cannot be used as a database: {error}") from None
        return connection

    def add(self, *records: Record) -> None:
        """Keep records, all or none; those that are there already stay as they are."""
        rows = [_row(record) for record in records]
        with closing(self._connected()) as connection:
            connection.execute("begin immediate")
            connection.executemany(_INSERT, rows)
            connection.execute("commit")

    def records(self, key: Key | None = None) -> Iterator[Record]:
        """Yield the records in the order in which they were made, of one kernel or of all."""
        where, values = ("", ()) if key is None else (
            " where kernel = ? and target = ? and threads = ?",
            (key.kernel, key.target, key.threads),
        )  # fmt: skip
        with closing(self._connected()) as connection:
            query = f"select {', '.join(_COLUMNS)} from records{where} order by time, id"
            for row in connection.execute(query, values).fetchall():
                yield _record(row)

    def accepted(self, target: Target, threads: int) -> dict[str, Made]:
        """The schedules with which kernels are faster on this machine, by kernel: the decisions of
        their rules, or the trace where a space made it.

        The last search for a kernel counts, by this very compiler: what another one made of the
        decisions says nothing about this one.
        """
        query = (
            "select kernel, point, trace from records "
            "where target = ? and threads = ? and version = ? "
            "and outcome in ('accepted', 'default') order by time, id"
        )
        values = machine_key(target), threads, compiler_version()
        with closing(self._connected()) as connection:
            # The last of a kernel replaces those before it.
            rows = connection.execute(query, values).fetchall()
        made = {kernel: (point_from_json(json.loads(text)), trace) for kernel, text, trace in rows}
        return {k: trace if is_in_space(p) else p for k, (p, trace) in made.items() if p}

    def to_json(self) -> str:
        """All records, one JSON object a line."""
        return "".join(json.dumps(record.to_json()) + "\n" for record in self.records())

    def add_json(self, text: str) -> int:
        """Add the records that `to_json` wrote; return how many the text has. Raises DatabaseError
        for another text."""
        try:
            found = [Record.from_json(json.loads(line)) for line in text.splitlines() if line]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DatabaseError(f"not the records of a database: {error}") from None
        self.add(*found)
        return len(found)


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring the tables of an earlier format to this one, unless another process just did."""
    connection.execute("begin immediate")
    found = connection.execute("pragma user_version").fetchone()[0]
    for column in _NEW_COLUMNS.get(found, ()):
        connection.execute(f"alter table records add column {column}")
    connection.execute(f"pragma user_version = {FORMAT}")
    connection.execute("commit")


_COLUMNS = tuple(f.name for f in fields(Record))
_JSON = ("point", "sizes", "interval", "matrix", "beside")
_INSERT = (
    f"insert or ignore into records ({', '.join(_COLUMNS)}) "
    f"values ({', '.join('?' * len(_COLUMNS))})"
)


def _row(record: Record) -> list[Any]:
    made = record.to_json()
    return [json.dumps(made[c]) if c in _JSON else made[c] for c in _COLUMNS]


def _record(row: Iterable[Any]) -> Record:
    found = dict(zip(_COLUMNS, row, strict=True))
    # A file of an earlier format has no matrix in old rows.
    return Record.from_json(found | {c: json.loads(found[c] or "null") for c in _JSON})
