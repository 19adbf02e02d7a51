"""Decoders without weights, the programs that a compiler gets for large models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxlab.ir.module import Module
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.decoder import Decoder
from relaxlab.nn import spec

LLAMA3_8B = DecoderConfig(
    hidden_size=4096, num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128, ffn_size=14336,
    vocab_size=128256, context_length=8192, norm_eps=1e-5, rope=Rope(500000.0, 128),
)  # fmt: skip
CONTEXT = 2048


def decoder(
    config: DecoderConfig,
    methods: Sequence[str] = ("prefill", "decode"),
    batch: spec.Dim = 1,
    bounds: Mapping[str, int] | None = None,
) -> Module:
    """The module of a decoder with float32 weights, any number of new positions `s` after `p`."""
    formats = dict.fromkeys(config.tensor_shapes(), "F32")
    model = Decoder(config, formats, max_context=CONTEXT)
    return model.build(methods=methods, batch=batch, bounds=bounds)[0]
