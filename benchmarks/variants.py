"""Pipelines in which one thing is left out, or added, to see what it is worth (the paper's
Figure 17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relaxlab.passes.base import Pipeline
from relaxlab.passes.blas_patterns import BLAS


def _unfused(pipeline: Pipeline) -> Pipeline:
    for name in ("merge_composites", "fuse_ops", "fuse_tir"):
        pipeline = pipeline.without(name)
    return pipeline


def _one_version(pipeline: Pipeline) -> Pipeline:
    general = pipeline.with_options("schedule_kernels", versions=False)
    return general.without("specialize_loop_functions")


VARIANTS: Mapping[str, Callable[[Pipeline], Pipeline]] = {
    "everything": lambda pipeline: pipeline,
    "without fusion": _unfused,
    "without memory planning": lambda pipeline: pipeline.without("plan_memory"),
    "without versions for one row": _one_version,
    "without replicated small kernels": lambda p: p.without("replicate_small_kernels"),
    "with library calls (OpenBLAS)": lambda p: p.with_options("lower_to_libraries", use=BLAS),
}
"""Changes of the default pipeline; library calls are not part of it."""
