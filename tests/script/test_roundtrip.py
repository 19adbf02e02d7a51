"""Printing and parsing are inverse: on random programs of both levels, and on chosen ones."""

from __future__ import annotations

import random

import numpy as np
import pytest

import relaxlab.ops  # noqa: F401  (the operator table)
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.script import parse, print_module, print_with_map
from relaxlab.testing.programs import GraphPrograms, LoopPrograms

SEED = 20240607


def check(mod: Module) -> str:
    text = print_module(mod)
    again = parse(text)
    assert_structural_equal(mod, again)
    return text


@pytest.mark.parametrize("seed", range(SEED, SEED + 150))
def test_random_loop_functions(seed: int) -> None:
    print("seed", seed)
    check(Module.of({"f": LoopPrograms(random.Random(seed)).prim_func()}))


@pytest.mark.parametrize("seed", range(SEED, SEED + 150))
def test_random_modules(seed: int) -> None:
    print("seed", seed)
    check(GraphPrograms(random.Random(seed)).module())
