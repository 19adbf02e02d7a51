"""The module of a decoder: what `programs` compiles when the cache does not have it."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab import nn
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.models.config import DecoderConfig
from relaxlab.models.decoder import Decoder
from relaxlab.models.paged_decoder import PagedDecoder
from relaxlab.models.request import Request
from relaxlab.models.weights import Source
from relaxlab.schedule import TensorIntrin
from relaxlab.schedule.intrinsics import amx, dot2


def build(
    config: DecoderConfig, formats: Mapping[str, str], request: Request
) -> tuple[Module, tuple[Source, ...]]:
    """The module for a request, and where its weights come from, in order."""
    precision = precision_for(request.activations, Target.host())
    if request.sequences is None:
        decoder = Decoder(config, formats, precision=precision, kv_dtype=request.kv_dtype)
        module, names = decoder.build(bounds={"s": request.rows})
    else:
        decoder = PagedDecoder(config, formats, precision=precision, kv_dtype=request.kv_dtype)
        module, names = decoder.build_paged(max_rows=request.rows, max_sequences=request.sequences)
    sources = decoder.sources()
    return module, tuple(sources[name] for name in names)


def precision_for(activations: str, target: Target) -> nn.Precision:
    """The precision that an `activations` of `TextGenerator.load` means on a target. ValueError for
    an unknown one."""
    match activations:
        case "q8":
            plain = "bfloat16" if TensorIntrin.best(dot2.FAMILY, target) else "float32"
            rows = "bfloat16" if TensorIntrin.best(amx.FAMILY, target) else "q8"
            return nn.Precision("q8", rows, "q8", plain=plain)
        case "float32" | "q16":
            return nn.Precision(activations, activations)
        case _:
            raise ValueError(f"unknown activations {activations!r}")
