"""The driver's end of a worker: start it, ask it, end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
START_S = 240.0
ANSWER_S = 240.0
LINES_OF_ERROR = 15


class WorkerFailed(RuntimeError):
    """The worker ended, failed or took too long; with the end of what it printed."""


def output_of(command: Sequence[str]) -> str:
    """Return a command's output. Raises RuntimeError with its standard error if it fails."""
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{run.stderr}")
    return run.stdout


class Worker:
    """A process that runs `benchmarks.worker`; end it with `close`. It is stopped while it has
    nothing to answer: threads that wait for work would take cores from the others.

    python: the interpreter of the environment it lives in. environment: variables to add.
    Raises WorkerFailed when it cannot load what it is asked to.
    """

    def __init__(
        self,
        python: Path,
        name: str,
        options: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # Closed by `close`, when the process has ended.
        self._printed = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [str(python), "-m", "benchmarks.worker", name, json.dumps(options)],
                cwd=ROOT, env={**os.environ, **(environment or {})}, encoding="utf-8",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._printed,
            )  # fmt: skip
        except OSError as error:
            self._printed.close()
            raise WorkerFailed(f"{python} cannot be run: {error.strerror}") from None
        answer = self._answer(START_S)
        self.about: dict[str, Any] = answer["about"]
        self.start_rss_mb: float = answer["peak_rss_mb"]

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """The answer to a request, see `benchmarks.worker.respond`."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(self._why("it has ended")) from None
        return self._answer(ANSWER_S)

    def close(self) -> None:
        """End the process; it ends by itself when its standard input does."""
        self._process.send_signal(signal.SIGCONT)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._printed.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        alarm = threading.Timer(seconds, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        alarm.cancel()
        answer = json.loads(line) if line else {"error": f"ended, or took over {seconds:.0f} s"}
        if "error" in answer:
            self._process.wait()
            why = self._why(answer["error"])
            self.close()
            raise WorkerFailed(why)
        self._process.send_signal(signal.SIGSTOP)
        return answer

    def _why(self, message: str) -> str:
        self._printed.seek(0)
        tail = self._printed.read().splitlines()[-LINES_OF_ERROR:]
        return "\n    ".join([message, *tail])
