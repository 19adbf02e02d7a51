"""BERT and RoBERTa encoders as modules: hidden states, and heads for masked words and classes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab import nn
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module as IRModule
from relaxlab.models.config import ConfigError
from relaxlab.models.keys import Keys
from relaxlab.models.named_layers import NamedLayers
from relaxlab.models.sentence import SentenceConfig, SentenceHead, first


@dataclass(frozen=True, slots=True)
class BertConfig:
    """Sizes of an encoder. `max_length` is the longest text in tokens, [CLS] and [SEP] included.

    `padding_id`: None for BERT, whose positions count from 0. RoBERTa's positions are counted from
    `padding_id` + 1 over the tokens that are not padding, which have the position `padding_id`.
    `labels`: names of the classes; empty without a classification head.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    ffn_size: int
    vocab_size: int
    max_length: int
    token_types: int
    norm_eps: float
    activation: nn.Activation
    padding_id: int | None = None
    has_pooler: bool = False
    has_masked_lm: bool = False
    tied_embeddings: bool = True
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_heads:
            raise ConfigError(
                f"{self.hidden_size} features do not divide into {self.num_heads} heads"
            )

    @property
    def positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_length + (0 if self.padding_id is None else self.padding_id + 1)


def config_from_json(keys: Keys, tensors: Collection[str]) -> BertConfig:
    """Return the configuration in a ``config.json`` with model_type ``bert`` or ``roberta``;
    `tensors` (by the names of `tensor_name`) determine the heads. Raises ConfigError for keys that
    are missing or unsupported."""
    kind = keys.text("model_type", "none")
    if kind not in ("bert", "roberta"):
        raise ConfigError(f"{keys.where}: model_type '{kind}' is not supported; bert, roberta are")
    keys.refuse("is_decoder", "a BERT that decodes")
    embedding = keys.text("position_embedding_type", "absolute")
    if embedding != "absolute":
        raise ConfigError(f"{keys.where}: position_embedding_type '{embedding}' is not supported")
    padding = keys.integer("pad_token_id", 1) if kind == "roberta" else None
    positions = keys.integer("max_position_embeddings")
    labels = keys.child("id2label").values or {"0": "LABEL_0", "1": "LABEL_1"}
    return BertConfig(
        hidden_size=keys.integer("hidden_size"),
        num_layers=keys.layers("num_hidden_layers"),
        num_heads=keys.integer("num_attention_heads"),
        ffn_size=keys.integer("intermediate_size"),
        vocab_size=keys.integer("vocab_size"),
        max_length=positions if padding is None else positions - padding - 1,
        token_types=keys.integer("type_vocab_size"),
        norm_eps=keys.number("layer_norm_eps", 1e-12),
        activation=keys.activation("hidden_act", "gelu"),
        padding_id=padding,
        has_pooler="pooler.dense.weight" in tensors,
        has_masked_lm="lm_head.dense.weight" in tensors,
        tied_embeddings=keys.values.get("tie_word_embeddings") is not False,
        labels=tuple(labels.values()) if "classifier.weight" in tensors else (),
    )


def config_from_gguf(keys: Keys) -> BertConfig:
    """The configuration of a GGUF file of architecture ``bert``. Such files have no heads."""
    assert keys.gguf is not None
    tokens, types = (keys.gguf.tensor(n) for n in ("token_embd.weight", "token_types.weight"))
    return BertConfig(
        hidden_size=keys.integer("hidden_size"),
        num_layers=keys.layers("num_hidden_layers"),
        num_heads=keys.integer("num_attention_heads"),
        ffn_size=keys.integer("intermediate_size"),
        vocab_size=tokens.shape[0],
        max_length=keys.integer("max_position_embeddings"),
        token_types=types.shape[0],
        norm_eps=keys.number("layer_norm_eps"),
        activation="gelu",
    )


_ALIASES = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
    "cls.predictions.transform.LayerNorm": "lm_head.layer_norm",
    "cls.predictions.transform.dense": "lm_head.dense",
    "cls.predictions.bias": "lm_head.decoder.bias",
    "lm_head.bias": "lm_head.decoder.bias",
    "cls.predictions.decoder": "lm_head.decoder",
    "classifier.out_proj": "classifier",
    "classifier.dense": "pooler.dense",
}


def tensor_name(name: str) -> str:
    """Return one name for the tensors that BERT, RoBERTa, and both with heads name differently in
    ``safetensors``."""
    name = name.removeprefix("bert.").removeprefix("roberta.")
    for theirs, ours in _ALIASES.items():
        if theirs in name:
            return name.replace(theirs, ours)
    return name


UNUSED = (
    "embeddings.position_ids", "cls.seq_relationship.weight", "cls.seq_relationship.bias",
    "lm_head.decoder.weight",
)  # fmt: skip
"""Tensors that files have and an encoder needs not: numbers of positions, the head for the order of
sentences, and the masked-word head's matrix where it is that of the embedding."""

_OF_GGUF = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}


def tensor_name_of_gguf(name: str) -> str:
    """Return the name of a tensor, as `tensor_name` gives it, from its name in GGUF files."""
    path, _, kind = name.rpartition(".")
    if not path.startswith("blk."):
        return f"{_OF_GGUF.get(path, path)}.{kind}"
    _, layer, rest = path.split(".", 2)
    return f"encoder.layer.{layer}.{_OF_GGUF.get(rest, rest)}.{kind}"


