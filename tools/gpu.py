"""Everything that needs a GPU, in one command: `make gpu`.

It runs from the checkout with the Python that has CuPy, installs nothing and needs no network.
Stages run one after the other, each with a time limit, and write lines of JSON into the folder
`--out` as they go, so that a run that is cut off keeps what it has found. What failed is listed
last, where a terminal shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Stage:
    """Arguments of Python, and the share of the time that the stage may take."""

    command: Sequence[str]
    share: float


STAGES = {
    "doctor": Stage(("-m", "relaxlab", "doctor"), 0.05),
    "tests": Stage(("-m", "tools.gpu", "--tests"), 0.3),
    "kernels": Stage(("-m", "benchmarks.bench_gpu"), 0.25),
    "models": Stage(("-m", "benchmarks.bench_gpu_models"), 0.25),
    "ablation": Stage(("-m", "benchmarks.bench_gpu_ablation"), 0.15),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages; 1 if one failed or was stopped."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stages", nargs="*", help=f"of {', '.join(STAGES)}; all by default")
    parser.add_argument("--seconds", type=float, default=600, help="time limit of all together")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="for results")
    parser.add_argument("--tests", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [s for s in options.stages if s not in STAGES]
    if unknown:
        parser.error(f"no stage is called {unknown[0]!r}; there are: {', '.join(STAGES)}")
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if options.tests:
        return _tests(out)
    chosen = options.stages or list(STAGES)
    for name in chosen:  # what earlier runs have left there
        (out / f"{name}.jsonl").unlink(missing_ok=True)
    limit = options.seconds / sum(STAGES[name].share for name in chosen)
    outcomes = {name: _run(name, out, limit * STAGES[name].share) for name in chosen}
    print("\n=== summary ===\n")
    for name, outcome in outcomes.items():
        print(f"{name:10} {outcome}")
    for name, what in _failures(out, chosen):
        print(f"  {name}: {what}")
    return int(any(not outcome.startswith("passed") for outcome in outcomes.values()))


def _run(name: str, out: Path, seconds: float) -> str:
    """Run a stage, with its output here and in a file; return what became of it."""
    print(f"\n=== {name}, at most {seconds:.0f} s ===\n", flush=True)
    command = [sys.executable, *STAGES[name].command]
    if name != "doctor":
        command += ["--out", str(out)]
    if name in ("kernels", "models", "ablation"):  # they end by themselves, with what they have
        command += ["--seconds", f"{0.85 * seconds:.0f}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    log, begin = out / f"{name}.log", time.monotonic()
    try:
        with open(log, "w", encoding="utf-8") as file:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT,
                timeout=seconds, check=False,
            )  # fmt: skip
        outcome = "passed" if done.returncode == 0 else f"failed with {done.returncode}"
    except subprocess.TimeoutExpired:
        outcome = "was stopped"
    print(log.read_text("utf-8"))
    outcome = f"{outcome} after {time.monotonic() - begin:.0f} s"
    with open(out / "stages.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"stage": name, "outcome": outcome}) + "\n")
    return outcome


class _Reports:
    """Writes a line for each test as soon as it has ended."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115  as long as the process

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            line = {"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration}
            if report.failed:
                line["error"] = report.longreprtext
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()


def _tests(out: Path) -> int:
    """All tests that need a GPU, side by side."""
    import pytest

    # Others may need packages that are not there.
    files = [str(f) for f in ROOT.glob("tests/**/test_*.py") if "mark.gpu" in f.read_text("utf-8")]
    workers = min(len(os.sched_getaffinity(0)), 12)
    # Warnings are errors where the versions of all packages are known, which they are not here.
    arguments = ["-m", "gpu", "-q", "--tb=short", "-p", "no:cacheprovider", "-W", "default",
                 "-o", "filterwarnings=", "-n", str(workers), *files]  # fmt: skip
    return int(pytest.main(arguments, plugins=[_Reports(out / "tests.jsonl")]))


def _failures(out: Path, stages: Sequence[str]) -> list[tuple[str, str]]:
    """Name and first words of everything that failed in the lines of JSON of stages."""
    found: list[tuple[str, str]] = []
    for path in (out / f"{name}.jsonl" for name in stages):
        for text in path.read_text("utf-8").splitlines() if path.exists() else ():
            line: dict[str, Any] = json.loads(text)
            if error := line.get("error"):
                last = error.strip().splitlines()[-1]
                found.append((line.get("test") or line.get("case", path.stem), last[:160]))
    return found


if __name__ == "__main__":
    sys.exit(main())
