"""The batches that machine code makes of what was noted: never more than by the policy `agenda`."""

from __future__ import annotations

import ctypes
import os
from random import Random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import check_schedule, schedule_of
from relaxlab.batching.graph import Graph, depths_of, minibatch_graph
from relaxlab.batching.policies import POLICIES
from relaxlab.codegen.llvm import batch_policies, fewest_batches, jit
from relaxlab.codegen.llvm.flush_memory import BlockCode, Flush
from relaxlab.codegen.llvm.lowlevel import layout_of
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.recorder_words import LOG_WORDS, LOGS, NEXT_SLOT, PHASE_BITS
from relaxlab.ir.target import Target
from relaxlab.models.dynamic.data_trees import tree_value
from relaxlab.runtime.native.fields import Fields
from relaxlab.testing.minibatches import WORKLOADS, random_graph

GRAPHS = 300
OUTSIDE = 3
"""Slots that were there before."""


@pytest.fixture(scope="module")
def rng():
    seed = int(os.environ.get("RELAXLAB_SEED", Random().randrange(1 << 30)))
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def machine_code():
    declarations: dict[str, str] = {}
    functions = (*fewest_batches.FUNCTIONS, *batch_policies.FUNCTIONS)
    texts = [low_level_text(function, declarations) for function in functions]
    target = Target.host()
    code, _ = jit.compile_object(jit.module_text(texts, declarations, target), target)
    loaded = jit.LoadedObject([code], target)
    address = loaded.address("relaxlab_flush_batches")
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address), loaded


class Notes:
    """The memory of a flush whose notes are the nodes of a graph, and some of an instance that has
    failed. phases: by node."""

    def __init__(self, graph: Graph, rng: np.random.Generator, phases: np.ndarray) -> None:
        self.graph, kinds = graph, len(graph.types)
        depths = depths_of(graph) + np.cumsum(rng.random(len(graph)) < 0.2)
        most = max((len(graph.predecessors_of(v)) for v in range(len(graph))), default=0)
        outputs = rng.integers(1, 3, kinds)
        logs: list[list[list[int]]] = [[] for _ in range(kinds)]
        slots, next_slot = list[int](), OUTSIDE
        for v, t in enumerate(graph.type_of.tolist()):
            if rng.random() < 0.1:  # of the instance that has failed
                logs[t].append([0, next_slot, 1, *[0] * most])
                next_slot += int(outputs[t])
            reads = [slots[p] + int(rng.integers(outputs[graph.type_of[p]]))
                     for p in graph.predecessors_of(v)]  # fmt: skip
            reads += rng.integers(0, OUTSIDE, most - len(reads)).tolist()
            depth = int(phases[v]) << PHASE_BITS | int(depths[v])
            logs[t].append([depth, next_slot, 0, *rng.permutation(reads).tolist()])
            slots.append(next_slot)
            next_slot += int(outputs[t]) + int(rng.integers(2))
        self.logs = [np.array(log, np.int64).reshape(-1, most + 3) for log in logs]
        recorder = np.zeros(LOGS + LOG_WORDS * kinds, np.int64)
        recorder[NEXT_SLOT] = next_slot
        for t, log in enumerate(self.logs):
            recorder[LOGS + LOG_WORDS * t :][:3] = log.ctypes.data, len(log), len(log)
        blocks = Fields(BlockCode)
        blocks.set(note_words=most + 3, inputs=most)
        rows = np.tile(blocks.words, (kinds, 1))
        rows[:, list(layout_of(BlockCode)).index("outputs")] = outputs
        self.fields, count = Fields(Flush), len(graph)
        self.fields.set(kinds=kinds, phases=int(phases.max(initial=0)) + 1)
        self.fields.hold(
            blocks=rows, recorder=recorder, done=np.zeros(kinds, np.int64),
            failures=np.array([0, 1]), first_depth=np.empty(kinds, np.int64),
            last_depth=np.empty(kinds, np.int64),
            levels=np.empty(len(layout_of(fewest_batches.Levels)), np.int64),
            **{n: np.empty(count + 1, np.int64)
               for n in ("order", "order_kind", "batch_kind", "batch_end")},
        )  # fmt: skip

    def batches(self, flush_batches) -> list[tuple[int, list[int]]]:
        """The block and the nodes of each batch."""
        fields = self.fields
        while words := flush_batches(fields.address):
            fields.hold(work=np.full(words, -1, np.int64))
            fields.set(work_room=words)
        nodes, of = dict[int, int](), iter(range(len(self.graph)))
        notes = [(row[1], log.ctypes.data + i * log.strides[0], row[2])
                 for log in self.logs for i, row in enumerate(log)]  # fmt: skip
        nodes = {address: next(of) for _, address, failed in sorted(notes) if not failed}
        count = fields["batches"]
        ends = fields.array("batch_end")[:count].tolist()
        kinds = fields.array("batch_kind")[:count].tolist()
        order = [nodes[a] for a in fields.array("order")[: len(self.graph)].tolist()]
        types = self.graph.type_of[order].tolist()
        assert fields.array("order_kind")[: len(order)].tolist() == types
        starts = [0, *ends]
        return [(kind, order[a:b]) for kind, a, b in zip(kinds, starts, ends, strict=False)]


