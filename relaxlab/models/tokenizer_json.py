"""Tokenizers and chat templates in folders as Hugging Face lays them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Pipeline

from relaxlab.models.tokenizer import Tokenizer, TokenizerError

MOST_UNUSED = 1 << 20
"""Ids without a token that a vocabulary may have; real ones leave out a few hundred."""


def read_tokenizer_json(folder: Path) -> tuple[Tokenizer, str | None]:
    """The tokenizer and the chat template (None: no chat model) of a folder with `tokenizer.json`
    and `tokenizer_config.json`. The template is in `chat_template.jinja` or among the tokenizer's
    settings; of several with names, the one called ``default``, or the only one.

    Every vocabulary of bytes or of SentencePiece is supported, however text is normalised, split
    and merged. TokenizerError for others, and for what is wrong.
    """
    file = folder / "tokenizer.json"
    pipeline = pipeline_from_json(file)
    config = _read_json(folder / "tokenizer_config.json")
    try:
        return _tokenizer(pipeline, config), _template(folder, config)
    except TokenizerError as error:
        raise TokenizerError(f"{file}: {error}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TokenizerError(f"{folder}: not laid out as expected: {error!r}") from None


def pipeline_from_json(file: Path) -> Pipeline:
    """The library's tokenizer in a `tokenizer.json`, without padding and truncation. TokenizerError
    for a missing or damaged file."""
    if not file.exists():
        raise TokenizerError(f"{file.parent}: the folder has no {file.name}")
    try:
        pipeline = Pipeline.from_file(str(file))
    except Exception as error:  # the library raises plain Exceptions
        raise TokenizerError(f"{file}: {error}") from None
    pipeline.no_padding()
    pipeline.no_truncation()
    return pipeline


def _tokenizer(pipeline: Pipeline, config: Mapping[str, Any]) -> Tokenizer:
    ids = pipeline.get_vocab(with_added_tokens=True)
    largest = max(ids.values(), default=-1)
    if largest >= len(ids) + MOST_UNUSED:
        token = next(t for t, i in ids.items() if i == largest)
        raise TokenizerError(f"the token {token!r} has the id {largest}, and there are {len(ids)}")
    tokens = [f"<unused {i}>" for i in range(largest + 1)]
    for token, index in ids.items():
        tokens[index] = token
    added = pipeline.get_added_tokens_decoder()
    # Text has neither control tokens nor ids without one, nor what stands for unknown text.
    control = set(range(len(tokens))) - set(ids.values())
    control |= {i for i, token in added.items() if token.special}
    unknown = getattr(pipeline.model, "unk_token", None)
    control |= {ids[unknown]} if unknown in ids else set()
    bos, eos = (_id_of(config, key, ids) for key in ("bos_token", "eos_token"))
    return Tokenizer(
        pipeline,
        tokens,
        control=control,
        verbatim=added.keys() - control,
        bos_id=bos,
        eos_id=eos,
        add_bos=bos is not None and pipeline.encode("a").ids[:1] == [bos],
    )


def _id_of(config: Mapping[str, Any], key: str, ids: Mapping[str, int]) -> int | None:
    """Return the id of the token that a setting names; None where it names none."""
    token = config.get(key)
    token = token.get("content") if isinstance(token, dict) else token
    return None if token is None else ids[token]


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
