"""Write the pages that say which operators there are from where: docs/coverage.md,
docs/onnx-coverage.md and docs/pytorch-operators.md, from the tables and what was recorded of runs:

    python -m tests.frontend.onnx.conformance > tests/frontend/onnx/outcomes.json
    python -m relaxlab.testing.torch_samples --keep tests/frontend/torch_outcomes.jsonl
    pytest --update-goldens tests/frontend/jaxpr
    python -m tools.write_coverage

The first two run in `.venv-reference`. Tests compare the pages with what this writes, and some of
what is recorded with a run.
"""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from relaxlab.frontend.jaxpr import importer as jax_importer
from relaxlab.frontend.onnx import importer as onnx_importer
from relaxlab.frontend.pytorch.rows import TABLE as ATEN
from relaxlab.ir.op_table import OpRow, op_row
from relaxlab.ops.manual import Section, sections

ROOT = Path(__file__).resolve().parent.parent
ONNX = ROOT / "tests/frontend/onnx/outcomes.json"
TORCH = ROOT / "tests/frontend/torch_outcomes.jsonl"
JAX = ROOT / "tests/goldens/jax_uses.txt"

TABLES = {"ATen": ATEN, "lax": jax_importer.TABLE, "ONNX": onnx_importer.TABLE}
Uses = Mapping[str, list[str]]
"""The operators of relaxlab that an import of another operator used."""

# --- What was recorded ----------------------------------------------------------------------------


@cache
def onnx_record() -> dict[str, dict[str, Any]]:
    """`outcomes` of ONNX's own tests by name, and `uses`."""
    return json.loads(ONNX.read_text("utf-8"))


@cache
def torch_record() -> tuple[dict[str, Any], ...]:
    """An outcome for each operator of OpInfo."""
    return tuple(map(json.loads, TORCH.read_text("utf-8").splitlines()))


def uses_text(uses: Uses) -> str:
    """A line for each operator of a source, as they are recorded."""
    return "\n".join(f"{name}: {', '.join(used)}".rstrip() for name, used in sorted(uses.items()))


@cache
def uses() -> dict[str, Uses]:
    """The recorded operators of relaxlab by source (ATen, lax, ONNX) and operator of it."""
    aten: dict[str, set[str]] = defaultdict(set)
    for outcome in torch_record():
        for name, used in outcome["uses"].items():
            aten[_short(name)].update(used)
    title, *lines = JAX.read_text("utf-8").splitlines()
    pairs = (line.partition(":") for line in lines)
    lax = {name: [u for u in used.strip().split(", ") if u] for name, _, used in pairs}
    return {
        "ATen": {name: sorted(used) for name, used in sorted(aten.items())},
        "lax": lax,
        "ONNX": onnx_record()["uses"],
    }


def _short(name: str) -> str:
    return name.removeprefix("aten.").removesuffix(".default")


# --- docs/coverage.md -----------------------------------------------------------------------------

HEAD = """\
# Coverage

Every operator with what there is for it. *Types* are deduced for static, symbolic and unknown
shapes. *Lowering*: to a loop function, a view of the memory of its operand, or a pass of its own,
which may call a library. *Gradient*: a rule for `differentiate`; calls of others are refused there.
The last columns are operators of [PyTorch](from-pytorch.md) (ATen), [JAX](from-jax.md) (lax) and
[ONNX](from-onnx.md) that are imported as this one alone, and the number of those that use it among
others, as it was recorded while their tests ran. [operators.md](operators.md) says what each
computes; [pytorch-operators.md](pytorch-operators.md) and [onnx-coverage.md](onnx-coverage.md)
which tests pass. tools/write_coverage.py writes these pages.
"""
COLUMNS = ("operator", "types", "lowering", "gradient", "ATen", "lax", "ONNX")