class Block(nn.Module):
    """Attention, then an MLP; each is added to its input, and the sum normalised."""

    def __init__(self, config: BertConfig, make: NamedLayers, layer: int) -> None:
        hidden, at = config.hidden_size, f"encoder.layer.{layer}"
        names = {p: f"{at}.attention.self.{n}" for p, n in _QKV.items()}
        self.attention = nn.SelfAttention(
            make.merged(names, hidden, hidden),
            make.linear(f"{at}.attention.output.dense", hidden, hidden),
            heads=config.num_heads,
            head_dim=hidden // config.num_heads,
        )
        self.attention_norm = make.norm(f"{at}.attention.output.LayerNorm", hidden, config.norm_eps)
        self.mlp = nn.MLP(
            make.linear(f"{at}.intermediate.dense", config.ffn_size, hidden),
            make.linear(f"{at}.output.dense", hidden, config.ffn_size),
            config.activation,
        )
        self.mlp_norm = make.norm(f"{at}.output.LayerNorm", hidden, config.norm_eps)

    def forward(
        self, x: nn.Tensor, batch: PrimExpr, length: PrimExpr, mask: nn.Tensor
    ) -> nn.Tensor:
        """x (batch * length, hidden), mask int32 (batch, length)."""
        x = self.attention_norm(x + self.attention(x, batch, length, mask))
        return self.mlp_norm(x + self.mlp(x))


_QKV = {"q": "query", "k": "key", "v": "value"}

Function: TypeAlias = "dict[str, nn.spec.Spec]"


class Bert(nn.Module):
    """The encoder and the heads that its configuration names."""

    def __init__(
        self, config: BertConfig, make: NamedLayers, sentence: SentenceConfig | None = None
    ) -> None:
        """sentence: how texts become vectors; the mean over their tokens by default."""
        hidden = config.hidden_size
        self.config = config
        self.sentence = SentenceHead(sentence or SentenceConfig(), hidden, make)
        self.words = make.embedding("embeddings.word_embeddings", config.vocab_size, hidden)
        self.positions = make.positions("embeddings.position_embeddings", config.positions, hidden)
        self.types = make.embedding("embeddings.token_type_embeddings", config.token_types, hidden)
        self.norm = make.norm("embeddings.LayerNorm", hidden, config.norm_eps)
        self.blocks = nn.ModuleList([Block(config, make, i) for i in range(config.num_layers)])
        if config.has_pooler:
            self.pooler = make.linear("pooler.dense", hidden, hidden)
        if config.has_masked_lm:
            self.lm_dense = make.linear("lm_head.dense", hidden, hidden)
            self.lm_norm = make.norm("lm_head.layer_norm", hidden, config.norm_eps)
            tied = self.words.weight if config.tied_embeddings else None
            self.lm_head = make.linear("lm_head.decoder", config.vocab_size, hidden, weight=tied)
        if config.labels:
            self.classifier = make.linear("classifier", len(config.labels), hidden)

    def hidden(self, ids: nn.Tensor, types: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        """ids, types, mask int32 (b, s) -> the last hidden states (b, s, hidden_size). Positions
        where the mask is zero are padding, which is not attended to."""
        b, s = ids.shape
        width = self.config.hidden_size
        x = self.words(ids.reshape(b * s)) + self.types(types.reshape(b * s))
        if self.config.padding_id is None:
            x = self.positions(x.reshape(b, s, width), expr.const(0)).reshape(b * s, width)
        else:
            x = self.positions.at(x, self._counted(ids).reshape(b * s))
        x = self.norm(x)
        for block in self.blocks:
            x = block(x, b, s, mask)
        return x.reshape(b, s, width)

    def _counted(self, ids: nn.Tensor) -> nn.Tensor:
        """RoBERTa's positions."""
        padding = self.config.padding_id
        real = ids.op("not_equal", padding).astype("int32")
        return (real.op("cumsum", axis=1) * real).op("add", padding)

    def vectors(self, hidden: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        """One vector (b, width) of each text; see `SentenceConfig`."""
        return self.sentence(hidden, mask)

    def pooled(self, hidden: nn.Tensor) -> nn.Tensor:
        """Return the pooler's output (b, hidden_size) for the hidden states."""
        return self.pooler(first(hidden)).op("tanh")

    def class_logits(self, hidden: nn.Tensor) -> nn.Tensor:
        """Logits (b, labels) of the classes of each text."""
        return self.classifier(self.pooled(hidden))

    def word_logits(self, hidden: nn.Tensor) -> nn.Tensor:
        """Logits (b, s, vocab_size) of the words at each position."""
        b, s, width = hidden.shape
        x = self.lm_dense(hidden.reshape(b * s, width)).op(f"nn.{self.config.activation}")
        return self.lm_head(self.lm_norm(x)).reshape(b, s, self.config.vocab_size)

    def build(self) -> tuple[IRModule, list[str]]:
        """The graph functions, and the weights' names in order: `hidden`, `vectors`, and where
        there are such heads `pooled`, `class_logits`, `word_logits`."""
        config = self.config
        tokens = nn.spec.Tensor(("b", "s"), "int32")
        hidden: Function = {"hidden": nn.spec.Tensor(("b", "s", config.hidden_size))}
        methods: dict[str, Function] = {
            "hidden": {"ids": tokens, "types": tokens, "mask": tokens},
            "vectors": {**hidden, "mask": tokens},
        }
        methods |= {"pooled": hidden} if config.has_pooler else {}
        methods |= {"class_logits": hidden} if config.labels else {}
        methods |= {"word_logits": hidden} if config.has_masked_lm else {}
        return self.export(methods, {"s": config.max_length})
