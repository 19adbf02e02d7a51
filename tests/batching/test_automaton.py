"""Automata: states, files, what is refused."""

from __future__ import annotations

import json

import pytest

from relaxlab.batching.automaton import (
    ENCODINGS,
    Automaton,
    Entry,
    load_policy,
    policy_of_json,
)
from relaxlab.batching.execution import check_schedule
from relaxlab.batching.graph import minibatch_graph
from relaxlab.batching.policies import PolicyError

TYPES = ("a", "b")
GRAPH = minibatch_graph(TYPES, [0, 1, 1, 0], [[], [], [], [1, 2]])
POLICY = Automaton(
    TYPES, "base",
    {(0, 1): Entry({0: -1.0, 1: -0.5}, 7), (0,): Entry({0: 0.0}, 3)},
)  # fmt: skip


def test_the_action_of_the_largest_value_is_taken():
    schedule = POLICY.schedule(GRAPH)
    check_schedule(schedule)
    assert [(t, nodes.tolist()) for t, nodes in schedule] == [(1, [1, 2]), (0, [0, 3])]


def test_an_unknown_state_runs_the_type_with_most_ready_nodes():
    schedule = Automaton(TYPES, "base", {}).schedule(GRAPH)
    assert schedule.types.tolist() == [1, 0]
    lonely = minibatch_graph(TYPES, [0, 0, 1], [[], [], []])
    assert Automaton(TYPES, "sort", {}).schedule(lonely).types.tolist() == [0, 1]


def test_encodings():
    ready = [[0], [1, 2], [], [3]]
    types = [0, 1, 3]
    assert ENCODINGS["base"](ready, types) == (0, 1, 3)
    assert ENCODINGS["max"](ready, types) == (1, 0, 1, 3)
    assert ENCODINGS["sort"](ready, types) == (1, 0, 3)


def test_critical_automata_choose_among_types_that_lose_nothing():
    """Of b, the head of the longest chain is not ready; of a it is."""
    graph = minibatch_graph(TYPES, [0, 1, 1, 1], [[], [], [0], [2]])
    prefers_b = {(0, 1): Entry({0: -1.0, 1: 0.0}, 1)}
    assert Automaton(TYPES, "base", prefers_b).schedule(graph).types.tolist()[0] == 1
    assert Automaton(TYPES, "critical", prefers_b).schedule(graph).types.tolist() == [0, 1, 1]


def test_a_file_brings_the_policy_back(tmp_path):
    path = tmp_path / "policy.json"
    POLICY.save(path)
    found = load_policy(path)
    assert found == POLICY and found.digest == POLICY.digest
    assert found.to_json() == path.read_text()
    other = Automaton(TYPES, "sort", POLICY.table)
    assert other.digest != POLICY.digest
    with pytest.raises(FileNotFoundError):
        load_policy(tmp_path / "none.json")


def test_other_types_are_refused():
    other = minibatch_graph(["a", "c"], [0, 1], [[], []])
    with pytest.raises(PolicyError, match="learned for the types a, b; the graph has a, c: learn"):
        POLICY.schedule(other)


def changed(**fields) -> str:
    return json.dumps(json.loads(POLICY.to_json()) | fields)


def state(**fields) -> str:
    (one, *more) = json.loads(POLICY.to_json())["states"]
    return changed(states=[one | fields, *more])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[1]", "its `format` is not 'relaxlab batching policy'"),
        (changed(format="other"), "its `format`"),
        (changed(version=2), "its `version` is 2 instead of 1"),
        (changed(types=["a", "a"]), "`types` is no list of different names"),
        (changed(types={"a": 1}), "`types` is no list"),
        (changed(encoding="worst"), "`encoding` is 'worst', none of base, max, sort, critical"),
        (changed(encoding=["base"]), "`encoding` is"),
        (changed(states=3), "`states` is no list"),
        (changed(states=[3]), "state 0 is no object"),
        (state(types=["c"]), "state 0: `types` is no list of the policy's types"),
        (state(types=[]), "state 0: `types`"),
        (state(types=[["a"]]), "state 0: `types`"),
        (state(values=[]), "state 0: `values` has none"),
        (state(values={"b": 0}), "state 0: 'b' has a value but is not in `types`"),
        (state(values={"a": "0"}), "state 0: the value of 'a' is no number"),
        (state(values={"a": float("nan")}), "state 0: the value of 'a' is no number"),
        (state(values={"a": True}), "state 0: the value of 'a' is no number"),
        (state(visits=-1), "state 0: `visits` is no count"),
        (state(types=["a", "b"]), "state 1 is there twice"),
    ],
)  # fmt: skip
def test_files_that_hold_no_policy_are_refused(text, fault, tmp_path):
    with pytest.raises(PolicyError, match=fault):
        policy_of_json(text)
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(PolicyError, match=r"bad\.json holds no policy: "):
        load_policy(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyError, match="it is no JSON"):
        load_policy(path)
