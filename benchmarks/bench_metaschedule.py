"""Kernels tuned by relaxlab and by TVM's MetaSchedule, each for the same time on the same cores.

    .venv-tvm/bin/python -m pip install psutil xgboost-cpu cloudpickle  # which MetaSchedule takes
    .venv/bin/python -m benchmarks.bench_metaschedule --seconds 600
    .venv/bin/python -m benchmarks.bench_metaschedule --only tiny --seconds 20

The time of a tuner is in two halves, in the order relaxlab, TVM, TVM, relaxlab, so that a machine
that gets busier or hotter is to nobody's good. Then both programs compute the same, and are timed
in turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import relaxlab as rl
from benchmarks import machine
from benchmarks.process import ROOT
from relaxlab.runtime.check.compare import Tolerance, difference

PYTHON = ROOT / ".venv-tvm/bin/python"
PEER = ROOT / "benchmarks/peers/metaschedule.py"
ROUNDS, SAMPLE_SECONDS = 31, 0.01
AIMS = {"latency": 1.3, "trials": 3.0}
"""The geometric mean of the ratios of MetaSchedule's times to ours, and the ratio of our trials per
second to its, that are to be reached."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel: an expression of Relax over parameters of these shapes."""

    value: str
    shapes: tuple[tuple[int, ...], ...]

    def script(self) -> str:
        """The program, as both frameworks read it."""
        params = ", ".join(
            f'{name}: R.Tensor({shape}, "float32")'
            for name, shape in zip("xwb", self.shapes, strict=False)
        )
        return (
            "@I.ir_module\nclass Module:\n    @R.function\n"
            f"    def main({params}):\n        with R.dataflow():\n"
            f"            y = {self.value}\n            R.output(y)\n        return y\n"
        )


CASES = {
    "gemm_odd": Case("R.matmul(x, w)", ((127, 253), (253, 381))),
    "gemm_512": Case("R.matmul(x, w)", ((512, 512), (512, 512))),
    "gemm_relu": Case("R.nn.relu(R.matmul(x, w))", ((128, 768), (768, 3072))),
    "gemm_transposed": Case("R.matmul(x, R.permute_dims(w))", ((200, 300), (500, 300))),
    "gemm_batched": Case("R.matmul(x, w)", ((12, 128, 64), (12, 64, 128))),
    "conv_3x3": Case("R.nn.conv2d(x, w, padding=1)", ((1, 64, 56, 56), (64, 64, 3, 3))),
    "conv_1x1": Case("R.nn.conv2d(x, w)", ((1, 256, 14, 14), (512, 256, 1, 1))),
    "conv_7x7_strided": Case(
        "R.nn.conv2d(x, w, strides=2, padding=3)", ((1, 3, 224, 224), (64, 3, 7, 7))
    ),
    "conv_depthwise": Case(
        "R.nn.conv2d(x, w, padding=1, groups=96)", ((1, 96, 56, 56), (96, 1, 3, 3))
    ),
    "softmax": Case("R.nn.softmax(x)", ((512, 1000),)),
    "layer_norm": Case("R.nn.layer_norm(x, w, b, axes=[-1])", ((512, 768), (768,), (768,))),
    "sum_last": Case("R.sum(x, axis=1)", ((1024, 1024),)),
    "sum_first": Case("R.sum(x, axis=0)", ((1024, 1024),)),
    "max_pool": Case(
        "R.nn.max_pool2d(x, pool_size=(3, 3), strides=2, padding=1)", ((1, 64, 112, 112),)
    ),
}
TINY = Case("R.matmul(x, w)", ((24, 40), (40, 56)))


@dataclass(frozen=True, slots=True)
class Row:
    """The result for a kernel: seconds of a call, and trials, ours and theirs."""

    name: str
    ours: float
    theirs: float
    our_trials: int
    their_trials: int
    seconds: float

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.theirs / self.ours


