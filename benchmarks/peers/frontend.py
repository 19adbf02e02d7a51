"""Peers that run models of transformers: imported by relaxlab, or compiled by PyTorch."""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import relaxlab
from benchmarks.peers.kernels.base import median_s
from relaxlab.testing.torch_models import SIZES, models

LAYERS, WIDTH = 4, 256


class _Models:
    """A peer, whose subclasses say how a model is made fast: `compiled(name)`, called with its
    arguments by name."""

    about: dict[str, Any]

    def __init__(self, threads: int) -> None:
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.threads, self._models = threads, models(WIDTH)
        self._runs: dict[str, Callable[[], Any]] = {}

    def compiled(self, name: str) -> Callable[..., Any]:
        raise NotImplementedError

    def prepare(self, case: str, file: str) -> dict[str, Any]:
        """Compile a model and run it at all sizes; the results of the largest go to `file`."""
        begin = time.perf_counter()
        run = self.compiled(case)
        torch.manual_seed(1)
        results: list[Any] = []
        for batch, length in SIZES:
            arguments = self._models[case].arguments(batch, length)
            results = pytree.tree_leaves(run(**arguments))
            self._runs[f"{case} {batch} x {length}"] = lambda given=arguments: run(**given)
        np.save(file, results[0].numpy())
        return {"compile_s": time.perf_counter() - begin}

    def time(self, names: list[str], seconds: float) -> dict[str, float]:
        """Seconds of a call of each: the median of the repetitions that fit into `seconds`."""
        return {name: median_s(self._runs[name], seconds) for name in names}

    def forget(self) -> dict[str, Any]:
        """Drop the models."""
        self._runs.clear()
        return {}


class ImportedModels(_Models):
    """`rl.from_torch(model)`, compiled."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.about = {"version": relaxlab.__version__}

    def compiled(self, name: str) -> Callable[..., Any]:
        _, program = self._models[name].imported(LAYERS)
        return program.compile(threads=self.threads)


class CompiledModels(_Models):
    """`torch.compile(model, dynamic=True)`."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.about = {"version": torch.__version__}

    def compiled(self, name: str) -> Callable[..., Any]:
        torch._dynamo.reset()
        return torch.compile(self._models[name].drawn(LAYERS), dynamic=True)
