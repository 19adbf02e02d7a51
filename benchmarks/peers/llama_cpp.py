"""llama.cpp through llama-cpp-python, compiled on this machine for its own CPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers.base import Array, Peer


class LlamaCpp(Peer):
    """Evaluation and the argmax of the logits: the chain of samplers that llama.cpp has takes
    longer."""

    def __init__(self, model: str, threads: int, **options: Any) -> None:
        import llama_cpp

        start = time.perf_counter()
        self._llama = llama_cpp.Llama(
            model, n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=threads,
            n_threads_batch=threads, verbose=False, **options,
        )  # fmt: skip
        self.about = {
            "version": llama_cpp.__version__,
            "load_s": time.perf_counter() - start,
            "system": llama_cpp.llama_print_system_info().decode(),
        }

    def reset(self) -> None:
        self._llama.reset()
        self._llama._ctx.kv_cache_clear()

    def feed(self, ids: Sequence[int]) -> Array:
        self._llama.eval(ids)
        return np.ctypeslib.as_array(self._llama._ctx.get_logits(), (self._llama.n_vocab(),))
