"""Kernels whose times are predicted, under the roofline of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from relaxlab.ir.errors import kind_of
from relaxlab.ir.gpus import Gpu
from relaxlab.lab.view import View
from relaxlab.runtime.limits import Level
from relaxlab.runtime.predict.model import COPY
from relaxlab.runtime.predict.predict import LaunchPrediction, Prediction

FUSED = 2 * 32
"""Floating-point operations of a fused multiply-add of a warp."""


def predicted(predictions: Mapping[str, Prediction]) -> View:
    """The kernels of several predictions for one GPU under one roof, each with its name.

    The roof is that of tensor cores where a kernel uses them, else that of float32. Raises
    ValueError without predictions, and for those of several GPUs.
    """
    if not isinstance(predictions, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            "expected a dictionary of names and what rl.predict returned, got "
            f"{kind_of(predictions)}"
        )
    gpus = {p.gpu.name: p.gpu for p in predictions.values()}
    if len(gpus) != 1:
        given = ", ".join(gpus) or "none"
        raise ValueError(f"give predictions for one GPU; those given are for: {given}")
    (gpu,) = gpus.values()
    launches = [x for p in predictions.values() for x in p.launches]
    limits = _limits(gpu, any(x.times.products for x in launches))
    runs = [{"label": n, "profile": _profile(p, limits)} for n, p in predictions.items()]
    title = f"Expected on {gpu.name}: {', '.join(predictions)}"
    text = "\n\n".join(f"{name}: {p!r}" for name, p in predictions.items())
    return View("roofline", title, {"title": title, "runs": runs, "notes": []}, text)


def _limits(gpu: Gpu, products: bool) -> dict[str, Any]:
    scalar = FUSED / 32 * gpu.lanes * gpu.multiprocessors * gpu.clock
    return {
        "source": f"Published figures of {gpu.name}",
        "flops": gpu.products if products else scalar,
        # Nothing is held against the cache: its bytes come from main memory once.
        "levels": [
            asdict(Level("L2", 0, gpu.cache_bandwidth)),
            asdict(Level("main memory", None, gpu.bandwidth * COPY)),
        ],
    }


def _profile(prediction: Prediction, limits: Mapping[str, Any]) -> dict[str, Any]:
    """A prediction as the roofline takes the profile of a run."""
    names = [x.kernel for x in prediction.launches]
    calls = [
        {
            "name": n, "seconds": x.seconds, "bound": x.times.bound,
            "cost": {"flops": _flops(x) * x.count, "bytes": x.times.bytes * x.count},
        }
        for n, x in enumerate(prediction.launches)
    ]  # fmt: skip
    return {"names": names, "calls": calls, "threads": 1, "limits": limits}


def _flops(x: LaunchPrediction) -> float:
    return x.times.products + x.work.counters.pipes.get("fma", 0) * FUSED * x.geometry.blocks
