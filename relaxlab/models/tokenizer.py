"""Text to token ids and back, by the tokenizers library.

Decoding goes through the bytes of each token, so that a stream of ids never shows half a character.
`tokenizer_gguf` and `tokenizer_json` make tokenizers of files.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache

from tokenizers import Tokenizer as Pipeline

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError


class TokenizerError(UserError, ValueError):
    """The tables of a tokenizer are missing, inconsistent, or of an unsupported kind."""


_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>")
"""Control tokens that end a turn whatever `eos_token_id` says."""
BYTE_NAME = re.compile("<0x[0-9A-Fa-f]{2}>")
"""Names of single bytes, for which SentencePiece has no piece."""


class Tokenizer(Brief):
    """Encoder and decoder of one model.

    Attributes: `vocab_size`; `bos_id`, `eos_id` (None if the model has none); `add_bos`, whether
    a prompt starts with the former; `stop_ids`, the ids that end an answer.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        tokens: Sequence[str],
        *,
        control: Collection[int],
        verbatim: Collection[int] = (),
        bos_id: int | None,
        eos_id: int | None,
        eot_id: int | None = None,
        add_bos: bool,
    ) -> None:
        """pipeline: encodes texts; its padding and truncation are off. tokens: the text of each id
        as the vocabulary has it. control: ids that decoding leaves out, such as ``<|im_end|>``.
        verbatim: ids that a vocabulary of bytes writes as text all the same. eot_id: the token that
        ends a turn, if the model names one.

        Raises TokenizerError for a vocabulary of a kind whose tokens have no bytes of their own,
        such as WordPiece, and where `add_bos` lacks the token.
        """
        if add_bos and bos_id is None:
            raise TokenizerError("the model wants a first token but names no bos_token_id")
        self._pipeline, self._tokens = pipeline, list(tokens)
        self._control, self._verbatim = frozenset(control), frozenset(verbatim)
        self.vocab_size, self.add_bos = len(self._tokens), add_bos
        self.bos_id, self.eos_id = bos_id, eos_id
        ends = {i for i in self._control if self._tokens[i] in _END_OF_TURN}
        self.stop_ids = frozenset(ends | {i for i in (eos_id, eot_id) if i is not None})
        first = pipeline.encode("a a", add_special_tokens=False).tokens
        self._in_bytes = "Ġ" in "".join(first)
        if not self._in_bytes and "▁" not in "".join(first):
            raise TokenizerError(
                "only vocabularies of bytes and of SentencePiece are supported: with this one "
                f"'a a' becomes {first}"
            )
        # Some put a space before the text; it is not part of it.
        self._strip_space = first[0].startswith(("Ġ", "▁"))

    def token(self, id: int) -> str:
        """The token's text as it stands in the file's table."""
        return self._tokens[self._checked(id)]

    def encode(
        self, text: str, *, parse_special: bool = False, add_bos: bool | None = None
    ) -> list[int]:
        """Ids of `text`.

        Control tokens written out in the text, such as ``<|im_end|>``, count as such only with
        `parse_special`: wanted for a rendered chat template, not for text from outside. `add_bos`
        overrides whether the ids start with `bos_id`. Like the models' own tokenizers, a byte that
        the vocabulary has no token for is left out. TokenizerError if the text has lone surrogates.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TokenizerError(f"the text is not valid Unicode: {error}") from None
        # A user who writes `<|im_end|>` must not end the turn.
        self._pipeline.encode_special_tokens = not parse_special
        ids = self._pipeline.encode(text, add_special_tokens=False).ids
        first = self.add_bos if add_bos is None else add_bos
        if not first:
            return ids
        if self.bos_id is None:
            raise TokenizerError("this tokenizer has no token for the beginning of a text")
        return [self.bos_id, *ids]

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of `ids`, without control tokens unless told otherwise; bytes that are not UTF-8
        become U+FFFD. TokenizerError for an id outside the vocabulary."""
        stream = self.stream(skip_special=skip_special)
        return "".join([stream.step(i) for i in ids]) + stream.finish()

    def stream(self, *, skip_special: bool = True) -> TokenStream:
        """A decoder that takes ids one at a time."""
        return TokenStream(self, skip_special)

    def token_bytes(self, id: int, *, skip_special: bool = True) -> bytes:
        """Return the bytes of a token; none for a control token that is skipped."""
        token = self.token(id)
        if skip_special and id in self._control:
            return b""
        if not self._in_bytes:
            is_byte = BYTE_NAME.fullmatch(token) and id not in self._verbatim
            return bytes.fromhex(token[3:5]) if is_byte else token.replace("▁", " ").encode()
        byte_of = _byte_of_character()
        # Such tokens are written as text in the table, not in the alphabet of bytes.
        if id in self._control or id in self._verbatim or any(c not in byte_of for c in token):
            return token.encode()
        return bytes(byte_of[c] for c in token)

    def _checked(self, id: int) -> int:
        if not 0 <= id < len(self._tokens):
            raise TokenizerError(f"token id {id} is not in the vocabulary of {len(self._tokens)}")
        return id


class TokenStream(Brief):
    """Decodes ids one at a time; `step` returns the text that is complete so far.

    A character split over tokens is held back until its last byte has come.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        # Incremental: the rest of a character may be in the next token.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip_space = tokenizer._strip_space

    def step(self, id: int) -> str:
        """The text that `id` completes; ValueError for an id outside the vocabulary."""
        data = self._tokenizer.token_bytes(id, skip_special=self._skip_special)
        if self._strip_space and data:
            data = data.removeprefix(b" ")
            self._strip_space = False
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return the rest of the text: U+FFFD if the ids stopped in the middle of a character."""
        return self._decoder.decode(b"", final=True)


@cache
def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes each byte as one visible character: itself where that is visible
    Latin-1, and the others, in order, from U+0100 on."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    table = {chr(b): b for b in visible}
    return table | {chr(256 + i): b for i, b in enumerate(hidden)}
