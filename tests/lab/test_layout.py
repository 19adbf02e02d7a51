"""Places of nodes: nothing overlaps, edges point down, few cross, and it is always the same."""

from __future__ import annotations

import random

import pytest

from relaxlab.lab.layout import _inversions, _Layers, _ranks, isotonic, layout


def random_graph(count: int, seed: int) -> tuple[list, list]:
    generator = random.Random(seed)
    sizes = [(generator.choice([40, 80, 120]), 34) for _ in range(count)]
    edges = dict.fromkeys(
        (generator.randrange(max(0, b - 12), b), b) for b in range(1, count) for _ in range(2)
    )
    return sizes, list(edges)


def test_no_overlap_and_edges_point_down():
    sizes, edges = random_graph(80, 3)
    found = layout(sizes, edges)
    boxes = [
        (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        for (x, y), (w, h) in zip(found.centres, sizes, strict=True)
    ]
    for i, a in enumerate(boxes):
        assert min(a) >= 0 and a[2] <= found.width + 0.5 and a[3] <= found.height + 0.5
        for b in boxes[:i]:
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            assert apart, (a, b)
    assert all(found.centres[a][1] < found.centres[b][1] for a, b in edges)


def test_curves_join_their_nodes():
    sizes, edges = random_graph(30, 5)
    found = layout(sizes, edges)
    for (a, b), curve in zip(edges, found.curves, strict=True):
        assert len(curve) % 3 == 1
        for v, (x, y) in ((a, curve[0]), (b, curve[-1])):
            centre, (w, h) = found.centres[v], sizes[v]
            assert abs(x - centre[0]) <= w / 2 + 2 and abs(y - centre[1]) <= h / 2 + 2
    assert layout(sizes, edges) == found


def test_medians_leave_fewer_crossings():
    sizes, edges = random_graph(120, 7)
    layers = _Layers(sizes, edges, _ranks(len(sizes), edges))
    before = layers.crossings()
    layers._order()
    assert layers.crossings() < before / 2


def test_a_ladder_is_drawn_without_crossings():
    """Two chains, crossed over in program order."""
    edges = [(0, 3), (1, 2), (2, 5), (3, 4)]
    layers = _Layers([(40, 34)] * 6, edges, _ranks(6, edges))
    assert layers.crossings() == 2
    layers._order()
    assert layers.crossings() == 0


def test_a_chain_is_straight():
    found = layout([(40, 34), (90, 34), (20, 34)], [(0, 1), (1, 2)])
    assert len({x for x, _ in found.centres}) == 1


def test_inversions_and_regression():
    generator = random.Random(1)
    values = [generator.randrange(50) for _ in range(61)]
    pairs = sum(a > b for i, a in enumerate(values) for b in values[i + 1 :])
    assert _inversions(list(values)) == pairs
    assert isotonic([3.0, 1.0, 2.0, 5.0], [1, 1, 1, 1]) == [2.0, 2.0, 2.0, 5.0]
    assert isotonic([4.0, 1.0], [1, 3]) == [1.75, 1.75]


def test_nothing_and_circles():
    assert layout([], []).centres == ()
    with pytest.raises(ValueError, match="cycle"):
        layout([(10, 10)] * 2, [(0, 1), (1, 0)])


def test_a_value_used_everywhere_bends_once_per_layer():
    """A long chain whose members all use the first node's value: one trunk, not one path each."""
    edges = [(i, i + 1) for i in range(199)] + [(0, i) for i in range(2, 200)]
    layers = _Layers([(40, 34)] * 200, edges, _ranks(200, edges))
    assert len(layers.sizes) - layers.real == 198
