"""PyTorch's own samples of its operators (OpInfo) against imported programs.

Runs where PyTorch and expecttest are installed: `python -m relaxlab.testing.torch_samples`.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false
from __future__ import annotations

import argparse
import itertools
import json
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from relaxlab.frontend.complex import PARTS, array_of_parts
from relaxlab.frontend.program import ImportedProgram
from relaxlab.frontend.pytorch.entry import from_torch
from relaxlab.frontend.pytorch.values import as_array, as_tensor
from relaxlab.frontend.table import UnsupportedOperators
from relaxlab.ir.dtypes import is_float
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.testing.import_uses import Uses, watched

RANDOM = re.compile(
    r"^(bernoulli|multinomial|normal|rand\w*|nn\.functional\.\w*dropout\w*|uniform|exponential|"
    r"geometric|log_normal|cauchy|nn\.functional\.(rrelu|fractional_\w+)|empty\w*|new_empty\w*)$"
)
"""Operators whose results are random, or whose elements are unspecified."""

TOLERANCE = 1e-4
"""Largest error, relative to the largest element of a result (1 at least)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operator's samples: "equal", or why not after so many `samples`; and the
    operators that rows of the table used."""

    op: str
    reason: str
    samples: int
    uses: Uses = field(default_factory=dict[str, list[str]])

    @property
    def equal(self) -> bool:
        """True if all samples that were tried are equal to PyTorch."""
        return self.reason == "equal"


class _Call(torch.nn.Module):
    """One sample as a module of the tensors among its arguments."""

    def __init__(self, fn: Any, sample: Any) -> None:
        super().__init__()
        leaves, self._spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self._fn = fn
        self._fixed = [None if isinstance(v, torch.Tensor) else v for v in leaves]
        self._is_tensor = [isinstance(v, torch.Tensor) for v in leaves]
        self.tensors = tuple(v for v in leaves if isinstance(v, torch.Tensor))

    def forward(self, *tensors: Any) -> Any:
        given = iter(tensors)
        pairs = zip(self._is_tensor, self._fixed, strict=True)
        leaves = [next(given) if t else v for t, v in pairs]
        first, args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._fn(first, *args, **kwargs)


def names() -> list[str]:
    """The operators with float32 samples, by name and variant."""
    return sorted(_name(op) for op in op_db if torch.float32 in op.dtypes)


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def outcome(op: Any, count: int, *, compiled: bool) -> Outcome:
    """Compare up to `count` samples of an operator; stops at the first that is not equal."""
    name = _name(op)
    if RANDOM.match(op.name):
        return Outcome(name, "its result is random or not initialised", 0)
    equal = 0
    for sample in itertools.islice(_samples(op), count):
        reason = _compare(_Call(op.op, sample), compiled=compiled)
        if reason is not None:
            return Outcome(name, reason, equal)
        equal += 1
    return Outcome(name, "equal" if equal else "it has no samples", equal)


def _samples(op: Any) -> Iterator[Any]:
    torch.manual_seed(0)
    return iter(op.sample_inputs("cpu", torch.float32, requires_grad=False))


def _compare(call: _Call, *, compiled: bool) -> str | None:
    """None where the imported program gives what PyTorch gives, else what is different."""
    try:
        with torch.no_grad():
            wanted = call(*(t.clone() for t in call.tensors))
        program = from_torch(call, *call.tensors)
    except UnsupportedOperators as error:
        first = error.problems[0]
        return f"{first.name}: {first.reason}"
    except Exception as error:  # noqa: BLE001 - PyTorch raises all kinds, and each is a line of the page
        return f"torch.export: {_first_line(error)}"
    try:
        got = program.compile(use_cache=False)(*call.tensors) if compiled else _run(program, call)
    except Exception as error:  # noqa: BLE001 - a defect of relaxlab, which the page shows
        return f"relaxlab: {type(error).__name__}: {_first_line(error)}"
    return _difference(got, wanted)


def _run(program: ImportedProgram, call: _Call) -> Any:
    def computed(*inputs: Any) -> Any:
        arrays = (as_array(t) if isinstance(t, torch.Tensor) else t for t in inputs)
        found = interpret(program.module, "main", *arrays, *program.params.values())
        results = found if isinstance(found, tuple) else (found,)
        return tuple(
            as_tensor(np.array(r, order="C")) if isinstance(r, np.ndarray) else r for r in results
        )

    return program.call(computed, call.tensors, {})


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:120] if lines else ''}"


def _difference(got: Any, wanted: Any) -> str | None:
    ours, theirs = (pytree.tree_leaves(v) for v in (got, wanted))
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b:
                return f"{a} instead of {b}"
            continue
        a, b = (as_array(t) if isinstance(t, torch.Tensor) else np.asarray(t) for t in (a, b))
        a = array_of_parts(a) if a.dtype.name in PARTS else a
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"{a.dtype} {a.shape} instead of {b.dtype} {b.shape}"
        if a.size and is_float(a.dtype.name):
            a, b = a.astype("float64"), b.astype("float64")
            finite = np.abs(b[np.isfinite(b)])
            largest = max(1.0, float(finite.max(initial=0.0)))
            if not np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * largest, equal_nan=True):
                return f"wrong by {float(np.nanmax(np.abs(a - b))):.2g}"
        elif a.size and not np.array_equal(a, b):
            return "wrong"
    return None


def run(wanted: Iterable[str] | None, count: int, *, compiled: bool) -> Iterator[Outcome]:
    """The outcomes of the operators of these names, or of all."""
    chosen = None if wanted is None else set(wanted)
    for op in sorted(op_db, key=_name):
        if torch.float32 in op.dtypes and (chosen is None or _name(op) in chosen):
            with warnings.catch_warnings(), watched() as uses:
                warnings.simplefilter("ignore")
                yield replace(outcome(op, count, compiled=compiled), uses=uses)


def main() -> None:
    """Compare all operators, or those named.

    With `--keep`, outcomes are added to a file, and operators that it has are not run again. From
    tests/frontend/torch_outcomes.jsonl, `python -m tools.write_coverage` writes the pages.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", help="names; all unless given")
    parser.add_argument("--samples", type=int, default=1, help="at most, of each operator")
    parser.add_argument("--compiled", action="store_true", help="run machine code")
    parser.add_argument("--keep", type=Path, help="the file of outcomes, a line of JSON each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    chosen = parser.parse_args()
    found: list[Outcome] = []
    if chosen.keep is not None and chosen.keep.exists():
        found = [Outcome(**json.loads(line)) for line in chosen.keep.read_text().splitlines()]
    done, end = {o.op for o in found}, time.monotonic() + chosen.seconds
    for name in chosen.ops or names():
        if name in done or time.monotonic() > end:
            continue
        for outcome_ in run([name], chosen.samples, compiled=chosen.compiled):
            found.append(outcome_)
            print(f"{outcome_.op}: {outcome_.reason}", flush=True)
            if chosen.keep is not None:
                with chosen.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome_)) + "\n")
    print(Counter(o.equal for o in found))


if __name__ == "__main__":
    main()
