"""The NumPy references against PyTorch on drawn operands and attributes, from `.venv-reference`."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.op_table import op_row
from relaxlab.testing.draw_rules import RULES
from relaxlab.testing.torch_reference import (
    PYTHON,
    ConcreteCall,
    compare_references,
    compared,
    concrete_call,
)

ROUNDS = 4


@pytest.fixture
def torch_environment() -> None:
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} does not exist; `make reference-env` makes it")


def test_references_are_what_pytorch_computes(rng, torch_environment) -> None:
    seed = int(rng.integers(1 << 31))
    problems, taken = compare_references(seed, ROUNDS)
    assert not problems, "\n".join(problems)
    assert sum(taken.values()) - taken[None] > 400
    assert len(taken) > 100  # operators, of 131 that PyTorch has a function for


def test_a_wrong_reference_is_found(
    monkeypatch: pytest.MonkeyPatch, torch_environment: None
) -> None:
    """PyTorch's answers to calls of another operator, as if the reference were wrong."""
    x = np.linspace(0.1, 1, 9, dtype="float32")
    wrong = [ConcreteCall("sin", 0, (x,), {}), ConcreteCall("sum", 0, (x,), {"axis": 0})]
    assert compared(wrong)[0] == []
    monkeypatch.setattr("relaxlab.testing.torch_reference.op_row", lambda _: _Row())
    assert len(compared(wrong)[0]) == 2


def test_deviations_of_equal_numbers_are_rounding(torch_environment: None) -> None:
    x = np.full((1, 4, 2), 0.1) * np.array([[[3.0]] * 4])
    x[0, 1:] += np.spacing(0.3)
    options = {"num_groups": 1, "channel_axis": 1, "axes": (2,), "epsilon": 1e-18}
    call = ConcreteCall("nn.group_norm", 0, (x, np.ones(4), np.zeros(4)), options)
    problems, taken = compared([call])
    assert taken["nn.group_norm"] == 1
    assert problems == []


class _Row:
    @staticmethod
    def reference(x: np.ndarray, **_: object) -> np.ndarray:
        return x * np.float32(1.001)


def test_references_share_no_code_with_the_compiler(monkeypatch: pytest.MonkeyPatch, rng) -> None:
    """They compute while tensor expressions, lowering and the interpreters are out of order."""
    seed = int(rng.integers(1 << 31))
    calls = [concrete_call(op, seed + i) for op in sorted(RULES) for i in range(3)]

    def broken(*_: object, **__: object) -> None:
        raise AssertionError("the reference calls the compiler")

    for target in ("relaxlab.ops.te.compute", "relaxlab.ops.te.create_prim_func",
                   "relaxlab.ops.scalar.cast", "relaxlab.ops.scalar.call",
                   "relaxlab.runtime.interpreter.interpreter.interpret_prim_func"):  # fmt: skip
        monkeypatch.setattr(target, broken)
    for call in calls:
        if call is None:
            continue
        reference = op_row(call.op).reference
        assert reference is not None
        with np.errstate(all="ignore"):  # as the interpreter calls them
            reference(*call.args, **call.attrs)
