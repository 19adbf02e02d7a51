"""Text generation with a compiled language model.

    generator = TextGenerator.load("smollm2-135m")
    answer = generator.generate("Why is the sky blue?", max_new_tokens=64)
    print(answer.text, answer.decode_tok_s)

    for piece in generator.stream("Count to five."):
        print(piece, end="", flush=True)

One compilation serves every context and prompt length. Long prompts are read in chunks, so that
the memory for activations does not grow with them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError, kind_of
from relaxlab.models.load_decoder import LoadedDecoder, Progress, load_decoder
from relaxlab.models.loader import Checkpoint
from relaxlab.models.request import Request
from relaxlab.models.sampling import Sampler
from relaxlab.runtime.large_pages import MAX_EAGER_BYTES, Promotion, zeros

if TYPE_CHECKING:
    from relaxlab.models.chat import Message
    from relaxlab.models.profile import ModelProfile
    from relaxlab.passes.base import Pipeline

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Prompt: TypeAlias = "str | Sequence[Message] | Sequence[int]"

CHUNK = 512
"""Most positions read in one call. Longer ones multiply no faster, and take more memory for
activations."""

LONG_CONTEXT = 1024
"""Cached positions, or tokens generated, from which on keys and values, or weights, move to large
pages: the milliseconds that moving takes come back within some hundred tokens."""


class PromptError(UserError, ValueError):
    """The prompt is empty, does not fit into the context, or holds ids that the model lacks."""


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer. `stopped` says why it ended: `stop` (the model ended it), `length` (as many
    tokens as asked for) or `context` (no room for more).

    Speeds are in tokens per second: `prefill_tok_s` of reading the `prefilled` ids of the prompt
    that were not in the cache yet, `decode_tok_s` of the steps after it (None: there were none).
    Both include drawing the tokens.
    """

    prompt_ids: list[int]
    ids: list[int]
    text: str
    stopped: str
    prefilled: int
    prefill_tok_s: float
    decode_tok_s: float | None


@dataclass(slots=True)
class _Run:
    """The measurements of a generation in progress."""

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    stopped: str = "stop"
    prefilled: int = 0
    prefill_s: float = 0.0
    steps: int = 0
    decode_s: float = 0.0

    def finished(self, text: str) -> Generation:
        return Generation(
            self.prompt_ids,
            self.ids,
            text,
            self.stopped,
            self.prefilled,
            self.prefilled / self.prefill_s,
            self.steps / self.decode_s if self.steps else None,
        )


