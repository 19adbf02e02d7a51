"""ONNX's own tests of its operators, which are made in memory, run on what relaxlab makes of them.

Run by a Python that has onnx: `python -m tests.frontend.onnx.conformance [NAME ...]` runs the named
cases, or all, and prints a JSON object: `outcomes`, per case `pass`, or why not, and `uses`, the
operators that rows of the table used. Programs run by the NumPy interpreter; those named after
`--compiled` are compiled instead.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

warnings.simplefilter("ignore")

import onnx  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402

import relaxlab as rl  # noqa: E402
from relaxlab.frontend.table import UnsupportedOperators  # noqa: E402
from relaxlab.testing.import_uses import watched  # noqa: E402

VALUES = (np.ndarray, np.generic, onnx.TensorProto)


def as_array(value: Any) -> Any:
    """A value of a test as an array."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value)


def imported(model: Any, arrays: Sequence[Any]) -> tuple[Any, list[Any], list[str]]:
    """The program of a model, the arguments of its `main`, and which inputs had to be constants:
    none, all but the first, or all."""
    names = [i.name for i in model.graph.input]
    error: Exception | None = None
    for kept in (len(names), 1, 0):
        fixed = dict(zip(names[kept:], arrays[kept:], strict=True))
        try:
            return rl.from_onnx(model, constants=fixed), list(arrays[:kept]), names[kept:]
        except UnsupportedOperators as refused:
            error = error or refused
            if "by `constants`" not in str(refused):
                raise
    assert error is not None
    raise error


def differs(ours: Any, theirs: Any, rtol: float, atol: float) -> str | None:
    """What differs between a result and the one that is expected."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return f"gives {ours.dtype}{ours.shape} in the place of {theirs.dtype}{theirs.shape}"
    wide = ours.dtype.kind == "V" or ours.dtype.name in ("bfloat16", "float16")
    a, b = (v.astype("float32") if wide else v for v in (ours, theirs))
    if a.dtype.kind in "iub":
        return None if np.array_equal(a, b) else "gives other integers"
    if not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return f"gives other numbers{_by_units(a, b, ours.dtype.name) if wide else ''}"
    return None


def _by_units(a: Any, b: Any, dtype: str) -> str:
    """The largest distance of numbers of half precision, in units in the last place, as a text."""
    bits = {"float16": 10, "bfloat16": 7}[dtype]
    units = np.abs(a - b) / 2.0 ** (np.floor(np.log2(np.abs(b) + 1e-30)) - bits)
    return f": at most {np.max(units):.0f} units in the last place of {dtype} away"


def outcome(case: Any, compiled: bool = False) -> str:
    """`pass`, `pass with constants`, or why a case does not pass."""
    constants: list[str] = []
    for inputs, outputs in case.data_sets:
        if not all(isinstance(v, VALUES) for v in (*inputs, *outputs)):
            return "refused: sequences and optional values"
        arrays, outputs = ([as_array(v) for v in values] for values in (inputs, outputs))
        try:
            program, given, constants = imported(case.model, arrays)
        except UnsupportedOperators as error:
            problem = error.problems[0]
            return f"refused: {problem.name}: {problem.reason.splitlines()[0]}"
        if compiled:
            results = program.compile()(*given)
        else:
            results = rl.interpret(program.module, "main", *given, *program.params.values())
        results = results if isinstance(results, tuple) else (results,)
        if len(results) != len(outputs):
            return f"gives {len(results)} results in the place of {len(outputs)}"
        for ours, theirs in zip(results, outputs, strict=True):
            found = differs(ours, theirs, max(case.rtol, 1e-5), max(case.atol, 1e-6))
            if found is not None:
                return found
    return "pass with constants" if constants else "pass"


def outcomes(names: Sequence[str] = (), compiled: Sequence[str] = ()) -> dict[str, str]:
    """The outcomes of the named cases, or of all."""
    found: dict[str, str] = {}
    for case in collect_testcases():
        if names and case.name not in names:
            continue
        try:
            found[case.name] = outcome(case, case.name in compiled)
        except Exception as error:  # noqa: BLE001  a failure of this case alone
            text = str(error).strip().splitlines() or [""]
            found[case.name] = f"{type(error).__name__}: {text[0][:160]}"
    return found


if __name__ == "__main__":
    mark = sys.argv.index("--compiled") if "--compiled" in sys.argv else len(sys.argv)
    compiled = sys.argv[mark + 1 :]
    with watched() as uses:
        found = outcomes([*sys.argv[1:mark], *compiled], compiled)
    print(json.dumps({"outcomes": found, "uses": uses}, indent=0, sort_keys=True))
