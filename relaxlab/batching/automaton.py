"""Learned policies: finite state machines that choose a batch by the types that are ready.

The source is Chen and others, *ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks
via Learned Finite State Machines* (2023).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias

from relaxlab.batching.execution import (
    CriticalPaths,
    Execution,
    PathCounter,
    Schedule,
)
from relaxlab.batching.graph import Graph
from relaxlab.batching.native import Table, native_schedule, table_of
from relaxlab.batching.policies import PolicyError
from relaxlab.codegen.llvm.batch_policies import AUTOMATON, BY_COUNT, BY_NUMBER, MOST_FIRST
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import path_of

State: TypeAlias = tuple[int, ...]
"""A state: numbers of types, put together by an encoding."""

FORMAT = "relaxlab batching policy"
VERSION = 1


def encode_base(ready: list[list[int]], types: list[int]) -> State:
    """The types in the order of their numbers."""
    return tuple(types)


def encode_max(ready: list[list[int]], types: list[int]) -> State:
    """The type with most ready nodes, then the types in the order of their numbers."""
    return (_with_most(ready, types), *types)


def encode_sort(ready: list[list[int]], types: list[int]) -> State:
    """The types, those with more ready nodes first."""
    return tuple(sorted(types, key=lambda t: -len(ready[t])))


ENCODINGS = {
    "base": encode_base, "max": encode_max, "sort": encode_sort, "critical": encode_base,
}  # fmt: skip
"""State encodings by name: functions of the ready nodes of each type and of the ready types. For
`critical`, which is not ED-Batch's, these are only the types whose batch lowers the bound of what
is left, if there are any: the automaton chooses among them."""


FORMS = {"base": BY_NUMBER, "max": MOST_FIRST, "sort": BY_COUNT, "critical": BY_NUMBER}
"""The encodings as compiled code knows them."""


def _with_most(ready: list[list[int]], types: list[int]) -> int:
    return max(types, key=lambda t: len(ready[t]))


@dataclass(frozen=True, slots=True)
class Entry:
    """The actions of a state. values: of each type to choose from, the sum of the rewards that
    follow, as learned, at most 0. visits: of the state while the policy was learned."""

    values: Mapping[int, float]
    visits: int

    @property
    def best(self) -> int:
        """The type of the largest value; of several, the one with the smallest number."""
        return max(self.values, key=lambda t: (self.values[t], -t))


@dataclass(frozen=True, slots=True, repr=False)
class Automaton(Brief):
    """A learned policy for graphs with types of given names. In a state that it does not know, it
    runs the type with most ready nodes."""

    types: tuple[str, ...]
    encoding: str
    table: Mapping[State, Entry]
    _actions: dict[State, int] = field(init=False, repr=False, compare=False)
    _table: Table = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "fsm"

    def __post_init__(self) -> None:
        actions = {state: entry.best for state, entry in self.table.items()}
        object.__setattr__(self, "_actions", actions)
        table = table_of(len(self.types), FORMS[self.encoding], actions)
        object.__setattr__(self, "_table", table)

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches that run every node.

        Raises PolicyError where the graph's types are not those of the policy.
        """
        self._check(graph)
        critical = self.encoding == "critical"
        return native_schedule(graph, AUTOMATON, critical=critical, table=self._table)

    def chooser(self, graph: Graph) -> AutomatonChooser:
        """Return the automaton at work on a graph, batch by batch. Raises PolicyError as
        `schedule` does."""
        self._check(graph)
        paths = CriticalPaths(graph).counter() if self.encoding == "critical" else None
        return AutomatonChooser(self, StateReader(self.encoding, paths))

    def _check(self, graph: Graph) -> None:
        if graph.types != self.types:
            raise PolicyError(
                f"the policy was learned for the types {', '.join(self.types)}; the graph has "
                f"{', '.join(graph.types)}: learn one for this program"
            )

    def action(self, state: State) -> int | None:
        """Return the type that is run in a state, None for a state that is not known."""
        return self._actions.get(state)

    def to_json(self) -> str:
        """Return the policy as a JSON object, the same text for equal policies."""
        states = [
            {
                "types": [self.types[t] for t in state],
                "visits": entry.visits,
                "values": {self.types[t]: entry.values[t] for t in sorted(entry.values)},
            }
            for state, entry in sorted(self.table.items())
        ]
        value = {
            "format": FORMAT, "version": VERSION, "types": list(self.types),
            "encoding": self.encoding, "states": states,
        }  # fmt: skip
        return json.dumps(value, indent=1) + "\n"

    @property
    def digest(self) -> str:
        """The SHA-256 of `to_json()`, for keys of what is compiled with it."""
        return sha256(self.to_json().encode()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` into a file."""
        path_of(path, "the path of a policy").write_text(self.to_json(), "utf-8")


@dataclass(slots=True)
class StateReader:
    """Reads the state of an execution. paths: of the graph, for the encoding `critical`."""

    encoding: str
    paths: PathCounter | None

    def read(self, execution: Execution, types: list[int]) -> tuple[State, list[int]]:
        """Return the state, and the types to choose from."""
        if self.paths is not None:
            types = self.paths.lossless(execution, types) or types
        return ENCODINGS[self.encoding](execution.ready, types), types

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        if self.paths is not None:
            self.paths.ran(of_type, nodes)


@dataclass(slots=True)
class AutomatonChooser:
    """An automaton at work on one graph."""

    automaton: Automaton
    reader: StateReader

    def choose(self, execution: Execution, types: list[int]) -> int:
        """Return the type of the next batch."""
        state, types = self.reader.read(execution, types)
        found = self.automaton.action(state)
        return _with_most(execution.ready, types) if found is None else found

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        self.reader.ran(of_type, nodes)


@names_arguments
def load_policy(path: str | os.PathLike[str]) -> Automaton:
    """Return the policy that `Automaton.save` wrote into a file.

    Raises FileNotFoundError, and PolicyError for a file that holds none, which names the fault.
    """
    file = path_of(path, "the path of a policy")
    try:
        text = file.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {os.fspath(path)} with a policy") from None
    try:
        return policy_of_json(text)
    except PolicyError as error:
        raise PolicyError(f"{os.fspath(path)} holds no policy: {error}") from None


def policy_of_json(text: str) -> Automaton:
    """Return the policy that `Automaton.to_json` wrote. Raises PolicyError, which names the
    fault."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"it is no JSON: {error}") from None
    known = isinstance(value, dict) and value.get("format") == FORMAT
    _require(known, f"its `format` is not {FORMAT!r}")
    fields: tuple[Any, ...] = tuple(map(value.get, ("version", "types", "encoding", "states")))
    version, types, encoding, rows = fields
    _require(version == VERSION, f"its `version` is {version!r} instead of {VERSION}")
    _require(_is_names(types), "`types` is no list of different names")
    _require(
        isinstance(encoding, str) and encoding in ENCODINGS,
        f"`encoding` is {encoding!r}, none of {', '.join(ENCODINGS)}",
    )
    _require(isinstance(rows, list), "`states` is no list")
    numbers = {name: number for number, name in enumerate(types)}
    table: dict[State, Entry] = {}
    for place, row in enumerate(rows):
        state, entry = _entry_of(row, numbers, f"state {place}")
        _require(state not in table, f"state {place} is there twice")
        table[state] = entry
    return Automaton(tuple(types), encoding, table)


def _entry_of(row: Any, numbers: Mapping[str, int], place: str) -> tuple[State, Entry]:
    """Return a row of `states`, checked."""
    _require(isinstance(row, dict), f"{place} is no object")
    fields: tuple[Any, ...] = tuple(map(row.get, ("types", "values", "visits")))
    names, values, visits = fields
    known = isinstance(names, list) and all(isinstance(n, str) and n in numbers for n in names)
    _require(known and bool(names), f"{place}: `types` is no list of the policy's types")
    _require(isinstance(values, dict) and bool(values), f"{place}: `values` has none")
    for name, value in values.items():
        _require(name in names, f"{place}: {name!r} has a value but is not in `types`")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        _require(number and math.isfinite(value), f"{place}: the value of {name!r} is no number")
    counted = isinstance(visits, int) and not isinstance(visits, bool) and visits >= 0
    _require(counted, f"{place}: `visits` is no count")
    state = tuple(numbers[name] for name in names)
    return state, Entry({numbers[name]: float(v) for name, v in values.items()}, visits)


def _is_names(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return False
    return len(set(value)) == len(value)


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise PolicyError(fault)
