"""Small models of transformers with random weights, imported and compared with PyTorch.

Runs where PyTorch and transformers are installed: `python -m relaxlab.testing.torch_models llama`.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.export import Dim
from torch.utils import _pytree as pytree

from relaxlab.frontend.program import CompiledProgram, ImportedProgram
from relaxlab.frontend.pytorch.entry import from_torch

SIZES = ((2, 5), (1, 17), (3, 40))
"""Batch and length: the first is exported with, and the compiled program runs all of them."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model: `build(layers)`, the names of its arguments with their symbolic dimensions, and its
    arguments for a batch and a length."""

    build: Callable[[int], torch.nn.Module]
    arguments: Callable[[int, int], Mapping[str, Any]]
    dims: Mapping[str, Mapping[int, str]]

    def dynamic_shapes(self) -> dict[str, dict[int, Any]]:
        """The symbolic dimensions as `torch.export` takes them."""
        upper = {"batch": 8, "length": 64}
        return {
            name: {axis: Dim(dim, max=upper[dim]) for axis, dim in dims.items()}
            for name, dims in self.dims.items()
        }

    def drawn(self, layers: int) -> torch.nn.Module:
        """The model with random weights, the same at each call."""
        torch.manual_seed(0)
        model = self.build(layers).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # biases of 0 and gains of 1 would hide mistakes
                if parameter.ndim < 2:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        return model

    def imported(self, layers: int) -> tuple[torch.nn.Module, ImportedProgram]:
        """The model, and the program made from it."""
        model, shapes = self.drawn(layers), self.dynamic_shapes()
        return model, from_torch(model, kwargs=self.arguments(*SIZES[0]), dynamic_shapes=shapes)

    def errors(self, model: torch.nn.Module, compiled: CompiledProgram) -> list[float]:
        """The largest error at each of the sizes, relative to the largest element of a result."""
        return [self._error(model, compiled, *size) for size in SIZES]

    def _error(
        self, model: torch.nn.Module, compiled: CompiledProgram, batch: int, length: int
    ) -> float:
        arguments = self.arguments(batch, length)
        with torch.no_grad():
            wanted = pytree.tree_leaves(model(**arguments))
        got = pytree.tree_leaves(compiled(**arguments))
        pairs = zip(got, wanted, strict=True)
        return max(float((g - w).abs().max() / w.abs().max()) for g, w in pairs)


def _text(name: str, **options: Any) -> Model:
    def build(layers: int) -> torch.nn.Module:
        family = name.removesuffix("ForCausalLM").removesuffix("Model").removesuffix("Encoder")
        config = getattr(transformers, f"{family}Config")
        return getattr(transformers, name)(config(vocab_size=128, **_layers(options, layers)))

    def arguments(batch: int, length: int) -> Mapping[str, Any]:
        return {"input_ids": torch.randint(0, 128, (batch, length))}

    return Model(build, arguments, {"input_ids": {0: "batch", 1: "length"}})


def _layers(options: Mapping[str, Any], layers: int) -> dict[str, Any]:
    return {k: layers if v is LAYERS else v for k, v in options.items()}


LAYERS = object()
"""Stands for the number of layers among the options of a configuration."""


def _images(name: str, side: int, **options: Any) -> Model:
    def build(layers: int) -> torch.nn.Module:
        config = getattr(transformers, name.removesuffix("Model") + "Config")
        return getattr(transformers, name)(config(**_layers(options, layers)))

    def arguments(batch: int, length: int) -> Mapping[str, Any]:
        return {"pixel_values": torch.randn(batch, 3, side, side)}

    return Model(build, arguments, {"pixel_values": {0: "batch"}})


def _whisper(width: int) -> Model:
    def build(layers: int) -> torch.nn.Module:
        config = transformers.WhisperConfig(
            vocab_size=128, d_model=width, encoder_layers=layers, decoder_layers=layers,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=2 * width,
            decoder_ffn_dim=2 * width, num_mel_bins=16, max_source_positions=40,
            max_target_positions=64,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
            use_cache=False,
        )  # fmt: skip
        return transformers.WhisperModel(config)

    def arguments(batch: int, length: int) -> Mapping[str, Any]:
        return {
            "input_features": torch.randn(batch, 16, 80),
            "decoder_input_ids": torch.randint(0, 128, (batch, length)),
        }

    dims = {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "length"}}
    return Model(build, arguments, dims)


def models(width: int) -> dict[str, Model]:
    """The models by name, with so many features."""
    text = {"hidden_size": width, "intermediate_size": 3 * width // 2, "num_attention_heads": 4}
    decoder = {**text, "num_hidden_layers": LAYERS, "num_key_value_heads": 2, "use_cache": False}
    t5 = {"d_model": width, "d_kv": width // 4, "d_ff": 3 * width // 2, "num_heads": 4}
    part = width // 8
    return {
        "llama": _text("LlamaForCausalLM", **decoder),
        "qwen2": _text("Qwen2ForCausalLM", **decoder),
        "bert": _text("BertModel", **text, num_hidden_layers=LAYERS),
        "t5": _text("T5EncoderModel", **t5, num_layers=LAYERS),
        "vit": _images(
            "ViTModel", 32, **text, image_size=32, patch_size=8, num_hidden_layers=LAYERS
        ),
        "whisper": _whisper(width),
        "convnext": _images(
            "ConvNextModel", 64, hidden_sizes=[n * part for n in (2, 3, 4, 6)], depths=[1, 1, 2, 1]
        ),
        "resnet": _images(
            "ResNetModel", 64, embedding_size=2 * part,
            hidden_sizes=[n * part for n in (4, 8, 12, 16)], depths=[1, 2, 2, 1],
        ),
    }  # fmt: skip


MODELS = models(64)


def main() -> None:
    """Print, for each model named on the command line, the errors at the sizes."""
    logging.disable(logging.WARNING)
    for name in sys.argv[1:] or MODELS:
        chosen = MODELS[name]
        model, program = chosen.imported(1)
        print(json.dumps({"model": name, "errors": chosen.errors(model, program.compile())}))


if __name__ == "__main__":
    main()
