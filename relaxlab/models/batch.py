"""Text generation for many sequences at once.

    generator = BatchGenerator.load("smollm2-135m")
    for answer in generator.generate(["Why is the sky blue?", "Count to five."]):
        print(answer.text)

    first = generator.submit("Tell me a story.", on_text=show)
    generator.step()
    second = generator.submit("What is 3 + 4?")  # joins while the other is under way
    while generator.step(): ...

Sequences join and leave at any step. Their keys and values are in pages of one pool, so none needs
room for more than it has. One compilation serves every number and every length of sequences.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir.brief import Brief
from relaxlab.models.generate import CHUNK, Prompt, PromptError, encode_prompt
from relaxlab.models.load_decoder import LoadedDecoder, Progress, load_decoder
from relaxlab.models.loader import Checkpoint, ModelError
from relaxlab.models.paged_decoder import TILE
from relaxlab.models.pages import PageAllocator, PagedSequence, PoolExhausted, ragged_arrays
from relaxlab.models.request import Request as ProgramRequest
from relaxlab.models.sampling import Sampler
from relaxlab.nn.layers import FEW_ROWS
from relaxlab.nn.paged_loops import PAGE, PoolShape
from relaxlab.runtime.large_pages import zeros

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
OnText: TypeAlias = Callable[[str], None]

DEFAULT_PAGES = 512
"""Pages of a pool unless asked for others: 8192 positions."""


class Request(Brief):
    """A prompt and what has been generated for it so far.

    Attributes: `prompt_ids`; `ids`, the tokens generated; `text`; `stopped`, None while it is under
    way, then `stop` (the model ended it), `length` (as many tokens as asked for), `context` (no
    room for more) or `cancelled`; `sequence`, its pages.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prompt_ids: list[int],
        sequence: PagedSequence,
        max_new_tokens: int,
        sampler: Sampler,
        on_text: OnText | None,
    ) -> None:
        self.prompt_ids, self.max_new_tokens = prompt_ids, max_new_tokens
        self.ids: list[int] = []
        self.text = ""
        self.stopped: str | None = None
        self._vocabulary = checkpoint.tokenizer.vocab_size
        self._stop_ids = checkpoint.tokenizer.stop_ids
        self._stream = checkpoint.tokenizer.stream()
        self.sequence, self.on_text = sequence, on_text
        self._sampler = sampler

    @property
    def pending(self) -> list[int]:
        """The ids that the model has not seen yet."""
        done, prompt = self.sequence.length, self.prompt_ids
        if done >= len(prompt):
            return self.ids[done - len(prompt) :]
        return [*prompt[done:], *self.ids]

    def draw(self, logits: Array, max_context: int) -> str:
        """Take the next token; the text that it completes."""
        token = self._sampler(logits)
        if token in self._stop_ids:
            return self.end("stop")
        self.ids.append(token)
        # A padded vocabulary has logits for ids without a token.
        piece = self._stream.step(token) if token < self._vocabulary else ""
        self.text += piece
        if len(self.ids) == self.max_new_tokens:
            return piece + self.end("length")
        if len(self.prompt_ids) + len(self.ids) > max_context:
            return piece + self.end("context")
        return piece

    def end(self, why: str) -> str:
        """Stop and release the pages; the rest of the text."""
        self.stopped = why
        self.sequence.clear()
        rest = self._stream.finish()
        self.text += rest
        return rest