def coverage_page() -> str:
    """docs/coverage.md: a table for each section of the manual, then what each source's operators
    become."""
    parts = [HEAD, _numbers(), *map(_section, sections())]
    for source, used in uses().items():
        lines = [f"- `{name}`: {', '.join(ops) or 'no operator'}" for name, ops in used.items()]
        others = ", ".join(f"`{n}`" for n in sorted({*map(_short, TABLES[source])} - set(used)))
        text = f"\nRows that use no operator, or that no recorded test reaches: {others}."
        lines += [text] if others else []
        parts.append(f"## What operators of {source} become\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _numbers() -> str:
    every = [op_row(name) for s in sections() for name in s.entries]
    gradients = sum(r.gradient is not None for r in every)
    rows = ", ".join(f"{len(table)} for {source}" for source, table in TABLES.items())
    return f"{len(every)} operators, {gradients} with a gradient; importers have rows {rows}.\n"


def _lowering(row: OpRow) -> str:
    if "view" in row.traits:
        return "view"
    return "loops" if row.lower is not None else "pass"


def _section(section: Section) -> str:
    lines = [f"## {section.title}", "", f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
    for name in section.entries:
        row = op_row(name)
        gradient = "yes" if row.gradient is not None else ""
        cells = [f"`{name}`", "yes", _lowering(row), gradient]
        cells += [_users(name, used) for used in uses().values()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _users(op: str, used: Uses) -> str:
    """The operators of a source that are imported as `op`, and how many others use it."""
    alone = [f"`{name}`" for name, ops in used.items() if ops == [op]]
    others = sum(op in ops for ops in used.values()) - len(alone)
    return " ".join([*alone, *([f"+{others}"] if others else [])])


# --- docs/onnx-coverage.md ------------------------------------------------------------------------

ONNX_HEAD = """\
# Which tests of ONNX pass

ONNX makes tests of its operators in memory (`onnx.backend.test.case.node`, onnx 1.23). Each model
is imported and run by the NumPy interpreter (`rl.interpret`), with the tolerances of the test, at
least 1e-5; a sample is compiled. *With constants* says that inputs that decide types of values,
such as a shape or axes, were given to `rl.from_onnx` as `constants`.
[coverage.md](coverage.md) lists the operators.

| outcome | tests |
| --- | ---: |
"""


def onnx_page() -> str:
    """The numbers, then every test that does not pass, by reason."""
    outcomes = onnx_record()["outcomes"]
    by_outcome: dict[str, list[str]] = defaultdict(list)
    for name, outcome in sorted(outcomes.items()):
        by_outcome[outcome].append(name.removeprefix("test_"))
    passing = {o: n for o, n in by_outcome.items() if o.startswith("pass")}
    others = {o: n for o, n in by_outcome.items() if not o.startswith("pass")}
    rows = [f"| {outcome} | {len(names)} |" for outcome, names in sorted(passing.items())]
    rows.append(f"| does not pass | {sum(map(len, others.values()))} |")
    rows.append(f"| all | {len(outcomes)} |")
    lines = [ONNX_HEAD + "\n".join(rows), "\n## Those that do not pass\n"]
    for outcome, names in sorted(others.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"- {outcome} ({len(names)}): {', '.join(names)}")
    return "\n".join(lines) + "\n"


# --- docs/pytorch-operators.md --------------------------------------------------------------------

TORCH_HEAD = """\
# Operators of PyTorch

The first float32 sample of each operator that PyTorch has for its own tests (OpInfo), exported,
imported by `rl.from_torch`, run by the interpreter and compared with PyTorch.
[coverage.md](coverage.md) lists what the ATen operators become.
"""


def torch_page() -> str:
    """The operators that are equal, and the reasons of the others."""
    found = sorted(torch_record(), key=lambda o: o["op"])
    equal = [f"`{o['op']}`" for o in found if o["reason"] == "equal"]
    by_reason: dict[str, list[str]] = defaultdict(list)
    for o in found:
        if o["reason"] != "equal":
            by_reason[o["reason"]].append(f"`{o['op']}`")
    rows = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join([
        TORCH_HEAD + f"{len(equal)} of {len(found)} operators are equal.\n\n## Equal\n",
        *textwrap.wrap(", ".join(equal), 100, break_on_hyphens=False),
        "\n## Not imported, or not equal\n\n| reason | operators |\n| --- | --- |",
        *(f"| {_cell(r)} | {', '.join(ops)} |" for r, ops in rows),
    ]) + "\n"  # fmt: skip


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def files() -> Iterator[tuple[Path, str]]:
    """Every page and its text."""
    yield ROOT / "docs/coverage.md", coverage_page()
    yield ROOT / "docs/onnx-coverage.md", onnx_page()
    yield ROOT / "docs/pytorch-operators.md", torch_page()


if __name__ == "__main__":
    for path, content in files():
        path.write_text(content, "utf-8")
