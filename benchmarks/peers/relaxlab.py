"""relaxlab, through the interface that its users have."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from benchmarks.peers.base import Array, Peer, Timing


class Relaxlab(Peer):
    """`options` are those of `TextGenerator.load`."""

    def __init__(self, model: str, threads: int, **options: Any) -> None:
        start = time.perf_counter()
        import relaxlab
        from relaxlab.models.generate import TextGenerator

        imported = time.perf_counter()
        self._generator = TextGenerator.load(model, threads=threads, **options)
        self._sampler = endless(self._generator.tokenizer.stop_ids)
        self._ids: list[int] = []
        self.about = {
            "version": relaxlab.__version__,
            "import_s": imported - start,
            "load_s": self._generator.times.load_s,
            "compile_s": self._generator.times.compile_s,
            "from_cache": self._generator.executable.from_cache,
            "planned_bytes": self._generator.executable.artifact.planned_bytes["prefill"],
        }

    def reset(self) -> None:
        self._generator.reset()
        self._ids = []

    def feed(self, ids: Sequence[int]) -> Array:
        self._ids += ids
        return self._generator.logits(self._ids)

    def generate(self, ids: Sequence[int], steps: int) -> Timing:
        self.reset()
        answer = self._generator.generate(ids, max_new_tokens=steps + 1, sampler=self._sampler)
        if len(answer.ids) != steps + 1:
            raise RuntimeError(f"asked for {steps + 1} tokens, got {len(answer.ids)}")
        decode_s = 0.0 if answer.decode_tok_s is None else steps / answer.decode_tok_s
        return Timing(answer.prefilled / answer.prefill_tok_s, decode_s, answer.ids)


def endless(stop_ids: Collection[int]) -> Any:
    """A greedy sampler that never ends the answer: as many steps as asked for."""
    from relaxlab.models.sampling import Sampler

    class Endless(Sampler):
        def __call__(self, logits: Array) -> int:
            best = super().__call__(logits)
            while best in stop_ids:
                logits[best] = -float("inf")
                best = super().__call__(logits)
            return best

    return Endless()
