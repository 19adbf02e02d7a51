"""Hugging Face's `tokenizer.json` as the entries that a GGUF file would have for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relaxlab.models.tokenizer import (
    _BYTE,
    _CONTROL,
    _GPT2,
    _NORMAL,
    _PRE_TOKENIZERS,
    _UNKNOWN,
    _USER_DEFINED,
    Tokenizer,
    TokenizerError,
)

MOST_UNUSED = 1 << 20
"""Ids without a token that a vocabulary may have; real ones leave out a few hundred."""
_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def read_tokenizer_json(folder: Path) -> tuple[Tokenizer, str | None]:
    """The tokenizer and the chat template (None: no chat model) of a folder with `tokenizer.json`
    and `tokenizer_config.json`. The template is in `chat_template.jinja` or among the tokenizer's
    settings; of several with names, the one called ``default``, or the only one.

    Byte-level BPE in the splittings that GGUF files name, and SentencePiece BPE, are supported.
    TokenizerError names what is not, or what is wrong.
    """
    file = folder / "tokenizer.json"
    content = _read_json(file)
    config = _read_json(folder / "tokenizer_config.json")
    try:
        return Tokenizer(_metadata(content, config)), _template(folder, config)
    except TokenizerError as error:
        raise TokenizerError(f"{file}: {error}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TokenizerError(f"{file}: not laid out as expected: {error!r}") from None


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    found = config.get("chat_template")
    if found is None or isinstance(found, str):
        return found
    named = {entry["name"]: entry["template"] for entry in found}
    chosen = named.get("default", next(iter(named.values())) if len(named) == 1 else None)
    if not isinstance(chosen, str):
        raise TokenizerError(f"of the chat templates {', '.join(named)} none is the default")
    return chosen


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TokenizerError(f"{path.parent}: the folder has no {path.name}") from None
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise TokenizerError(f"{path}: must hold a JSON object")
    return content


def _metadata(content: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    model = content["model"]
    if model.get("type", "BPE") != "BPE":
        raise TokenizerError(
            f"only BPE is supported, not {model['type']}; convert the model to GGUF to use this "
            "tokenizer"
        )
    ids: dict[str, int] = dict(model["vocab"])
    special = {t["content"]: bool(t["special"]) for t in content.get("added_tokens", [])}
    ids |= {t["content"]: t["id"] for t in content.get("added_tokens", [])}
    wrong = {t: i for t, i in ids.items() if not 0 <= i < len(ids) + MOST_UNUSED}
    for token, index in wrong.items():
        raise TokenizerError(f"the token {token!r} has the id {index}, and there are {len(ids)}")
    tokens = [f"<unused {i}>" for i in range(max(ids.values()) + 1)]
    kinds = [_NORMAL] * len(tokens)
    for token, index in ids.items():
        tokens[index] = token
        if token in special:
            kinds[index] = _CONTROL if special[token] else _USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    found: dict[str, Any] = {
        "tokens": tokens,
        "token_type": kinds,
        "merges": merges,
        "add_bos_token": _adds_bos(content, config),
    }
    if model.get("byte_fallback"):  # SentencePiece
        unknown = model.get("unk_token")
        found |= {"model": "llama", **_spaces(content)}
        found["token_type"] = [_kind(tokens[i], k, unknown) for i, k in enumerate(kinds)]
        found |= {} if unknown is None else {"unknown_token_id": ids[unknown]}
    else:
        found |= {"model": "gpt2", "pre": _pre_tokenizer(content)}
    for key in ("bos_token", "eos_token"):
        token = config.get(key)
        token = token.get("content") if isinstance(token, dict) else token
        if token is not None:
            found[f"{key}_id"] = ids[token]
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


def _pre_tokenizer(content: Mapping[str, Any]) -> str:
    """The name of the splitting that has these patterns, and if several have, of the one that also
    normalises and takes whole words as this does."""
    description = content["pre_tokenizer"]
    steps = description["pretokenizers"] if description["type"] == "Sequence" else [description]
    patterns: list[str] = []
    for step in steps:
        match step:
            case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}:
                patterns.append(pattern)
            case {"type": "Digits", "individual_digits": True}:
                patterns.append(r"\p{N}")
            case {"type": "ByteLevel", "add_prefix_space": False}:
                patterns += [_GPT2] if step.get("use_regex", True) else []
            case _:
                raise TokenizerError(f"the pre-tokenizer {step} is not supported")
    fitting = {n: p for n, p in _PRE_TOKENIZERS.items() if p.patterns == tuple(patterns)}
    how = _is_nfc(content.get("normalizer")), bool(content["model"].get("ignore_merges"))
    exact = [n for n, p in fitting.items() if (p.nfc, p.whole_words) == how]
    for name in (*exact, *fitting):
        return name
    raise TokenizerError(f"the splitting patterns {patterns} are not supported")


def _is_nfc(normalizer: Any) -> bool:
    """True if text is brought to Unicode's form NFC, False if it stays as it is. TokenizerError for
    what changes it otherwise."""
    match normalizer:
        case None:
            return False
        case {"type": "NFC"}:
            return True
        case {"type": "Sequence", "normalizers": [*steps]}:
            return any([_is_nfc(step) for step in steps])
        case _:
            raise TokenizerError(f"the normalizer {normalizer} is not supported")


def _kind(token: str, kind: int, unknown: str | None) -> int:
    """The type of a token of SentencePiece."""
    if token == unknown:
        return _UNKNOWN
    return _BYTE if kind == _NORMAL and re.fullmatch("<0x[0-9A-F]{2}>", token) else kind


def _spaces(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return as a tokenizer's options, by name, if SentencePiece puts a space, which it writes as
    an underline, before the text, and by which of Metaspace's rules, where those do it."""
    normalizer: Any = content.get("normalizer")
    steps = normalizer["normalizers"] if (normalizer or {}).get("type") == "Sequence" else None
    match steps or [normalizer], content.get("pre_tokenizer"):
        case [{"type": "Prepend", "prepend": "▁"}, last], None if last == _SPACE:
            return {"add_space_prefix": True}
        # After the replacement there is nothing left to split at.
        case [last], None | {"type": "Split", "pattern": {"String": " "}} if last == _SPACE:
            return {"add_space_prefix": False}
        case [None], {
            "type": "Metaspace",
            "split": False,
            "prepend_scheme": "always" | "first" | "never" as scheme,
        }:
            return {"add_space_prefix": scheme != "never", "metaspace": scheme}
        case _, splitter:
            raise TokenizerError(
                f"the normalizer {normalizer} with the pre-tokenizer {splitter} is not supported; "
                "convert the model to GGUF to use this tokenizer"
            )


def _adds_bos(content: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """True if encoding puts the first token in front, by the post-processor's template."""
    bos = config.get("bos_token")
    bos = bos.get("content") if isinstance(bos, dict) else bos
    return bos is not None and f'"{bos}"' in json.dumps(
        content.get("post_processor"), ensure_ascii=False
    )
