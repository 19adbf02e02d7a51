"""relaxlab with another pipeline, see `benchmarks.variants`."""

from __future__ import annotations

from benchmarks.peers.relaxlab import Relaxlab
from benchmarks.variants import VARIANTS
from relaxlab.passes.pipeline import cpu_pipeline


class Ablated(Relaxlab):
    """`variant`: the name of a pipeline."""

    def __init__(self, model: str, threads: int, *, variant: str) -> None:
        super().__init__(model, threads, pipeline=VARIANTS[variant](cpu_pipeline()))
