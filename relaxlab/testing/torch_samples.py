"""PyTorch's own samples of its operators (OpInfo) against imported programs; `python -m
relaxlab.testing.torch_samples` writes the page of what is covered.

Runs where PyTorch and expecttest are installed.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false
from __future__ import annotations

import argparse
import itertools
import json
import re
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from relaxlab.frontend.complex import PARTS, array_of_parts
from relaxlab.frontend.program import ImportedProgram
from relaxlab.frontend.pytorch.entry import from_torch
from relaxlab.frontend.pytorch.values import as_array
from relaxlab.frontend.table import UnsupportedOperators
from relaxlab.ir.dtypes import is_float
from relaxlab.runtime.interpreter.interpreter import interpret

RANDOM = re.compile(
    r"^(bernoulli|multinomial|normal|rand\w*|nn\.functional\.\w*dropout\w*|uniform|exponential|"
    r"geometric|log_normal|cauchy|nn\.functional\.(rrelu|fractional_\w+)|empty\w*|new_empty\w*)$"
)
"""Operators whose results are random, or whose elements are unspecified."""

TOLERANCE = 1e-4
"""Largest error, relative to the largest element of a result (1 at least)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operator's samples: "equal", or why not after so many `samples`."""

    op: str
    reason: str
    samples: int

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
    inputs = [np.asarray(t) for t in program.flatten(call.tensors, {})]
    result = interpret(program.module, "main", *inputs, *program.params.values())
    return program.unflatten(result if isinstance(result, tuple) else (result,))


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
        a, b = np.asarray(a), as_array(b)
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
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield outcome(op, count, compiled=compiled)


def page(outcomes: Iterable[Outcome]) -> str:
    """The page of all operators: those that are equal, and the reasons of the others."""
    found = sorted(outcomes, key=lambda o: o.op)
    equal = [o for o in found if o.equal]
    by_reason: dict[str, list[str]] = {}
    for o in found:
        if not o.equal:
            by_reason.setdefault(o.reason, []).append(o.op)
    rows = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = [
        "# Operators of PyTorch",
        "",
        "Written by `python -m relaxlab.testing.torch_samples`: the first float32 sample of each",
        "operator that PyTorch has for its own tests (OpInfo), exported, imported by",
        "`rl.from_torch`, run by the interpreter and compared with PyTorch.",
        f"{len(equal)} of {len(found)} operators are equal.",
        "",
        "## Equal",
        "",
        "\n".join(
            textwrap.wrap(", ".join(f"`{o.op}`" for o in equal), 100, break_on_hyphens=False)
        ),
        "",
        "## Not imported, or not equal",
        "",
        "| reason | operators |",
        "| --- | --- |",
        *(f"| {_cell(r)} | {', '.join(f'`{op}`' for op in ops)} |" for r, ops in rows),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    """Compare all operators, or those named, and write the page of them.

    With `--keep`, outcomes are added to a file, and operators that it has are not run again.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", help="names; all unless given")
    parser.add_argument("--samples", type=int, default=1, help="at most, of each operator")
    parser.add_argument("--compiled", action="store_true", help="run machine code")
    parser.add_argument("--keep", type=Path, help="the file of outcomes, a line of JSON each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--page", type=Path, help="the page to write")
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
    if chosen.page is not None:
        chosen.page.write_text(page(found), "utf-8")


if __name__ == "__main__":
    main()