class BatchGenerator(Brief):
    """A compiled model with its tokenizer, weights and a pool of pages; see `load`.

    Attributes: `tokenizer`; `max_context`, positions of a sequence; `max_sequences`, how many are
    worked on in one step; `active`, the requests under way, oldest first; `executable`; `times`;
    `rows` and `seconds`, tokens that went through the model and how long that took.
    """

    def __init__(self, loaded: LoadedDecoder, pools: Sequence[Array], max_sequences: int) -> None:
        """pools: the pages of keys and values of each layer, which steps update in place."""
        self.checkpoint, self.executable = loaded.checkpoint, loaded.program.executable
        self.tokenizer, self.times = loaded.checkpoint.tokenizer, loaded.times
        self.max_context, self.max_sequences = loaded.max_context, max_sequences
        self.active: list[Request] = []
        self.rows, self.seconds = 0, 0.0
        self._extend, self._step = self.executable["extend"], self.executable["step"]
        few = "few_steps" if "few_steps" in self.executable else "step"
        self._few_steps = self.executable[few]
        for function in (self._extend, self._step, self._few_steps):
            function.bind(*pools, *loaded.weights)
        self._pools = pools
        self._allocator = PageAllocator(len(pools[0]))

    @staticmethod
    def load(
        model: str | os.PathLike[str] | Checkpoint = "smollm2-135m",
        *,
        activations: str = "float32",
        kv_dtype: str | None = None,
        max_context: int | None = None,
        pages: int = DEFAULT_PAGES,
        max_sequences: int = FEW_ROWS,
        threads: int | None = None,
        use_cache: bool = True,
        progress: Progress | None = None,
    ) -> BatchGenerator:
        """Open, compile and load a model; arguments as for `TextGenerator.load`, and:

        pages: of `PAGE` positions each, for all sequences together. max_sequences: how many take
        part in one step at most, up to `CHUNK`; more wait for their turn. With "q8", steps of
        more than `FEW_ROWS` are multiplied in bfloat16, too, where the machine has matrix tiles
        for it.
        """
        if pages < 1 or max_sequences < 1:
            raise ModelError("a batch needs at least one page and one sequence")
        request = ProgramRequest.of(activations, kv_dtype, CHUNK, CHUNK)
        loaded = load_decoder(
            model, request, max_context=max_context, threads=threads, use_cache=use_cache,
            progress=progress,
        )  # fmt: skip
        config = loaded.checkpoint.config
        shapes = PoolShape(config.num_kv_heads, config.head_dim).of(pages)
        pools = zeros([s for _ in range(config.num_layers) for s in shapes], request.kv_dtype)
        return BatchGenerator(loaded, pools, min(max_sequences, CHUNK))

    @property
    def free_pages(self) -> int:
        """Pages that no sequence has."""
        return self._allocator.free

    @property
    def pool_bytes(self) -> int:
        """Memory of the keys and values of all pages."""
        return sum(pool.nbytes for pool in self._pools)

    def submit(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        raw: bool = False,
        sampler: Sampler | None = None,
        on_text: OnText | None = None,
    ) -> Request:
        """Add a sequence, which takes part from the next step on; arguments as for
        `TextGenerator.generate`. Raises PromptError or ChatError for a prompt that cannot be
        answered."""
        ids = encode_prompt(self.checkpoint, self.max_context, prompt, raw)
        if max_new_tokens < 1:
            raise PromptError(f"max_new_tokens must be at least 1, is {max_new_tokens}")
        if len(ids) > self._allocator.total * PAGE:
            raise PromptError(
                f"the prompt has {len(ids)} tokens, the pool's {self._allocator.total} pages hold "
                f"{self._allocator.total * PAGE}; load the model with more `pages`"
            )
        sequence = PagedSequence(self._allocator)
        request = Request(
            self.checkpoint, ids, sequence, max_new_tokens, sampler or Sampler(), on_text
        )
        self.active.append(request)
        return request

    def fork(
        self,
        request: Request,
        *,
        max_new_tokens: int = 128,
        sampler: Sampler | None = None,
        on_text: OnText | None = None,
    ) -> Request:
        """Return another sequence that continues from the current state of `request`: the tokens so
        far are the prompt of the new one, in the same pages. Raises PromptError for a finished one,
        or one that has not begun."""
        sequence = request.sequence
        if request.stopped is not None or not sequence.length:
            state = "has not begun" if request.stopped is None else "is finished"
            raise PromptError(f"the request {state}; fork one that is under way")
        ids = [*request.prompt_ids, *request.ids]
        other = Request(
            self.checkpoint, ids, sequence.fork(), max_new_tokens, sampler or Sampler(), on_text
        )
        self.active.append(other)
        return other

    def cancel(self, request: Request) -> None:
        """Take a sequence out; its pages are free again. One that is finished stays as it is."""
        if request.stopped is None:
            request.end("cancelled")
            self.active.remove(request)

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = 128,
        raw: bool = False,
        samplers: Sequence[Sampler] | None = None,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[Request]:
        """Answer all prompts, each with at most `max_new_tokens` tokens.

        samplers: one for each prompt; None: greedily. on_text: called with the number of a prompt
        and each piece of its answer. Raises as `submit` and `step` do; then none of the prompts is
        under way.
        """
        requests: list[Request] = []
        try:
            for i, prompt in enumerate(prompts):
                requests.append(
                    self.submit(
                        prompt,
                        max_new_tokens=max_new_tokens,
                        raw=raw,
                        sampler=samplers[i] if samplers else None,
                        on_text=_numbered(on_text, i),
                    )
                )
            while any(r.stopped is None for r in requests):
                self.step()
        except BaseException:
            for request in requests:
                self.cancel(request)
            raise
        return requests

    def step(self) -> bool:
        """One call of the model: a token for every sequence that has room, or a part of its
        prompt. Returns False if nothing was under way.

        Where pages are lacking, the youngest sequences give theirs back and are read again later.
        Raises PoolExhausted when not even the oldest has room: nothing is lost, and steps go on
        after others were cancelled.
        """
        if not self.active:
            return False
        start = time.perf_counter()
        batch = self._with_room()
        drawn: list[tuple[Request, str]] = []
        done = 0
        try:
            for part, row in zip(batch, self._logits(batch), strict=True):
                if not part.request.pending:
                    drawn.append((part.request, part.request.draw(row, self.max_context)))
                done += 1
        except BaseException:  # what was to be written is not there, or its logits are lost
            for part in batch[done:]:
                part.request.sequence.truncate(part.before)
            raise
        finally:
            self.active = [r for r in self.active if r.stopped is None]
        self.rows += sum(len(part.ids) for part in batch)
        self.seconds += time.perf_counter() - start
        # After all state is consistent: a callback may raise, submit or cancel.
        for request, piece in drawn:
            if piece and request.on_text is not None:
                request.on_text(piece)
        return True

    def _logits(self, batch: Sequence[_Part]) -> Array:
        """Logits (sequences, vocab_size) of each part's last row."""
        rows = [len(part.ids) for part in batch]
        # A step's attention takes one row of each sequence: by the function for prompts, whose
        # tiles have four, 64 sequences took 83 instead of 51 ms (NOTES, *One program for all
        # contexts and batches*).
        is_step = max(rows) == 1
        arrays = ragged_arrays([p.request.sequence for p in batch], rows, 1 if is_step else TILE)
        ids = np.array([[i for part in batch for i in part.ids]], np.int32)
        step = self._few_steps if len(batch) <= FEW_ROWS else self._step
        return np.asarray((step if is_step else self._extend)(ids, *arrays))

    def _with_room(self) -> list[_Part]:
        """Return the sequences that take part in this step, with pages allocated for them. Raises
        PoolExhausted if none has enough."""
        batch: list[_Part] = []
        rows = CHUNK
        for number, request in enumerate(self.active):
            if len(batch) == self.max_sequences or not rows:
                break
            sequence, ids = request.sequence, request.pending
            # One that holds nothing begins only when there is room for all of it.
            whole, ids = len(ids), ids[:rows]
            needed = sequence.missing(len(ids) if sequence.length else whole)
            if not self._make_room(needed, self.active[number + 1 :]):
                continue
            before = sequence.length
            copied = sequence.extend(len(ids))
            if copied is not None:
                for pool in self._pools:
                    pool[copied[1]] = pool[copied[0]]
            batch.append(_Part(request, ids, before))
            rows -= len(ids)
        if not batch:
            oldest = self.active[0]
            needed = oldest.sequence.missing(len(oldest.pending))
            raise PoolExhausted(
                f"{needed} more pages of {PAGE} positions are needed to go on, {self.free_pages} "
                f"of {self._allocator.total} are free; cancel requests that have pages, or load "
                "the model with more `pages`"
            )
        return batch

    def _make_room(self, needed: int, younger: Sequence[Request]) -> bool:
        """Free pages until `needed` are free, if need be those of the youngest sequences. Returns
        whether that was possible."""
        free, victims = self.free_pages, list[Request]()
        # The youngest first: the oldest has waited longest, and its end frees most.
        for request in reversed(younger):
            if free >= needed:
                break
            free += self._allocator.owned_once(request.sequence.pages)
            victims.append(request)
        if free < needed:
            return False
        for request in victims:
            request.sequence.clear()
        return True


@dataclass(frozen=True, slots=True)
class _Part:
    """The next ids of a request in a step; `before` positions were held when it began."""

    request: Request
    ids: list[int]
    before: int


def _numbered(on_text: Callable[[int, str], None] | None, number: int) -> OnText | None:
    return None if on_text is None else lambda piece: on_text(number, piece)
