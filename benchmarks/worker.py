"""A peer in a process of its own: requests in as lines of JSON, answers out likewise.

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
    "Relaxlab": "peers.relaxlab",
    "Ablated": "peers.ablated",
    "LlamaCpp": "peers.llama_cpp",
    "OpenVINO": "peers.openvino",
    "PyTorch": "peers.pytorch",
    "RelaxlabBatches": "peers.batches",
    "RelaxlabOneByOne": "peers.batches",
    "LlamaCppBatches": "peers.batches",
    "RelaxlabDynamic": "peers.dynamic",
    "RelaxlabLevels": "peers.dynamic_levels",
    "PyTorchDynamic": "peers.dynamic",
    "DyNetDynamic": "peers.dynamic_dynet",
    "Limits": "limits",
    "RelaxlabKernels": "peers.kernels.relaxlab",
    "NumPyKernels": "peers.kernels.numpy",
    "PyTorchKernels": "peers.kernels.pytorch",
    "JAXKernels": "peers.kernels.jax",
    "RelaxlabRagged": "peers.kernels.ragged",
    "RelaxlabMatrices": "peers.kernels.ragged",
    "PyTorchRagged": "peers.kernels.ragged_pytorch",
    "PyTorchParts": "peers.kernels.parts_pytorch",
    "PyTorchMatrices": "peers.kernels.parts_pytorch",
    "RelaxlabOperators": "peers.operators",
    "NumPyOperators": "peers.operators",
    "PyTorchOperators": "peers.operators",
    "JAXOperators": "peers.operators",
    "ImportedModels": "peers.frontend",
    "CompiledModels": "peers.frontend",
}
"""The module of each class; `Limits` measures the machine instead of a model."""


def main() -> None:
    answers = _own_stdout()
    name, options = sys.argv[1], json.loads(sys.argv[2])
    try:
        module = import_module(f"benchmarks.{MODULES[name]}")
        peer = getattr(module, name)(**options)
        _send(answers, {"about": peer.about, "peak_rss_mb": peak_rss_mb()})
        for line in sys.stdin:
            request = json.loads(line)
            _send(answers, respond(peer, **request))
    except Exception as error:  # the driver reports it and goes on with the others
        traceback.print_exc()
        _send(answers, {"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)


def respond(peer: Any, *, do: str, **request: Any) -> dict[str, Any]:
    """The answer to one request; ValueError for one that does not exist."""
    match do:
        case "generate":
            t = peer.generate(**request)
            return {"prefill_s": t.prefill_s, "decode_s": t.decode_s, "ids": t.ids}
        case "generate_batch":
            t = peer.generate_batch(**request)
            return {"prefill_s": t.prefill_s, "decode_s": t.decode_s, "ids": t.ids}
        case "logits":
            file = request.pop("file")
            np.save(file, peer.logits(**request))
            return {"file": file}
        case "prepare" | "time" | "forget" | "time_instances":  # of kernels, of networks
            return getattr(peer, do)(**request)
        case "measure":
            return peer.measure()
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
