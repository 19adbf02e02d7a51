"""Write docs/onnx-coverage.md from what ONNX's own tests of operators gave.

    python -m tests.frontend.onnx.conformance > tests/frontend/onnx/outcomes.json
    python -m tools.write_onnx_coverage

A test compares the page with what this writes, and some of the outcomes with a run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTCOMES = ROOT / "tests/frontend/onnx/outcomes.json"
PAGE = ROOT / "docs/onnx-coverage.md"
HEAD = """\
# Which tests of ONNX pass

ONNX makes tests of its operators in memory (`onnx.backend.test.case.node`, onnx 1.23). Each model
is imported and run by the NumPy interpreter (`rl.interpret`), with the tolerances of the test, at
least 1e-5; a sample is compiled. *With constants* says that inputs that decide types of values,
such as a shape or axes, were given to `rl.from_onnx` as `constants`. tools/write_onnx_coverage.py
writes this page.

| outcome | tests |
| --- | ---: |
"""


def page(outcomes: Mapping[str, str]) -> str:
    """The page: numbers, then every test that does not pass, by reason."""
    by_outcome: dict[str, list[str]] = defaultdict(list)
    for name, outcome in sorted(outcomes.items()):
        by_outcome[outcome].append(name.removeprefix("test_"))
    passing = {o: n for o, n in by_outcome.items() if o.startswith("pass")}
    others = {o: n for o, n in by_outcome.items() if not o.startswith("pass")}
    rows = [f"| {outcome} | {len(names)} |" for outcome, names in sorted(passing.items())]
    rows.append(f"| does not pass | {sum(map(len, others.values()))} |")
    rows.append(f"| all | {len(outcomes)} |")
    lines = [HEAD + "\n".join(rows), "\n## Those that do not pass\n"]
    for outcome, names in sorted(others.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"- {outcome} ({len(names)}): {', '.join(names)}")
    return "\n".join(lines) + "\n"


def recorded() -> dict[str, str]:
    """The outcome of each test, as it was last recorded."""
    return json.loads(OUTCOMES.read_text("utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(recorded()), "utf-8")
