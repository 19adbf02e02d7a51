"""Tokenizers from the tables inside a GGUF file: byte-level BPE (``gpt2``) and SentencePiece-style
BPE (``llama``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

from relaxlab.models.gguf import GGUF
from relaxlab.models.tokenizer import BYTE_NAME, Tokenizer, TokenizerError

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


def tokenizer_from_gguf(gguf: GGUF) -> Tokenizer:
    """The tokenizer of an open GGUF file; TokenizerError as for `tokenizer_of`."""
    try:
        return tokenizer_of(gguf.metadata)
    except TokenizerError as error:
        raise TokenizerError(f"{gguf.path}: {error}") from None


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes; TokenizerError names the entry that is
    wrong."""
    tables = _tables(metadata)
    made = _byte_level_bpe if tables.model == "gpt2" else _sentencepiece_bpe
    pipeline, add_bos = made(tables)
    return Tokenizer(
        pipeline,
        tables.tokens,
        control=[i for i, kind in enumerate(tables.types) if kind in (_CONTROL, _UNKNOWN, _UNUSED)],
        verbatim=[i for i, kind in enumerate(tables.types) if kind == _USER_DEFINED],
        bos_id=tables.id("bos_token_id"),
        eos_id=tables.id("eos_token_id"),
        eot_id=tables.id("eot_token_id"),
        add_bos=add_bos,
    )


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
    _check_bytes(tables)
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
    """TokenizerError for a byte whose name does not say which."""
    if _BYTE in tables.types:
        for token, kind in zip(tables.tokens, tables.types, strict=True):
            if kind == _BYTE and not BYTE_NAME.fullmatch(token):
                raise TokenizerError(f"'tokenizer.ggml.tokens' has {token!r} as the name of a byte")
