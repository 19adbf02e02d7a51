"""The decoders that are measured on GPUs, by their sizes, as modules of relaxlab."""

from __future__ import annotations

from relaxlab import nn
from relaxlab.ir.module import Module
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.decoder import Decoder

POSITIONS = 2048
"""Room of the caches."""


def configuration(layers: int) -> DecoderConfig:
    """Llama-3-8B, with so many layers instead of 32."""
    return DecoderConfig(
        hidden_size=4096, num_layers=layers, num_heads=32, num_kv_heads=8, head_dim=128,
        ffn_size=14336, vocab_size=128256, context_length=8192, norm_eps=1e-5,
        rope=Rope(500000.0, 128),
    )  # fmt: skip


def smollm2() -> DecoderConfig:
    """SmolLM2-135M."""
    return DecoderConfig(
        hidden_size=576, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64, ffn_size=1536,
        vocab_size=49152, context_length=8192, norm_eps=1e-5, rope=Rope(100000.0, 64),
        tied_embeddings=True,
    )  # fmt: skip


def program(config: DecoderConfig, batch: int, format: str) -> tuple[Decoder, Module]:
    """The decoder with matrices in `format` (BF16, Q4_0), and its functions for so many sequences
    at a time. Few rows of activations are quantised for weights of four bits, as llama.cpp does."""
    formats = {n: format if len(s) > 1 else "F32" for n, s in config.tensor_shapes().items()}
    few: nn.Activations = "float32" if format == "BF16" else "q8"
    precision = nn.Precision(few, "bfloat16", few, plain="bfloat16", queries="cache")
    decoder = Decoder(
        config, formats, max_context=POSITIONS, precision=precision, kv_dtype="float16"
    )
    module, _ = decoder.build(batch=batch)
    return decoder, module
