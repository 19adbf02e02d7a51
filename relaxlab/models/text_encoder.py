"""Texts through a compiled BERT: sentence embeddings, hidden states, masked words, classes.

    encoder = BertEncoder.from_pretrained("all-MiniLM-L6-v2")
    vectors = encoder.encode(["A cat sat.", "It rained all day."])  # float32 (2, hidden_size)

One compilation serves every number and length of texts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tokenizers

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import path_of
from relaxlab.models.bert import (
    UNUSED,
    Bert,
    BertConfig,
    config_from_gguf,
    config_from_json,
    tensor_name,
    tensor_name_of_gguf,
)
from relaxlab.models.gguf import GGUF, read_gguf
from relaxlab.models.keys import keys_of_gguf, keys_of_json
from relaxlab.models.loader import ModelError
from relaxlab.models.named_layers import NamedLayers, Tensors, is_matrix, tensors_of_folder
from relaxlab.models.sentence import SentenceConfig, dense_tensor, sentence_config
from relaxlab.models.tokenizer import TokenizerError
from relaxlab.models.tokenizer_json import pipeline_from_json
from relaxlab.runtime.build import compile
from relaxlab.runtime.executable import Executable

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Text: TypeAlias = "str | tuple[str, str]"
"""A text, or two that belong together, such as a question and an answer."""

BATCH = 32
"""Texts per call of the model."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Texts as int32 arrays (texts, longest length): ids, which text of a pair each token is of,
    and a mask that is zero where shorter texts are padded."""

    ids: Array
    types: Array
    mask: Array


@methods_name_arguments
class BertEncoder(Brief):
    """A compiled encoder with its tokenizer and weights; see `from_pretrained`.

    Attributes: `config`; `tokenizer` (of the library tokenizers); `sentence`, how `encode` makes
    one vector of a text; `executable`, whose functions are listed at `Bert.build`.
    """

    def __init__(
        self,
        config: BertConfig,
        tokenizer: tokenizers.Tokenizer,
        sentence: SentenceConfig,
        executable: Executable,
    ) -> None:
        """`executable`: with its weights bound."""
        self.config, self.tokenizer, self.sentence = config, tokenizer, sentence
        self.executable = executable

    @staticmethod
    def from_pretrained(
        model: str | os.PathLike[str], *, threads: int | None = None, use_cache: bool = True
    ) -> BertEncoder:
        """Open, compile and load a model: a Hugging Face folder with ``config.json``,
        ``model.safetensors`` and ``tokenizer.json`` or ``vocab.txt``, or a GGUF file of
        architecture ``bert``.

        threads: None means all cores. use_cache: keep the compiled program on disk.
        Raises FileNotFoundError, ModelError, ConfigError, TokenizerError, GGUFError or
        SafetensorsError (all but the first are ValueErrors) naming what is wrong.
        """
        path = path_of(model, "the path of a model")
        if not path.exists():
            raise FileNotFoundError(f"there is no model '{path}'; give a folder or a GGUF file")
        config, tokenizer, sentence, tensors = (_folder if path.is_dir() else _gguf)(path)
        if tokenizer.get_vocab_size() > config.vocab_size:
            raise ModelError(
                f"{path}: the tokenizer has {tokenizer.get_vocab_size()} tokens, the embedding "
                f"only {config.vocab_size} rows"
            )
        if sentence.lowercase:
            _lower(tokenizer)
        limit = config.max_length if sentence.max_length is None else sentence.max_length
        tokenizer.enable_truncation(min(limit, config.max_length))
        make = NamedLayers(tensors.formats)
        bert = Bert(config, make, sentence)
        make.require_all_used(tensors, UNUSED)
        make.require_shapes(bert, tensors)
        module, names = bert.build()
        executable = compile(module, threads=threads, use_cache=use_cache)
        make.load(executable, bert, names, tensors)
        return BertEncoder(config, tokenizer, sentence, executable)

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """The texts as the model reads them; each is cut to the longest that it can read."""
        found = self.tokenizer.encode_batch(list(texts))
        length = max((len(e.ids) for e in found), default=0)
        shape = (len(found), length)
        ids = np.full(shape, self.config.padding_id or 0, np.int32)
        types, mask = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for row, encoding in enumerate(found):
            count = len(encoding.ids)
            ids[row, :count], types[row, :count] = encoding.ids, encoding.type_ids
            mask[row, :count] = 1
        if self.config.token_types == 1:  # RoBERTa does not tell the texts of a pair apart
            types[:] = 0
        return Tokens(ids, types, mask)

    def hidden(self, tokens: Tokens) -> Array:
        """Return the last hidden states, float32 (texts, length, hidden_size). Raises ValueError
        for ids that the model does not have, and for no texts."""
        if not tokens.ids.size:
            raise ValueError("there are no tokens; give at least one text")
        config = self.config
        for name, array, limit in (
            ("ids", tokens.ids, config.vocab_size),
            ("types", tokens.types, config.token_types),
        ):
            if not (array.min() >= 0 and array.max() < limit):
                raise ValueError(f"{name} must lie in 0..{limit - 1}")
        return self._run("hidden", tokens.ids, tokens.types, tokens.mask)

    def pooled(self, hidden: Array) -> Array:
        """The pooler's output, float32 (texts, hidden_size)."""
        return self._run("pooled", hidden)

    def encode(
        self,
        texts: Sequence[str] | str,
        *,
        normalize: bool | None = None,
        batch_size: int = BATCH,
    ) -> Array:
        """A vector of each text, float32 (texts, width), as the model's folder says (`sentence`),
        else the mean of its tokens' hidden states.

        normalize: whether vectors get length 1; None: as the folder says.
        """
        rows = [texts] if isinstance(texts, str) else list(texts)
        width = self.sentence.width(self.config.hidden_size)
        result = np.zeros((len(rows), width), np.float32)
        # Texts of like length go together, so that little is padded.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        for start in range(0, len(rows), batch_size):
            chosen = order[start : start + batch_size]
            tokens = self.tokenize([rows[i] for i in chosen])
            hidden = self.hidden(tokens)
            result[chosen] = self._run("vectors", hidden, tokens.mask)
        if self.sentence.normalize if normalize is None else normalize:
            result /= np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-12)
        return result

    def classify(self, texts: Sequence[Text]) -> list[dict[str, float]]:
        """The probability of each class, for each text or pair of texts. ModelError for a model
        without a classification head."""
        logits = self._run("class_logits", self.hidden(self.tokenize(texts))).astype(np.float64)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        return [dict(zip(self.config.labels, row.tolist(), strict=True)) for row in shares]

    def word_logits(self, tokens: Tokens) -> Array:
        """Logits float32 (texts, length, vocab_size) of the words at each position. ModelError for
        a model without a head for masked words."""
        return self._run("word_logits", self.hidden(tokens))

    def _run(self, function: str, *inputs: Array) -> Array:
        if function not in self.executable:
            raise ModelError(f"the model has no head for '{function}'")
        return self.executable[function](*inputs)


