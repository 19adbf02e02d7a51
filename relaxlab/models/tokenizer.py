"""Text to token ids and back, from the tables inside a GGUF file.

The splitting and merging is done by the ``tokenizers`` library; this module builds its pipeline
from the file's tables: byte-level BPE (``gpt2``) and SentencePiece-style BPE (``llama``). Decoding
goes through the bytes of each token, so that a stream of ids never shows half a character.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError
from relaxlab.models.gguf import GGUF


class TokenizerError(UserError, ValueError):
    """The file's tokenizer tables are missing, inconsistent, or of a kind that we do not know."""


# Token types of `tokenizer.ggml.token_type`.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)

# The published splitting patterns of GPT-2, Llama 3, Qwen, GPT-4o and Mistral's Tekken.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_WORDS_THEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _WORDS_THEN % r"\p{N}{1,3}"
_QWEN2 = _WORDS_THEN % r"\p{N}"
# Qwen 3.5 counts combining marks as letters.
_QWEN35 = _QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BY_CASE = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = _BY_CASE % (_CONTRACTIONS, _CONTRACTIONS, r"\p{N}{1,3}")
_TEKKEN = _BY_CASE % ("", "", r"\p{N}")


@dataclass(frozen=True, slots=True)
class _PreTokenizer:
    """The rules that cut text before merging: by each pattern in turn, each piece further by the
    next."""

    patterns: tuple[str, ...]
    whole_words: bool = False  # a piece that is a token is taken as it is, without merging
    add_bos: bool = False
    nfc: bool = False


_DIGITS_THEN_GPT2 = _PreTokenizer((r"\p{N}", _GPT2))
_LLAMA_BPE = _PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True)
_PRE_TOKENIZERS: Mapping[str, _PreTokenizer] = {
    "default": _PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": _PreTokenizer((_GPT2,)),
    "phi-2": _PreTokenizer((_GPT2,)),
    "llama-bpe": _LLAMA_BPE,
    "llama3": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "falcon3": _LLAMA_BPE,
    "pixtral": _LLAMA_BPE,
    "midm-2.0": _LLAMA_BPE,
    "smaug-bpe": _PreTokenizer((_LLAMA3,)),
    "qwen2": _PreTokenizer((_QWEN2,), nfc=True),
    "qwen35": _PreTokenizer((_QWEN35,), nfc=True),
    "megrez": _PreTokenizer((_QWEN2,)),
    "deepseek-r1-qwen": _PreTokenizer((_QWEN2,)),
    "gpt-4o": _PreTokenizer((_GPT4O,)),
    "tekken": _PreTokenizer((_TEKKEN,), whole_words=True, add_bos=True),
    "smollm": _DIGITS_THEN_GPT2,
    "starcoder": _DIGITS_THEN_GPT2,
    "refact": _DIGITS_THEN_GPT2,
    "command-r": _DIGITS_THEN_GPT2,
    "deepseek-coder": _PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")
    ),
}

# Control tokens that end a turn whatever `eos_token_id` says.
_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>")


@dataclass(frozen=True, slots=True)
class _Tables:
    """The checked `tokenizer.ggml.*` entries of a file."""

    model: str
    tokens: list[str]
    types: list[int]
    ids: Mapping[str, int]
    metadata: Mapping[str, Any]

    def flag(self, key: str, default: bool) -> bool:
        value = self.metadata.get(f"tokenizer.ggml.{key}", default)
        if not isinstance(value, bool):
            raise TokenizerError(f"'tokenizer.ggml.{key}' must be a boolean, is {value!r}")
        return value

    def id(self, key: str) -> int | None:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < len(self.tokens):
            raise TokenizerError(
                f"'tokenizer.ggml.{key}' is {value!r}, not one of the {len(self.tokens)} token ids"
            )
        return value

    def strings(self, key: str) -> list[str]:
        value = self.metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, list) or not set(map(type, value)) <= {str}:
            what = "is missing" if value is None else "must be a list of strings"
            raise TokenizerError(f"'tokenizer.ggml.{key}' {what}")
        return value


