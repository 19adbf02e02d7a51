"""A prompt and its answer, and what a cache of keys and values does for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError, kind_of
from relaxlab.models.loader import Checkpoint
from relaxlab.models.sampling import Sampler

if TYPE_CHECKING:
    from relaxlab.models.chat import Message

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Prompt: TypeAlias = "str | Sequence[Message] | Sequence[int]"
OnText: TypeAlias = Callable[[str], None]
Draw: TypeAlias = Callable[[Array], int]
"""From the logits (vocab_size,) of the next token to its id, as `Sampler` does it."""

CHUNK = 512
"""Most positions read in one call. Longer ones multiply no faster, and take more memory for
activations."""


class PromptError(UserError, ValueError):
    """The prompt is empty, does not fit into the context, or holds ids that the model lacks."""


class Generation(Brief):
    """A prompt and what has been generated for it so far.

    Attributes: `prompt_ids`; `ids`, the tokens generated; `text`; `stopped`, None while it is under
    way, then `stop` (the model ended it), `length` (as many tokens as asked for), `context` (no
    room for more) or `cancelled`; `prefilled`, ids of the prompt that were not in the cache yet;
    `sequence`, its positions in the cache, which a `Cache` makes.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prompt_ids: list[int],
        sequence: Any,
        max_new_tokens: int,
        sampler: Draw | None,
        on_text: OnText | None,
    ) -> None:
        if not isinstance(max_new_tokens, int | np.integer) or max_new_tokens < 1:
            raise PromptError(
                f"max_new_tokens must be a whole number of at least 1, is {max_new_tokens!r}"
            )
        self.prompt_ids, self.max_new_tokens = prompt_ids, max_new_tokens
        self.ids: list[int] = []
        self.text = ""
        self.stopped: str | None = None
        self.sequence, self.on_text = sequence, on_text
        self.prefilled = 0
        self._steps, self._prefill_s, self._decode_s = 0, 0.0, 0.0
        self._sampler = sampler or Sampler()
        self._vocabulary = checkpoint.tokenizer.vocab_size
        self._stop_ids = checkpoint.tokenizer.stop_ids
        self._stream = checkpoint.tokenizer.stream()

    @property
    def pending(self) -> list[int]:
        """The ids that are not in the cache."""
        held, prompt = self.sequence.length, self.prompt_ids
        if held >= len(prompt):
            return self.ids[held - len(prompt) :]
        return [*prompt[held:], *self.ids]

    @property
    def prefill_tok_s(self) -> float:
        """Tokens per second of reading the prompt and drawing the first token."""
        return self.prefilled / self._prefill_s

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens per second of the steps after it; None if there were none."""
        return self._steps / self._decode_s if self._steps else None

    def count(self, rows: int, seconds: float, is_first: bool) -> None:
        """Note a call of the model with `rows` ids, up to the first token or after it."""
        if is_first:
            self.prefilled += rows
            self._prefill_s += seconds
        else:
            self._steps += 1
            self._decode_s += seconds

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
        """Stop and leave the cache; the rest of the text."""
        self.stopped = why
        self.sequence.truncate(0)
        rest = self._stream.finish()
        self.text += rest
        return rest


@dataclass(frozen=True, slots=True)
class Part:
    """The next ids of an answer in a call of the model; `before` positions were held until then."""

    answer: Generation
    ids: list[int]
    before: int


class Cache(Protocol):
    """The keys and values of sequences, and the functions of a program over them. `positions`: the
    most of a sequence. `nbytes`: of all keys and values."""

    positions: int
    nbytes: int

    def sequence(self) -> Any:
        """A sequence that holds nothing yet: it has a `length`, `truncate(length)` and `fork()`."""
        ...

    def admit(self, active: Sequence[Generation], wanted: Generation | None) -> list[Part]:
        """The answers, of those under way (oldest first), that take part in the next call, at least
        one. Their new positions count as held. wanted: the one to go on with where not all can."""
        ...

    def logits(self, batch: Sequence[Part]) -> Array:
        """Call the model: the logits (parts, vocab_size) of each part's last id."""
        ...

    def reset(self) -> None:
        """Forget positions that are kept for prompts to come."""
        ...


def encode_prompt(checkpoint: Checkpoint, max_context: int, prompt: Prompt, raw: bool) -> list[int]:
    """The ids of a prompt that must fit into a context; see `TextGenerator.encode`."""
    kinds = "text, a list of messages {'role': ..., 'content': ...}, or a list of token ids"
    if isinstance(prompt, bytes) or not isinstance(prompt, str | Sequence | np.ndarray):
        raise PromptError(f"a prompt is {kinds}, not {kind_of(prompt)}")
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
            f"a prompt is {kinds}; this list has {kind_of(wrong)} in it (`generate_all` answers "
            "several prompts)"
        )
    elif checkpoint.chat is None:
        raise PromptError(f"{checkpoint.path} has no chat template; pass text")
    else:
        ids = checkpoint.chat.encode(prompt)  # type: ignore[arg-type]
    if not ids:
        raise PromptError("the prompt is empty; give at least one token")
    if len(ids) > max_context:
        raise PromptError(
            f"the prompt has {len(ids)} tokens, the context holds {max_context}; "
            "shorten it, or load the model with a larger max_context (or with more pages)"
        )
    size = checkpoint.config.vocab_size
    wrong = next((i for i in ids if not 0 <= i < size), None)
    if wrong is not None:
        raise PromptError(f"the prompt holds the token id {wrong}, the model has 0..{size - 1}")
    return ids
