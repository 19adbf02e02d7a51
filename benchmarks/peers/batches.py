"""Peers that answer several prompts at once: relaxlab, one by one too, and llama.cpp."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.peers.base import Array, Timing

PAGES = 512
"""Pages of 16 positions: 8192 for all sequences, as llama.cpp gets."""


class Batches:
    """A loaded model; `generate_batch` reads prompts and takes greedy steps with all of them."""

    about: dict[str, Any]

    def generate_batch(self, prompts: Sequence[Sequence[int]], steps: int) -> Timing:
        """Seconds for reading all prompts and choosing the first tokens, then for `steps` more
        tokens of each; and the tokens, prompt after prompt."""
        raise NotImplementedError


class RelaxlabBatches(Batches):
    """`TextGenerator` with pages; `options` are those of its `load`."""

    def __init__(self, model: str, threads: int, **options: Any) -> None:
        import relaxlab
        from relaxlab.models.generate import TextGenerator

        self._batch = TextGenerator.load(
            model, threads=threads, max_sequences=32, pages=PAGES, **options
        )
        times = self._batch.times
        self.about = {
            "version": relaxlab.__version__, "load_s": times.load_s, "compile_s": times.compile_s,
            "pool_mb": self._batch.cache.nbytes / 1e6,
        }  # fmt: skip

    def generate_batch(self, prompts: Sequence[Sequence[int]], steps: int) -> Timing:
        """All prompts are read, in as many calls as it takes, before the first step."""
        from benchmarks.peers.relaxlab import endless

        sampler = endless(self._batch.tokenizer.stop_ids)
        start = time.perf_counter()
        requests = [
            self._batch.submit(list(p), max_new_tokens=steps + 1, sampler=sampler) for p in prompts
        ]
        while not all(r.ids for r in requests):
            self._batch.step()
        middle, early = time.perf_counter(), sum(len(r.ids) - 1 for r in requests)
        while self._batch.step():
            pass
        end = time.perf_counter()
        # Tokens of prompts that were read early count as if they had been made in the steps.
        share = 1 + early / max(1, len(requests) * steps - early)
        ids = [i for r in requests for i in r.ids]
        return Timing(middle - start, (end - middle) * share, ids)


class RelaxlabOneByOne(Batches):
    """`TextGenerator`, prompt after prompt."""

    def __init__(self, model: str, threads: int, **options: Any) -> None:
        from benchmarks.peers.relaxlab import Relaxlab

        self._single = Relaxlab(model, threads, **options)
        self.about = self._single.about

    def generate_batch(self, prompts: Sequence[Sequence[int]], steps: int) -> Timing:
        times = [self._single.generate(p, steps) for p in prompts]
        ids = [i for t in times for i in t.ids]
        return Timing(sum(t.prefill_s for t in times), sum(t.decode_s for t in times), ids)


class LlamaCppBatches(Batches):
    """llama.cpp's own interface: evaluation and argmax only, no chain of samplers."""

    def __init__(self, model: str, threads: int, sequences: int = 32, flash: bool = False) -> None:
        llama_cpp: Any = import_module("llama_cpp")
        self._api, start = llama_cpp, time.perf_counter()
        llama_cpp.llama_backend_init()
        loaded = llama_cpp.llama_model_load_from_file(
            model.encode(), llama_cpp.llama_model_default_params()
        )
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = PAGES * 16, 512, 512
        # One cache for all sequences (`kv_unified`) was slower: 177 and not 350 tokens/s for 32.
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = int(flash)
        self._context = llama_cpp.llama_init_from_model(loaded, params)
        if not self._context:
            raise RuntimeError("llama.cpp made no context")
        vocabulary = llama_cpp.llama_model_get_vocab(loaded)
        self._size = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._input = llama_cpp.llama_batch_init(params.n_batch, 0, 1)
        self.about = {"version": llama_cpp.__version__, "load_s": time.perf_counter() - start}

    def generate_batch(self, prompts: Sequence[Sequence[int]], steps: int) -> Timing:
        memory = self._api.llama_get_memory(self._context)
        self._api.llama_memory_clear(memory, True)
        start = time.perf_counter()
        rows = [(i, p, n, p == len(ids) - 1) for n, ids in enumerate(prompts)
                for p, i in enumerate(ids)]  # fmt: skip
        first: list[int] = []
        for at in range(0, len(rows), 512):
            first += self._decode(rows[at : at + 512])
        found = [[i] for i in first]
        middle = time.perf_counter()
        for step in range(steps):
            new = [(f[-1], len(prompts[n]) + step, n, True) for n, f in enumerate(found)]
            for ids, i in zip(found, self._decode(new), strict=True):
                ids.append(i)
        end = time.perf_counter()
        return Timing(middle - start, end - middle, [i for ids in found for i in ids])

    def _decode(self, rows: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """rows: token, position, sequence, whether the next token is asked for; those tokens."""
        batch = self._input
        batch.n_tokens = len(rows)
        for k, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[k], batch.pos[k], batch.logits[k] = token, position, wanted
            batch.n_seq_id[k], batch.seq_id[k][0] = 1, sequence
        status = self._api.llama_decode(self._context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        return [int(self._logits(k).argmax()) for k, row in enumerate(rows) if row[3]]

    def _logits(self, row: int) -> Array:
        pointer = self._api.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(pointer, (self._size,))