class Peer:
    """MetaSchedule for one kernel, with its records in a folder."""

    def __init__(self, case: Case, folder: Path, cores: int) -> None:
        self._script, self._folder = folder / "program.py", folder
        self._script.write_text(case.script(), "utf-8")
        self._cores = cores
        rng = np.random.default_rng(0)
        self.args = [rng.uniform(-1, 1, shape).astype("float32") for shape in case.shapes]
        np.savez(folder / "arguments.npz", *self.args)

    def _start(self, action: str, **pipes: Any) -> subprocess.Popen[str]:
        with (self._folder / f"{action}.log").open("w") as log:
            return subprocess.Popen(
                [PYTHON, PEER, action, self._script, self._folder, str(self._cores)], text=True,
                stderr=log, start_new_session=True,
                env={**os.environ, "TVM_NUM_THREADS": str(self._cores)}, **{"stdout": log, **pipes},
            )  # fmt: skip

    def tune(self, seconds: float) -> None:
        """Search for so long; what is found stays in the folder. Raises RuntimeError with the end
        of its output where it ends by itself, as without XGBoost."""
        process = self._start("tune")
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return
        raise RuntimeError(f"MetaSchedule ended: {self._end_of('tune')}")

    @property
    def trials(self) -> int:
        """The programs that were measured."""
        file = self._folder / "database_tuning_record.json"
        return len(file.read_text("utf-8").splitlines()) if file.exists() else 0

    def serve(self) -> None:
        """Start the process with the best program."""
        self._server = self._start("serve", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request: str) -> str:
        """The answer of that process. Raises RuntimeError where it ended."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(request + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer:
            raise RuntimeError(f"MetaSchedule's program ended: {self._end_of('serve')}")
        return answer.strip()

    def close(self) -> None:
        """End that process."""
        os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()

    def _end_of(self, action: str) -> str:
        return "\n".join((self._folder / f"{action}.log").read_text("utf-8").splitlines()[-5:])


def compared(name: str, case: Case, seconds: float, cores: int) -> Row:
    """Tune a kernel by both, and time what they found."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        mod, database = rl.parse(case.script()), folder / "relaxlab.db"
        peer = Peer(case, folder, cores)

        def tune_ours() -> int:
            found = rl.tune(
                mod, seconds=seconds / 2, trials=10**6, database=database, threads=cores,
                resume=True, search="evolution",
            )  # fmt: skip
            return sum(sum(kernel.trials.values()) for kernel in found.kernels)

        ours = tune_ours()
        peer.tune(seconds / 2)
        peer.tune(seconds / 2)
        ours += tune_ours()
        if not peer.trials:
            raise RuntimeError(
                f"MetaSchedule measured nothing in {seconds:.0f} s: it builds 64 programs first; "
                "give it more --seconds"
            )
        exe = rl.compile(mod, tuned=database, threads=cores)
        peer.serve()
        try:
            times = _timed(exe, peer, folder / "result.npy")
        finally:
            peer.close()
        return Row(name, *times, ours, peer.trials, seconds)


def _timed(exe: Any, peer: Peer, file: Path) -> tuple[float, float]:
    """Seconds of a call, ours and theirs, as the medians of samples that take turns. file: for the
    result of theirs. Raises RuntimeError where the programs compute different things."""
    args = peer.args
    peer.ask(f"result {file}")
    theirs = np.load(file)
    wrong = difference(exe(*args), theirs, "the result", Tolerance(2.0**-24, 4096, ()))
    if wrong is not None:
        raise RuntimeError(f"the programs compute different things: {wrong}")

    def ours(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            exe(*args)
        return (time.perf_counter() - start) / calls

    calls = max(1, round(SAMPLE_SECONDS / min(ours(3), float(peer.ask("sample 3")))))
    samples: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        if number % 2:
            before, after = float(peer.ask(f"sample {calls}")), ours(calls)
            samples.append((after, before))
        else:
            samples.append((ours(calls), float(peer.ask(f"sample {calls}"))))
    mine, other = zip(*samples, strict=True)
    return median(mine), median(other)


def table(rows: Sequence[Row]) -> str:
    """A line for each kernel, then the geometric means beside the aims."""
    lines = [
        "| kernel | relaxlab | MetaSchedule | ratio | trials | MetaSchedule's |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        lines.append(
            f"| {r.name} | {1e6 * r.ours:.1f} µs | {1e6 * r.theirs:.1f} µs | {r.ratio:.2f} "
            f"| {r.our_trials} | {r.their_trials} |"
        )
    latency = math.exp(sum(math.log(r.ratio) for r in rows) / len(rows))
    trials = sum(r.our_trials for r in rows) / max(1, sum(r.their_trials for r in rows))
    lines.append(
        f"\ngeometric mean of the ratios {latency:.2f} (aim {AIMS['latency']}), "
        f"trials {trials:.2f} times as many (aim {AIMS['trials']})"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, print the table, and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="of each tuner, for each kernel")
    parser.add_argument("--only", nargs="*", help=f"of: {', '.join([*CASES, 'tiny'])}")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, help="a file for the rows, as JSON")
    options = parser.parse_args(arguments)
    known = {**CASES, "tiny": TINY}
    rows: list[Row] = []
    for name in options.only or CASES:
        rows.append(compared(name, known[name], options.seconds, options.cores))
        print(table(rows[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    print(table(rows))
    if options.output is not None:
        kept = {"machine": machine.describe(), "rows": [asdict(r) for r in rows]}
        options.output.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
