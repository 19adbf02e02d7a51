"""The NumPy references against PyTorch on drawn operands and attributes, from `.venv-reference`."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.testing.torch_reference import PYTHON, ConcreteCall, compare_references, compared

ROUNDS = 4


@pytest.fixture(autouse=True)
def _environment() -> None:
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} does not exist; `make reference-env` makes it")


def test_references_are_what_pytorch_computes(rng) -> None:
    seed = int(rng.integers(1 << 31))
    problems, taken = compare_references(seed, ROUNDS)
    assert not problems, "\n".join(problems)
    assert sum(taken.values()) - taken[None] > 400
    assert len(taken) > 100  # operators, of 131 that PyTorch has a function for


def test_a_wrong_reference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's answers to calls of another operator, as if the reference were wrong."""
    x = np.linspace(0.1, 1, 9, dtype="float32")
    wrong = [ConcreteCall("sin", 0, (x,), {}), ConcreteCall("sum", 0, (x,), {"axis": 0})]
    assert compared(wrong)[0] == []
    monkeypatch.setattr("relaxlab.testing.torch_reference.op_row", lambda _: _Row())
    assert len(compared(wrong)[0]) == 2


class _Row:
    @staticmethod
    def reference(x: np.ndarray, **_: object) -> np.ndarray:
        return x * np.float32(1.001)