_Opened: TypeAlias = "tuple[BertConfig, tokenizers.Tokenizer, SentenceConfig, Tensors]"


def _folder(path: Path) -> _Opened:
    tensors = tensors_of_folder(path, tensor_name)
    config = config_from_json(keys_of_json(path / "config.json"), tensors.names)
    sentence = sentence_config(path)
    for dense in sentence.dense:
        prefix = dense_tensor(dense).removesuffix("linear")
        tensors = tensors | tensors_of_folder(path / dense.path, prefix.__add__)
    return config, _tokenizer(path), sentence, tensors


def _lower(tokenizer: tokenizers.Tokenizer) -> None:
    """Lower texts before everything else that the tokenizer does to them."""
    lower = tokenizers.normalizers.Lowercase()
    known = tokenizer.normalizer
    tokenizer.normalizer = (
        lower if known is None else tokenizers.normalizers.Sequence([lower, known])
    )


def _tokenizer(path: Path) -> tokenizers.Tokenizer:
    file, vocabulary = path / "tokenizer.json", path / "vocab.txt"
    if file.exists():
        return pipeline_from_json(file)
    if not vocabulary.exists():
        raise TokenizerError(f"{path}: the folder has neither {file.name} nor {vocabulary.name}")
    stated = path / "tokenizer_config.json"
    values: Mapping[str, Any] = keys_of_json(stated).values if stated.exists() else {}
    words = vocabulary.read_text(encoding="utf-8").splitlines()
    return word_pieces(words, lowercase=values.get("do_lower_case", True))


def word_pieces(words: Sequence[str], *, lowercase: bool) -> tokenizers.Tokenizer:
    """BERT's tokenizer over a vocabulary in order of ids. TokenizerError where it lacks one of the
    tokens that mark texts."""
    ids = {word: i for i, word in enumerate(words)}
    for needed in ("[UNK]", "[CLS]", "[SEP]"):
        if needed not in ids:
            raise TokenizerError(f"the vocabulary lacks the token {needed}")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100)
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    special = [t for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if t in ids]
    tokenizer.add_special_tokens(special)
    return tokenizer


def _gguf(path: Path) -> _Opened:
    gguf = read_gguf(path)
    architecture = gguf.metadata.get("general.architecture")
    if architecture != "bert":
        raise ModelError(f"{path}: architecture {architecture!r} is no encoder; 'bert' is")
    keys = keys_of_gguf(gguf, "bert")
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if gguf.metadata.get("tokenizer.ggml.model") != "bert" or not isinstance(tokens, list):
        raise TokenizerError(f"{path}: its tokenizer is not the one of BERT")
    tokenizer = word_pieces([_word(t) for t in tokens], lowercase=True)
    return config_from_gguf(keys), tokenizer, _sentence_of_gguf(gguf), _tensors_of_gguf(gguf)


_GGUF_POOLINGS = {0: "mean_tokens", 1: "mean_tokens", 2: "cls_token", 3: "lasttoken"}
"""Poolings by llama.cpp's numbers; 0 leaves the choice to the user."""


def _sentence_of_gguf(gguf: GGUF) -> SentenceConfig:
    kind = gguf.metadata.get("bert.pooling_type", 1)
    if not isinstance(kind, int) or kind not in _GGUF_POOLINGS:
        raise ModelError(f"{gguf.path}: bert.pooling_type {kind} is not supported; 0 to 3 are")
    return SentenceConfig((_GGUF_POOLINGS[kind],))


def _word(token: str) -> str:
    """Return a token in the spelling of vocabularies: GGUF files mark beginnings of words instead
    of continuations."""
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[1:] if token.startswith("\u2581") else f"##{token}"


def _tensors_of_gguf(gguf: GGUF) -> Tensors:
    stored = {tensor_name_of_gguf(name): tensor for name, tensor in gguf.tensors.items()}
    formats = {name: t.format.name for name, t in stored.items() if is_matrix(name, t.shape)}

    def read(name: str) -> dict[str, Array]:
        if name not in stored:
            raise ModelError(f"{gguf.path}: no tensor '{name}'")
        tensor = stored[name]
        if name in formats:
            return tensor.format.views(tensor.raw, tensor.shape)
        return {"data": tensor.dequantise()}

    return Tensors(str(gguf.path), frozenset(stored), formats, read)