class TextGenerator(Brief):
    """A compiled model with its tokenizer, KV cache and weights; see `load`.

    Attributes: `tokenizer`; `chat_template` (None if the model has none); `max_context`;
    `executable`; `times`.
    """

    def __init__(self, loaded: LoadedDecoder, cache: Sequence[Array]) -> None:
        """cache: the arrays of keys and values, which steps update in place."""
        self.checkpoint, self.executable = loaded.checkpoint, loaded.program.executable
        self.tokenizer, self.chat_template = loaded.checkpoint.tokenizer, loaded.checkpoint.chat
        self.max_context, self.times = loaded.max_context, loaded.times
        self._prefill, self._decode = self.executable["prefill"], self.executable["decode"]
        for function in (self._prefill, self._decode):
            function.bind(*cache, *loaded.weights)
        self._cache_pages = Promotion(cache, MAX_EAGER_BYTES)
        self._weight_pages = Promotion(loaded.weights)
        self._steps = 0
        self._cached: list[int] = []
        self._owner: _Run | None = None  # whose sequence is cached

    @staticmethod
    def load(
        model: str | os.PathLike[str] | Checkpoint = "smollm2-135m",
        *,
        activations: str = "float32",
        kv_dtype: str | None = None,
        max_context: int | None = None,
        threads: int | None = None,
        pipeline: Pipeline | None = None,
        use_cache: bool = True,
        progress: Progress | None = None,
    ) -> TextGenerator:
        """Open, compile and load a model.

        model: a name (`smollm2-135m`, `tiny`), a GGUF file, a Hugging Face folder, or one of these
        opened by `open_model`.
        activations: "float32"; "q8" or "q16" to quantise them to 8 or 15 bits for integer dot
        products ("q16" costs two products and changes logits by less than 1 in 1000). With "q8",
        prompts are multiplied in bfloat16 where the machine has matrix tiles for it, and plain
        bfloat16 weights by rounded activations where it has an instruction for that.
        kv_dtype: "float32" or "float16", the dtype of cached keys and values; None: "float16" with
        "q8", else "float32".
        max_context: how many positions to keep at most; None: what the model was made for, up to
        `DEFAULT_CONTEXT`. threads: None means all cores. pipeline, use_cache: see `compile`.
        progress: called with a line of text at the start of each step.

        Raises what `open_model` raises, and ModelError for a context that the model does not have.
        """
        request = Request.of(activations, kv_dtype, CHUNK)
        loaded = load_decoder(
            model, request, max_context=max_context, threads=threads, pipeline=pipeline,
            use_cache=use_cache, progress=progress,
        )  # fmt: skip
        layers = loaded.checkpoint.config.num_layers
        shapes = loaded.program.cache_shapes("prefill", 2, layers, loaded.max_context)
        return TextGenerator(loaded, zeros(shapes, request.kv_dtype))

    def encode(self, prompt: Prompt, *, raw: bool = False) -> list[int]:
        """Token ids of a prompt: a question as text, the messages of a chat, or ids as they are.

        A question becomes a chat of one message, unless `raw` or the model has no chat template.
        Raises PromptError for a prompt without tokens or with ids that the model does not have,
        ChatError for messages that the template refuses.
        """
        return encode_prompt(self.checkpoint, self.max_context, prompt, raw)

    def logits(self, ids: Sequence[int]) -> Array:
        """Return the logits float32 (vocab_size,) of the token after `ids`, the whole sequence.

        Only the part that differs from the previous call's sequence is computed. Raises PromptError
        as `encode` does.
        """
        ids = _checked(self.checkpoint, self.max_context, list(ids))
        return self._logits(ids)[0]

    def _logits(self, ids: list[int]) -> tuple[Array, int]:
        """The logits after `ids`, and how many of the ids had to be computed."""
        # Whoever generates meanwhile finds that the cache is no longer its own.
        self._owner = None
        # Without the last id, whose logits are asked for: it must go through the model again.
        past = _common_prefix(self._cached, ids[:-1])
        del self._cached[past:]
        logits = np.empty(0, np.float32)
        for at in range(past, len(ids), CHUNK):
            logits = self._extend(ids[at : at + CHUNK])
        return logits, len(ids) - past

    def _extend(self, ids: list[int]) -> Array:
        """The logits after the cached sequence and `ids`, which joins it."""
        function = self._decode if len(ids) == 1 else self._prefill
        logits = function(np.array([ids], np.int32), (len(self._cached),))
        self._cached += ids  # only now: an interrupted call leaves its rows undefined
        self._steps += 1
        if len(self._cached) >= LONG_CONTEXT:
            self._cache_pages.step()
        if self._steps >= LONG_CONTEXT:
            self._weight_pages.step()
        return logits[0]

    def stream(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        raw: bool = False,
        sampler: Sampler | None = None,
    ) -> Iterator[str]:
        """The answer as text, piece by piece as it is generated; arguments as for `generate`."""
        run = _Run(self.encode(prompt, raw=raw))
        return self._pieces(run, max_new_tokens, sampler or Sampler())

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        raw: bool = False,
        sampler: Sampler | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Generation:
        """Answer a prompt (see `encode`) with at most `max_new_tokens` tokens.

        sampler: how tokens are drawn; None: greedily. on_text: called with each piece of text.
        Raises PromptError or ChatError for a prompt that cannot be answered.
        """
        run = _Run(self.encode(prompt, raw=raw))
        pieces: list[str] = []
        for piece in self._pieces(run, max_new_tokens, sampler or Sampler()):
            pieces.append(piece)
            if on_text is not None:
                on_text(piece)
        return run.finished("".join(pieces))

    def _pieces(self, run: _Run, max_new_tokens: int, sampler: Sampler) -> Iterator[str]:
        if max_new_tokens < 1:
            raise PromptError(f"max_new_tokens must be at least 1, is {max_new_tokens}")
        text = self.tokenizer.stream()
        start = time.perf_counter()
        logits, run.prefilled = self._logits(run.prompt_ids)
        self._owner = run
        token = sampler(logits)
        run.prefill_s = time.perf_counter() - start
        while token not in self.tokenizer.stop_ids:
            run.ids.append(token)
            # A padded vocabulary has logits for ids without a token.
            if token < self.tokenizer.vocab_size and (piece := text.step(token)):
                yield piece
            if len(run.ids) == max_new_tokens:
                run.stopped = "length"
                break
            if len(self._cached) == self.max_context:
                run.stopped = "context"
                break
            start = time.perf_counter()
            if self._owner is not run:  # something else was asked of the model in between
                self._logits([*run.prompt_ids, *run.ids[:-1]])
                self._owner = run
            token = sampler(self._extend([token]))
            run.decode_s += time.perf_counter() - start
            run.steps += 1
        if rest := text.finish():
            yield rest

    def profile(self, prompt: Prompt, *, raw: bool = False) -> ModelProfile:
        """Return the times of the kernels of reading a prompt and of writing one token, longest
        first; print it. The program is compiled once more, with marks around its kernels. Raises
        PromptError as `encode` does."""
        from relaxlab.models.profile import profile_model

        return profile_model(self.executable, self.encode(prompt, raw=raw))

    def reset(self) -> None:
        """Forget the cached positions."""
        self._cached.clear()


