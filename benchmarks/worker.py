"""A contestant in a process of its own: requests in as lines of JSON, answers out likewise.

python -m benchmarks.worker CLASS '{"model": …, "threads": …, …}'
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from typing import Any, TextIO

import numpy as np

MODULES = {
    "Relaxlab": "contestants.relaxlab",
    "Ablated": "contestants.ablated",
    "LlamaCpp": "contestants.llama_cpp",
    "OpenVINO": "contestants.openvino",
    "PyTorch": "contestants.pytorch",
    "RelaxlabBatches": "contestants.batches",
    "RelaxlabOneByOne": "contestants.batches",
    "LlamaCppBatches": "contestants.batches",
    "Limits": "limits",
    "RelaxlabKernels": "contestants.kernels.relaxlab",
    "NumPyKernels": "contestants.kernels.numpy",
    "PyTorchKernels": "contestants.kernels.pytorch",
    "JAXKernels": "contestants.kernels.jax",
}
"""Where each class is; `Limits` measures the machine instead of a model."""


def main() -> None:
    answers = _own_stdout()
    name, options = sys.argv[1], json.loads(sys.argv[2])
    try:
        module = import_module(f"benchmarks.{MODULES[name]}")
        contestant = getattr(module, name)(**options)
        _send(answers, {"about": contestant.about, "peak_rss_mb": peak_rss_mb()})
        for line in sys.stdin:
            request = json.loads(line)
            _send(answers, respond(contestant, **request))
    except Exception as error:  # the driver reports it and goes on with the others
        traceback.print_exc()
        _send(answers, {"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)


def respond(contestant: Any, *, do: str, **request: Any) -> dict[str, Any]:
    """The answer to one request; ValueError for one that does not exist."""
    match do:
        case "generate":
            t = contestant.generate(**request)
            return {"prefill_s": t.prefill_s, "decode_s": t.decode_s, "ids": t.ids}
        case "generate_batch":
            t = contestant.generate_batch(**request)
            return {"prefill_s": t.prefill_s, "decode_s": t.decode_s, "ids": t.ids}
        case "logits":
            file = request.pop("file")
            np.save(file, contestant.logits(**request))
            return {"file": file}
        case "prepare" | "time" | "forget":  # of kernels
            return getattr(contestant, do)(**request)
        case "measure":
            return contestant.measure()
        case "peak_rss_mb":
            return {"peak_rss_mb": peak_rss_mb()}
        case _:
            raise ValueError(f"unknown request {do!r}")


def peak_rss_mb() -> float:
    """The most memory that this process has held, in MB (10^6 bytes)."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


def _own_stdout() -> TextIO:
    """Standard output for the answers alone: what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _send(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