def drawn(rng) -> list[Graph]:
    """Random graphs, and minibatches of few and of many instances."""
    graphs = [
        random_graph(rng, int(rng.integers(1, 70)), int(rng.integers(1, 7))) for _ in range(GRAPHS)
    ]
    return graphs + [make(rng, n) for make in WORKLOADS.values() for n in (1, 2, 5, 24)]


def test_graphs_take_no_more_batches_than_by_agenda(rng, machine_code):
    reached = 0
    for graph in drawn(rng):
        notes = Notes(graph, rng, np.zeros(len(graph), int))
        schedule = schedule_of(graph, notes.batches(machine_code[0]))
        check_schedule(schedule)
        assert len(schedule) <= len(POLICIES["agenda"].schedule(graph)), graph
        reached += len(schedule) == batch_bound(graph)
    assert reached > GRAPHS // 2


def test_phases_come_one_after_the_other(rng, machine_code):
    """Nodes read those of the same phase or of earlier ones."""
    for graph in drawn(rng)[: GRAPHS // 2]:
        phases = np.sort(rng.integers(0, 3, len(graph)))
        batches = Notes(graph, rng, phases).batches(machine_code[0])
        check_schedule(schedule_of(graph, batches))
        order = [phases[v] for _, nodes in batches for v in nodes]
        assert order == sorted(order)


def test_chains_that_begin_at_different_depths_share_batches(machine_code):
    """A sentence of each length, through two layers: the second begins where the first one ends,
    another place in each. Counted by depths, there are some batches more for each length."""
    reads, types = list[list[int]](), list[int]()
    for length in range(1, 30):
        for step in range(2 * length):
            types.append(int(step >= length))
            reads.append([len(reads) - 1] if step else [])
    graph = minibatch_graph(["first", "second"], types, reads)
    notes = Notes(graph, np.random.default_rng(0), np.zeros(len(graph), int))
    assert len(notes.batches(machine_code[0])) == 2 * 29 == batch_bound(graph)


LENGTHS = {
    "equal": lambda rng, n: [7] * n,
    "short": lambda rng, n: rng.integers(1, 4, n).tolist(),
    "one long": lambda rng, n: [40, *[2] * (n - 1)],
    "any": lambda rng, n: rng.integers(1, 25, n).tolist(),
    "all": lambda rng, n: [*range(1, n + 1)],
}


def tree(rng, n):
    return dynamic.parse_tree(rng, n, 20)


MODELS = {
    "tree_lstm": (dynamic.tree_lstm, lambda mod, rng, n: tree(rng, n)),
    "mv_rnn": (dynamic.mv_rnn, lambda mod, rng, n: tree(rng, n)),
    "tree_gru": (dynamic.tree_gru, lambda mod, rng, n: (tree_value(mod, tree(rng, n)),)),
    "tree_fc": (dynamic.tree_fc, lambda mod, rng, n: (tree_value(mod, tree(rng, n)),)),
    "bi_rnn": (dynamic.bi_rnn, lambda mod, rng, n: dynamic.token_vectors(rng, n, 8)),
    "bi_lstm_tagger": (
        dynamic.bi_lstm_tagger, lambda mod, rng, n: dynamic.tagged_sentence(rng, n, 20),
    ),
    "lattice_lstm": (dynamic.lattice_lstm, lambda mod, rng, n: dynamic.lattice(rng, n, 20)),
    "stack_rnn": (dynamic.stack_rnn, lambda mod, rng, n: dynamic.token_vectors(rng, n, 8)),
    "nested_rnn": (
        dynamic.nested_rnn,
        lambda mod, rng, n: dynamic.nested_items(rng, 8, 1 + n % 6, (1, 1 + n)),
    ),
    "drnn": (dynamic.drnn, lambda mod, rng, n: (rng.standard_normal((1, 8)).astype("float32"),)),
    "berxit": (
        dynamic.berxit, lambda mod, rng, n: (rng.standard_normal((16, 8)).astype("float32"),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_networks_take_no_more_batches_than_by_agenda(name, rng):
    make, instance = MODELS[name]
    mod = make(8)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    main.bind(*dynamic.random_weights(mod, np.random.default_rng(0), 0.5))
    agenda = rl.batches_by("agenda")
    for lengths in LENGTHS.values():
        for count in (1, 3, 8, 33):
            given = [instance(mod, rng, n) for n in lengths(rng, count)]
            results = []
            for choose in (agenda, None, None):  # the second time in machine code alone
                main.batch(given, choose=choose)
                results.append(main.last_batch.batches)
            by_agenda, fewest, again = results
            assert fewest == again <= by_agenda, (lengths, count)