def encode_prompt(checkpoint: Checkpoint, max_context: int, prompt: Prompt, raw: bool) -> list[int]:
    """The ids of a prompt that must fit into a context; see `TextGenerator.encode`."""
    if isinstance(prompt, str):
        if raw or checkpoint.chat is None:
            ids = checkpoint.tokenizer.encode(prompt)
        else:
            ids = checkpoint.chat.encode([{"role": "user", "content": prompt}])
    elif all(isinstance(item, int | np.integer) for item in prompt):
        ids = [int(item) for item in prompt]  # type: ignore[arg-type]
    elif not all(isinstance(item, Mapping) for item in prompt):
        wrong = next(item for item in prompt if not isinstance(item, Mapping))
        raise PromptError(
            "a prompt is text, a list of messages {'role': ..., 'content': ...}, or a list of "
            f"token ids; this list has {kind_of(wrong)} in it (BatchGenerator answers several "
            "prompts together)"
        )
    elif checkpoint.chat is None:
        raise PromptError(f"{checkpoint.path} has no chat template; pass text")
    else:
        ids = checkpoint.chat.encode(prompt)  # type: ignore[arg-type]
    return _checked(checkpoint, max_context, ids)


def _checked(checkpoint: Checkpoint, max_context: int, ids: list[int]) -> list[int]:
    if not ids:
        raise PromptError("the prompt is empty; give at least one token")
    if len(ids) > max_context:
        raise PromptError(
            f"the prompt has {len(ids)} tokens, the context holds {max_context}; "
            "shorten it, or load the model with a larger max_context"
        )
    size = checkpoint.config.vocab_size
    wrong = next((i for i in ids if not 0 <= i < size), None)
    if wrong is not None:
        raise PromptError(f"the prompt holds the token id {wrong}, the model has 0..{size - 1}")
    return ids


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def peak_rss_mb() -> float:
    """The most memory this process has held, in MB (10^6 bytes)."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
