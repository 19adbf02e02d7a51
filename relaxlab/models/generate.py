"""Text generation with a compiled language model.

    model = TextGenerator.load("smollm2-135m")
    answer = model.generate("Why is the sky blue?", max_new_tokens=64)
    print(answer.text, answer.decode_tok_s)

    for piece in model.stream("Count to five."):
        print(piece, end="", flush=True)

    batch = TextGenerator.load("smollm2-135m", max_sequences=8)
    for answer in batch.generate_all(["Why is the sky blue?", "Count to five."]):
        print(answer.text)

    first = batch.submit("Tell me a story.", on_text=show)
    batch.step()
    second = batch.submit("What is 3 + 4?")  # joins while the other is under way
    while batch.step(): ...

One compilation serves every context and prompt length, and every number of sequences. Long prompts
are read in chunks, so that the memory for activations does not grow with them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief
from relaxlab.models.contiguous_cache import ContiguousCache
from relaxlab.models.generation import (
    CHUNK,
    Array,
    Cache,
    Draw,
    Generation,
    OnText,
    Prompt,
    PromptError,
    encode_prompt,
)
from relaxlab.models.load_decoder import LoadedDecoder, Progress, load_decoder
from relaxlab.models.loader import Checkpoint, ModelError
from relaxlab.models.request import Request

if TYPE_CHECKING:
    from relaxlab.models.profile import ModelProfile
    from relaxlab.passes.base import Pipeline

DEFAULT_PAGES = 512
"""Pages for many sequences by default: 8192 positions."""


@methods_name_arguments
class TextGenerator(Brief):
    """A compiled model with its tokenizer, KV cache and weights; see `load`.

    Attributes: `tokenizer`; `chat_template` (None if the model has none); `max_context`, positions
    of a sequence; `active`, the answers under way, oldest first; `cache`, the keys and values;
    `executable`; `times`.
    """

    def __init__(self, loaded: LoadedDecoder, cache: Cache) -> None:
        """cache: of the loaded program."""
        self.checkpoint, self.executable = loaded.checkpoint, loaded.program.executable
        self.tokenizer, self.chat_template = loaded.checkpoint.tokenizer, loaded.checkpoint.chat
        self.max_context, self.times, self.cache = cache.positions, loaded.times, cache
        self.active: list[Generation] = []

    @staticmethod
    def load(
        model: str | os.PathLike[str] | Checkpoint = "smollm2-135m",
        *,
        activations: str = "float32",
        kv_dtype: str | None = None,
        max_context: int | None = None,
        max_sequences: int = 1,
        pages: int = DEFAULT_PAGES,
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
        `DEFAULT_CONTEXT`.
        max_sequences: how many take part in a step at most, up to `CHUNK`; more wait for their
        turn. Several have their keys and values in a pool of `pages` pages of 16 positions; one
        alone is faster without pages. With "q8", steps of more than 32 sequences are multiplied in
        bfloat16, too, where the machine has matrix tiles for it.
        threads: None means all cores. pipeline, use_cache: see `compile`.
        progress: called with a line of text at the start of each step.

        Raises what `open_model` raises, and ModelError for a context that the model does not have.
        """
        if pages < 1 or max_sequences < 1:
            raise ModelError("a model needs at least one page and one sequence")
        rows_of = CHUNK if max_sequences > 1 else None
        request = Request.of(activations, kv_dtype, CHUNK, rows_of)
        loaded = load_decoder(
            model, request, max_context=max_context, threads=threads, pipeline=pipeline,
            use_cache=use_cache, progress=progress,
        )  # fmt: skip
        if max_sequences == 1:
            return TextGenerator(loaded, ContiguousCache(loaded, request.kv_dtype))
        # Its modules are those of the compiler: a program from the cache for one sequence starts
        # without them.
        from relaxlab.models.paged_cache import PagedCache

        return TextGenerator(loaded, PagedCache(loaded, request.kv_dtype, pages, max_sequences))

    def encode(self, prompt: Prompt, *, raw: bool = False) -> list[int]:
        """Token ids of a prompt: a question as text, the messages of a chat, or ids as they are.

        A question becomes a chat of one message, unless `raw` or the model has no chat template.
        Raises PromptError for a prompt without tokens or with ids that the model does not have,
        ChatError for messages that the template refuses.
        """
        return encode_prompt(self.checkpoint, self.max_context, prompt, raw)

    def logits(self, ids: Sequence[int]) -> Array:
        """Return the logits float32 (vocab_size,) of the token after `ids`, the whole sequence.

        Only the part that differs from the previous call's sequence is computed, unless there are
        pages. Raises PromptError as `encode` does.
        """
        found: list[Array] = []

        def keep(logits: Array) -> int:
            found.append(logits)
            return 0  # the token does not matter

        self.generate(list(ids), max_new_tokens=1, sampler=keep)
        return found[0]

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        raw: bool = False,
        sampler: Draw | None = None,
        on_text: OnText | None = None,
    ) -> Generation:
        """Answer a prompt (see `encode`) with at most `max_new_tokens` tokens.

        sampler: draws tokens, such as `relaxlab.Sampler(temperature=0.8, seed=1)`; None: greedily.
        on_text: called with each piece of text. Raises PromptError or ChatError for a prompt that
        cannot be answered.
        """
        answer = self.submit(
            prompt, max_new_tokens=max_new_tokens, raw=raw, sampler=sampler, on_text=on_text
        )
        return self._finish([answer])[0]

    def generate_all(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = 128,
        raw: bool = False,
        samplers: Sequence[Draw] | None = None,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[Generation]:
        """Answer all prompts, together as far as `max_sequences` allows, each with at most
        `max_new_tokens` tokens.

        samplers: one for each prompt; None: greedily. on_text: called with the number of a prompt
        and each piece of its answer. Raises as `generate` and `step` do; then none of the prompts
        is under way.
        """
        ids = [self.encode(prompt, raw=raw) for prompt in prompts]
        answers = [
            self.submit(
                prompt, max_new_tokens=max_new_tokens, sampler=samplers[i] if samplers else None,
                on_text=None if on_text is None else partial(on_text, i),
            )
            for i, prompt in enumerate(ids)
        ]  # fmt: skip
        return self._finish(answers)

    def stream(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        raw: bool = False,
        sampler: Draw | None = None,
    ) -> Iterator[str]:
        """The answer as text, piece by piece as it is generated; arguments as for `generate`."""
        ids, pieces = self.encode(prompt, raw=raw), list[str]()

        def stream() -> Iterator[str]:
            answer = self.submit(
                ids, max_new_tokens=max_new_tokens, sampler=sampler, on_text=pieces.append
            )
            try:
                while answer.stopped is None:
                    self._advance(answer)
                    yield from pieces
                    pieces.clear()
            finally:
                self.cancel(answer)

        return stream()

    def submit(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        raw: bool = False,
        sampler: Draw | None = None,
        on_text: OnText | None = None,
    ) -> Generation:
        """Add an answer, which takes part from the next `step` on; arguments as for `generate`."""
        ids, sequence = self.encode(prompt, raw=raw), self.cache.sequence()
        answer = Generation(self.checkpoint, ids, sequence, max_new_tokens, sampler, on_text)
        self.active.append(answer)
        return answer

    def fork(
        self,
        answer: Generation,
        *,
        max_new_tokens: int = 128,
        sampler: Draw | None = None,
        on_text: OnText | None = None,
    ) -> Generation:
        """Return another answer that continues from the current state of `answer`: the tokens so
        far are the prompt of the new one, in the same pages. Raises PromptError for a finished one,
        or one that has not begun."""
        if answer.stopped is not None or not answer.sequence.length:
            state = "has not begun" if answer.stopped is None else "is finished"
            raise PromptError(f"the request {state}; fork one that is under way")
        ids, sequence = [*answer.prompt_ids, *answer.ids], answer.sequence.fork()
        other = Generation(self.checkpoint, ids, sequence, max_new_tokens, sampler, on_text)
        self.active.append(other)
        return other

    def cancel(self, answer: Generation) -> None:
        """Take an answer out; its pages are free again. One that is finished stays as it is."""
        if answer.stopped is None:
            answer.end("cancelled")
            self.active.remove(answer)

    def step(self) -> bool:
        """One call of the model: a token for every sequence that takes part, or a part of its
        prompt. Returns False if nothing was under way. Raises PoolExhausted where pages are lacking
        even for the oldest (see `PagedCache.admit`)."""
        if self.active:
            self._advance(None)
            return True
        return False

    def _finish(self, answers: list[Generation]) -> list[Generation]:
        """Step until the answers are complete. They are cancelled if anything raises."""
        try:
            for answer in answers:
                while answer.stopped is None:
                    self._advance(answer)
        finally:
            for answer in answers:
                self.cancel(answer)
        return answers

    def _advance(self, wanted: Generation | None) -> None:
        """A step, with `wanted` if not all can take part."""
        start = time.perf_counter()
        batch = self.cache.admit(self.active, wanted)
        drawn: list[tuple[Generation, str]] = []
        done = 0
        try:
            rows = self.cache.logits(batch)
            for part, row in zip(batch, rows, strict=True):
                answer, is_first = part.answer, not part.answer.ids
                if not answer.pending:
                    drawn.append((answer, answer.draw(row, self.max_context)))
                answer.count(len(part.ids), time.perf_counter() - start, is_first)
                done += 1
        except BaseException:  # what was to be written is not there, or its logits are lost
            for part in batch[done:]:
                part.answer.sequence.truncate(part.before)
            raise
        finally:
            self.active = [a for a in self.active if a.stopped is None]
        # After all state is consistent: a callback may raise, submit or cancel.
        for answer, piece in drawn:
            if piece and answer.on_text is not None:
                answer.on_text(piece)

    def profile(self, prompt: Prompt, *, raw: bool = False) -> ModelProfile:
        """Return the times of the kernels of reading a prompt and of writing one token, longest
        first; print it. The program is compiled once more, with marks around its kernels. Raises
        PromptError as `encode` does, ModelError where there are pages."""
        from relaxlab.models.profile import profile_model

        if "prefill" not in self.executable:
            raise ModelError("a profile is of one sequence; load the model with max_sequences=1")
        return profile_model(self.executable, self.encode(prompt, raw=raw))

    def reset(self) -> None:
        """Forget the cached positions."""
        self.cache.reset()


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
