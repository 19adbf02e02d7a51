"""All networks whose control flow depends on the input, small ones, and instances of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab import dynamic
from relaxlab.ir.data import DataValue
from relaxlab.ir.module import Module

H, WORDS = 8, 50


@dataclass(frozen=True, slots=True)
class Network:
    """A network: how it is made, and an instance of it with so many leaves, tokens or items, where
    its instances have such."""

    make: Callable[[], Module]
    given: Callable[[Module, np.random.Generator, int], Any]


def _tree(_: Module, rng: np.random.Generator, leaves: int) -> Any:
    return dynamic.parse_tree(rng, leaves, WORDS)


def _tree_value(mod: Module, rng: np.random.Generator, leaves: int) -> Any:
    return dynamic.tree_value(mod, dynamic.parse_tree(rng, leaves, WORDS))


def _tokens(_: Module, rng: np.random.Generator, length: int) -> Any:
    return dynamic.token_vectors(rng, length, H)


def _rows(rng: np.random.Generator, count: int) -> Any:
    return rng.standard_normal((count, H)).astype(np.float32)


ARRAYS = {
    "tree_lstm": Network(lambda: dynamic.tree_lstm(H, WORDS), _tree),
    "mv_rnn": Network(lambda: dynamic.mv_rnn(H, WORDS), _tree),
    "bi_rnn": Network(lambda: dynamic.bi_rnn(H), _tokens),
}
"""The networks whose inputs are arrays, and which decide by these alone."""
OTHERS = {
    "tree_gru": Network(lambda: dynamic.tree_gru(H, WORDS), _tree_value),
    "tree_fc": Network(lambda: dynamic.tree_fc(H, WORDS), _tree_value),
    "bi_lstm_tagger": Network(
        lambda: dynamic.bi_lstm_tagger(H, WORDS),
        lambda _, rng, length: dynamic.tagged_sentence(rng, length, WORDS),
    ),
    "lattice_lstm": Network(
        lambda: dynamic.lattice_lstm(H, WORDS),
        lambda _, rng, length: dynamic.lattice(rng, length, WORDS),
    ),
    "drnn": Network(lambda: dynamic.drnn(H, 4), lambda _, rng, __: _rows(rng, 1)),
    "nested_rnn": Network(
        lambda: dynamic.nested_rnn(H),
        lambda _, rng, items: dynamic.nested_items(rng, H, min(items, 6), (2, 5)),
    ),
    "berxit": Network(
        lambda: dynamic.berxit(H, length=6, depth=4), lambda _, rng, __: _rows(rng, 6)
    ),
    "stack_rnn": Network(lambda: dynamic.stack_rnn(H), _tokens),
}
"""The networks with data types, and with decisions of their own."""
NETWORKS = ARRAYS | OTHERS


def arguments(instance: Any) -> tuple[Any, ...]:
    """The arguments of an instance."""
    return instance if isinstance(instance, tuple) else (instance,)


def assert_results_agree(found: Any, expected: Any) -> None:
    """Assert that a result is another to rounding."""
    if isinstance(expected, DataValue):
        assert found.constructor == expected.constructor
        found, expected = found.fields, expected.fields
    if isinstance(expected, tuple):
        for f, e in zip(found, expected, strict=True):
            assert_results_agree(f, e)
    else:
        on_host = found.get() if hasattr(found, "get") else found  # an array of CuPy
        np.testing.assert_allclose(on_host, expected, rtol=1e-3, atol=1e-4)
