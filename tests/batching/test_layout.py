"""Layouts against all orders of the variables; blocks of real cells."""

from __future__ import annotations

import os
from itertools import permutations
from random import Random

import pytest

from relaxlab.batching.execution import check_schedule
from relaxlab.batching.graph import GraphError
from relaxlab.batching.layout import (
    BlockKernel,
    Layout,
    NotAligned,
    Operand,
    Pattern,
    aligned,
    block_layout,
    block_patterns,
    copied,
    layout,
    propagated,
)
from relaxlab.batching.pq_tree import NoOrder, universal
from tests.batching.cells import CELLS
from tests.batching.tree_orders import orders

SETS = 120
LARGER = 40


def pattern_of(*operands: tuple[int, ...], bytes: int = 4) -> Pattern:
    return Pattern("p", tuple(Operand(f"o{i}", o, bytes) for i, o in enumerate(operands)))


def draw_patterns(random: Random, size: int, most: int) -> list[Pattern]:
    found: list[Pattern] = []
    for number in range(random.randint(1, most)):
        lanes = random.randint(2, min(4, size))
        names = [f"o{i}" for i in range(random.randint(1, 3))]
        operands = tuple(
            Operand(n, tuple(random.sample(range(size), lanes)), random.choice((4, 8)))
            for n in names
        )
        found.append(Pattern(f"p{number}", operands))
    return found


def drawn_seed() -> Random:
    seed = int(os.environ.get("RELAXLAB_SEED", Random().randrange(1 << 30)))
    print(f"seed {seed}")
    return Random(seed)


def fewest_bytes(found: Layout) -> int:
    return min(map(found.copied_bytes, permutations(range(len(found.names)))))


def test_small_blocks_against_every_order():
    random = drawn_seed()
    free = more = 0
    for _ in range(SETS):
        size = random.randint(2, 5)
        found = layout([f"v{v}" for v in range(size)], draw_patterns(random, size, 3))
        assert sorted(found.order) == list(range(size))
        least, reached = fewest_bytes(found), found.copied_bytes(found.order)
        if least == 0:
            free += 1
            assert reached == 0, found.patterns
        more += reached > least
    assert free > 10 and more <= SETS // 20


def test_no_layout_copies_more_than_program_order():
    random = drawn_seed()
    for _ in range(LARGER):
        size = random.randint(4, 16)
        found = layout([f"v{v}" for v in range(size)], draw_patterns(random, size, 6))
        assert sorted(found.order) == list(range(size))
        program = found.program_order
        assert found.copied_bytes(found.order) <= found.copied_bytes(program)
        assert len(found.copies(found.order)) <= len(found.copies(program))


def test_propagation_keeps_the_orders_in_which_nothing_is_copied():
    random = drawn_seed()
    for _ in range(40):
        size = random.randint(3, 6)
        patterns = draw_patterns(random, size, 2)
        good = {
            order for order in permutations(range(size))
            if not any(copied(pattern, order) for pattern in patterns)
        }  # fmt: skip
        try:
            tree = propagated(universal(range(size)), patterns, [])
            assert good <= set(orders(tree))
            assert aligned(tree, patterns) in good
        except (NoOrder, NotAligned):
            assert not good


def test_operands_are_aligned_with_each_other():
    """Three lanes that have to be in one order in three operands."""
    found = layout("abcdefghi", [pattern_of((0, 1, 2), (5, 3, 4), (8, 6, 7)), pattern_of((0, 2))])
    assert found.copies(found.order) == ()
    places = {v: p for p, v in enumerate(found.order)}
    lanes = [sorted(range(3), key=lambda i, o=o: places[o[i]]) for o in ((0, 1, 2), (5, 3, 4))]
    assert lanes[0] == lanes[1]


def test_lanes_that_contradict_each_other_are_copied_once():
    """a b c in the order of d e f, and of f d e."""
    found = layout("abcdef", [pattern_of((0, 1, 2), (3, 4, 5)), pattern_of((0, 1, 2), (5, 3, 4))])
    assert len(found.copies(found.order)) == 1
    assert [s.refused[:9] for s in found.steps if s.refused] == ["its lanes"]


def test_operands_with_more_bytes_stay_where_they_are():
    patterns = [
        pattern_of((0, 1), bytes=4),
        pattern_of((1, 2), bytes=4),
        pattern_of((2, 0), bytes=400),
    ]
    found = layout("abc", patterns)
    assert found.copied_bytes(found.order) == 8


def test_copies_of_an_order():
    pattern = Pattern("p", (Operand("results", (0, 1), 4), Operand("operand 1", (2, 3), 8)))
    assert copied(pattern, (0, 1, 2, 3)) == ()
    assert copied(pattern, (1, 0, 3, 2)) == ()
    assert copied(pattern, (1, 0, 2, 3)) == pattern.operands[:1], "the smaller one"
    assert copied(pattern, (0, 2, 1, 3)) == pattern.operands


@pytest.mark.parametrize("name", CELLS)
def test_cells_need_fewer_copies_than_in_program_order(name):
    kernels = CELLS[name](256)
    schedule, patterns = block_patterns(kernels)
    check_schedule(schedule)
    assert len(schedule) < len(kernels) and patterns
    found = block_layout(kernels)
    assert found.patterns == patterns
    assert found.copied_bytes(found.order) == 0 < found.copied_bytes(found.program_order)
    assert str(found).splitlines()[1].startswith("0 bytes copied per row, ")


def test_patterns_leave_out_weights_and_repeated_variables():
    kernels = [
        BlockKernel("a", "first", (None,), (4, 4)),
        BlockKernel("b", "second", (0, None, 0), (4, 4, 4, 8)),
        BlockKernel("c", "second", (0, None, 0), (4, 4, 4, 8)),
    ]
    schedule, (pattern,) = block_patterns(kernels)
    assert len(schedule) == 2 and [o.name for o in pattern.operands] == ["results"]
    assert pattern.name == "second x 2" and pattern.bytes == 8


def test_blocks_too_large_to_search_are_scheduled_by_a_policy(monkeypatch):
    from relaxlab.batching import layout as module

    def refuse(graph, most_states):
        raise module.SearchLimit("too large")

    monkeypatch.setattr(module, "optimum", refuse)
    schedule, patterns = block_patterns(CELLS["LSTM"](8))
    check_schedule(schedule)
    assert patterns


def test_a_block_of_nothing():
    assert layout([], []).order == ()
    assert layout(["a"], []).order == (0,)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ([(0, 5)], "p, o0: there is no variable 5, only 3"),
        ([(0, 1), (2, 2)], "p, o1: an operand has a different variable for each lane"),
        ([(0, 1), (0, 1, 2)], "p, o1: an operand has"),
    ],
)
def test_patterns_of_other_variables_are_refused(operands, message):
    with pytest.raises(GraphError, match=message):
        layout("abc", [pattern_of(*operands)])
