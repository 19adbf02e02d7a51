"""OpenVINO GenAI, which reads the GGUF file itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Timing


class OpenVINO(Peer):
    """Timed by its own counters, without (de)tokenising. It caches prefixes: prompts must be new.

    `options` are properties of the pipeline.
    """

    def __init__(self, model: str, threads: int, **options: Any) -> None:
        import openvino
        import openvino_genai

        self._openvino, self._genai = openvino, openvino_genai
        start = time.perf_counter()
        self._pipeline = openvino_genai.LLMPipeline(
            model, "CPU", INFERENCE_NUM_THREADS=threads, **options
        )
        self.about = {
            "version": openvino_genai.__version__,
            "load_s": time.perf_counter() - start,
        }

    def generate(self, ids: Sequence[int], steps: int) -> Timing:
        tokens = np.array([ids], np.int64)
        tensors = [self._openvino.Tensor(t) for t in (tokens, np.ones_like(tokens))]
        config = self._genai.GenerationConfig(
            max_new_tokens=steps + 1, min_new_tokens=steps + 1, ignore_eos=True, do_sample=False,
            apply_chat_template=False,
        )  # fmt: skip
        result = self._pipeline.generate(self._genai.TokenizedInputs(*tensors), config)
        found = list(result.tokens[0])
        if len(found) != steps + 1:
            raise RuntimeError(f"asked for {steps + 1} tokens, got {len(found)}")
        metrics = result.perf_metrics
        decode_ms = metrics.get_tpot().mean * steps if steps else 0.0
        return Timing(metrics.get_ttft().mean / 1e3, decode_ms / 1e3, found)