def _tables(metadata: Mapping[str, Any]) -> _Tables:
    model = metadata.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        raise TokenizerError(
            f"tokenizer model {model!r} ('tokenizer.ggml.model') is not supported; "
            "'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE) are"
        )
    tables = _Tables(model, [], [], {}, metadata)
    tokens = tables.strings("tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    types = np.full(len(tokens), _NORMAL) if types is None else np.asarray(types)
    if types.shape != (len(tokens),) or types.dtype.kind not in "iu":
        raise TokenizerError(
            f"'tokenizer.ggml.token_type' must hold one integer for each of {len(tokens)} tokens"
        )
    ids = {token: index for index, token in enumerate(tokens)}
    # Encoding could not tell two ids of one text apart.
    if len(ids) != len(tokens):
        twice = next(t for i, t in enumerate(tokens) if ids[t] != i)
        raise TokenizerError(f"'tokenizer.ggml.tokens' has the token {twice!r} twice")
    return _Tables(model, tokens, types.tolist(), ids, metadata)


class Tokenizer(Brief):
    """Encoder and decoder of one model.

    Attributes: `vocab_size`; `bos_id`, `eos_id` (None if the model has none); `add_bos`, whether
    a prompt starts with the former; `stop_ids`, the ids that end an answer.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        """From a GGUF file's metadata; TokenizerError names the entry that is wrong."""
        tables = _tables(metadata)
        self._tokens = tables.tokens
        self._types = tables.types
        self._strip_space = False
        if tables.model == "gpt2":
            self._pipeline, self.add_bos = _byte_level_bpe(tables)
        else:
            self._pipeline, self.add_bos = _sentencepiece_bpe(tables)
            self._strip_space = tables.flag("add_space_prefix", True)
        self._bytes_of = _byte_level_bytes if tables.model == "gpt2" else _sentencepiece_bytes
        _check_bytes(tables)
        self.vocab_size = len(tables.tokens)
        self.bos_id = tables.id("bos_token_id")
        self.eos_id = tables.id("eos_token_id")
        if self.add_bos and self.bos_id is None:
            raise TokenizerError("the model wants a first token but names no bos_token_id")
        stops = {tables.id("eos_token_id"), tables.id("eot_token_id")}
        stops |= {i for t in _END_OF_TURN if (i := tables.ids.get(t)) is not None
                  and tables.types[i] == _CONTROL}  # fmt: skip
        self.stop_ids = frozenset(i for i in stops if i is not None)

    @staticmethod
    def from_gguf(gguf: GGUF) -> Tokenizer:
        """The tokenizer of an open GGUF file."""
        try:
            return Tokenizer(gguf.metadata)
        except TokenizerError as error:
            raise TokenizerError(f"{gguf.path}: {error}") from None

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
        if skip_special and self._types[self._checked(id)] in (_CONTROL, _UNKNOWN, _UNUSED):
            return b""
        return self._bytes_of(self._tokens[self._checked(id)], self._types[id])

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
        # SentencePiece puts a space before the text; it is not part of it.
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


def _byte_level_bpe(tables: _Tables) -> tuple[Pipeline, bool]:
    name = tables.metadata.get("tokenizer.ggml.pre", "default")
    pre = _PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if pre is None:
        raise TokenizerError(
            f"pre-tokenizer {name!r} ('tokenizer.ggml.pre') is not supported; "
            f"supported are {', '.join(_PRE_TOKENIZERS)}"
        )
    pipeline = _pipeline(tables, _merges(tables), ignore_merges=pre.whole_words)
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in pre.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    if pre.nfc:
        pipeline.normalizer = normalizers.NFC()
    return pipeline, tables.flag("add_bos_token", pre.add_bos)


def _merges(tables: _Tables) -> list[tuple[str, str]]:
    """The merges as pairs."""
    texts = tables.strings("merges")
    pairs = [tuple(text.split(" ")) for text in texts]
    if not set(map(len, pairs)) <= {2} or not all(map(all, pairs)):
        wrong = next(t for t, p in zip(texts, pairs, strict=True) if len(p) != 2 or not all(p))
        raise TokenizerError(f"'tokenizer.ggml.merges' has {wrong!r}; expected two parts")
    return cast("list[tuple[str, str]]", pairs)


def _sentencepiece_bpe(tables: _Tables) -> tuple[Pipeline, bool]:
    if "tokenizer.ggml.merges" in tables.metadata:  # as `tokenizer.json` has them
        merges = _merges(tables)
    else:
        scores = tables.metadata.get("tokenizer.ggml.scores")
        if not isinstance(scores, np.ndarray) or scores.shape != (len(tables.tokens),):
            raise TokenizerError("'tokenizer.ggml.scores' must hold one number per token")
        merges = _merges_by_score(tables, scores)
    unknown = tables.id("unknown_token_id")
    pipeline = _pipeline(
        tables,
        merges,
        unk_token=None if unknown is None else tables.tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    scheme = tables.metadata.get("tokenizer.ggml.metaspace")
    if isinstance(scheme, str):  # another rule of `tokenizer.json` for where a space is put
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
        return pipeline, tables.flag("add_bos_token", True)
    prefix = [normalizers.Prepend("▁")] if tables.flag("add_space_prefix", True) else []
    pipeline.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    return pipeline, tables.flag("add_bos_token", True)


def _merges_by_score(tables: _Tables, scores: Any) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours whose joint piece scores best: as a list of merges, every
    way to cut a piece into two pieces, best piece first."""
    # Stable: of equal scores the lower id comes first.
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable").tolist()
    tokens, types = tables.tokens, tables.types
    by_score = [tokens[i] for i in order if types[i] == _NORMAL]
    pieces = set(by_score)
    return [
        (left, right)
        for token in by_score
        for cut in range(1, len(token))
        if (left := token[:cut]) in pieces and (right := token[cut:]) in pieces
    ]


def _pipeline(tables: _Tables, merges: list[tuple[str, str]], **options: Any) -> Pipeline:
    try:
        pipeline = Pipeline(models.BPE(dict(tables.ids), merges, **options))
    except Exception as error:  # the library raises nothing narrower for inconsistent tables
        raise TokenizerError(f"the token and merge tables do not fit together: {error}") from None
    added = [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tables.tokens, tables.types, strict=True)
        if kind in (_CONTROL, _USER_DEFINED) and token
    ]
    pipeline.add_tokens(added)
    return pipeline


def _check_bytes(tables: _Tables) -> None:
    """TokenizerError for a byte of SentencePiece's whose name does not say which."""
    if tables.model != "gpt2" and _BYTE in tables.types:
        for token, kind in zip(tables.tokens, tables.types, strict=True):
            if kind == _BYTE and not re.fullmatch("<0x[0-9A-Fa-f]{2}>", token):
                raise TokenizerError(f"'tokenizer.ggml.tokens' has {token!r} as the name of a byte")


def _byte_level_bytes(token: str, kind: int) -> bytes:
    byte_of = _byte_of_character()
    # Such tokens are written as text in the table, not in the alphabet of bytes.
    verbatim = kind in (_CONTROL, _USER_DEFINED, _UNKNOWN, _UNUSED)
    if verbatim or any(c not in byte_of for c in token):
        return token.encode()
    return bytes(byte_of[c] for c in token)


def _sentencepiece_bytes(token: str, kind: int) -> bytes:
    return bytes.fromhex(token[3:5]) if kind == _BYTE else token.replace("▁", " ").encode()


@cache
def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes each byte as one visible character: itself where that is visible
    Latin-1, and the others, in order, from U+0100 on."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    table = {chr(b): b for b in visible}
    return table | {chr(256 + i): b for i, b in enumerate(hidden)}
