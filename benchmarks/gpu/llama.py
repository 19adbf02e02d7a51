"""A Llama with random weights in transformers and here, on one GPU: the same tensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cupy
import torch
import transformers

import relaxlab as rl
from benchmarks.gpu.decoder import POSITIONS, program
from relaxlab import nn
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.target import Target
from relaxlab.models.config import DecoderConfig
from relaxlab.models.decoder import Decoder
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.runtime.vm.cuda import gpu_architecture


class Peer:
    """transformers: eager, or decoding by `torch.compile` with CUDA graphs over a static cache."""

    def __init__(self, config: DecoderConfig, device: str = "cuda") -> None:
        self.device = device
        given = transformers.LlamaConfig(
            hidden_size=config.hidden_size, num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads, num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim, intermediate_size=config.ffn_size,
            vocab_size=config.vocab_size, rms_norm_eps=config.norm_eps,
            max_position_embeddings=config.context_length,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
            tie_word_embeddings=False, attn_implementation="sdpa",
        )  # fmt: skip
        with torch.device(device):
            torch.manual_seed(0)
            # Not `.to(bfloat16)`, which would round the frequencies of the rotary embedding.
            torch.set_default_dtype(torch.bfloat16)
            self.model = transformers.LlamaForCausalLM(given).eval()
            torch.set_default_dtype(torch.float32)
            self._compiled = torch.compile(self.model, mode="reduce-overhead", fullgraph=True)

    def decoder(self, compiled: bool, batch: int) -> Callable[[torch.Tensor, int], torch.Tensor]:
        """(ids, past positions) -> logits of the last one, over a cache of its own."""
        cache = transformers.StaticCache(config=self.model.config, max_cache_len=POSITIONS)

        @torch.inference_mode()
        def call(ids: torch.Tensor, past: int) -> torch.Tensor:
            if past == 0:
                cache.reset()  # it counts its positions itself
            steps = torch.arange(past, past + ids.shape[1], device=self.device)
            # Only steps are compiled: prompts of every length would be compiled anew.
            model = self._compiled if compiled and ids.shape[1] == 1 else self.model
            torch.compiler.cudagraph_mark_step_begin()
            logits: torch.Tensor = model(
                ids, past_key_values=cache, position_ids=steps[None].expand(batch, -1),
                cache_position=steps, use_cache=True, logits_to_keep=1,
            ).logits  # fmt: skip
            return logits[:, -1]

        return call


def weights(model: Any, decoder: Decoder) -> Iterator[torch.Tensor]:
    """The parameters of `decoder` in order, from those of transformers' model."""
    state: Mapping[str, torch.Tensor] = model.state_dict()
    cos, sin = decoder.config.rope.tables(POSITIONS)
    fixed = {
        "embedding.weight.data": "model.embed_tokens", "norm.weight": "model.norm",
        "head.weight.data": "lm_head",
    }  # fmt: skip
    parts = {
        "attention_norm.weight": ("input_layernorm",),
        "attention.qkv.linears.0.weight.data": tuple(f"self_attn.{p}_proj" for p in "qkv"),
        "attention.output.weight.data": ("self_attn.o_proj",),
        "mlp_norm.weight": ("post_attention_layernorm",),
        "mlp.gate_up.linears.0.weight.data": ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down.weight.data": ("mlp.down_proj",),
    }
    device = next(iter(state.values())).device
    for name, parameter in decoder.named_parameters().items():
        if name in ("rotary.cos", "rotary.sin"):
            yield torch.from_numpy(cos if name.endswith("cos") else sin).to(device)
            continue
        if name in fixed:
            tensors = [state[f"{fixed[name]}.weight"]]
        else:
            _, layer, part = name.split(".", 2)
            tensors = [state[f"model.layers.{layer}.{p}.weight"] for p in parts[part]]
        dtype = torch.bfloat16 if parameter.dtype == "bfloat16" else torch.float32
        yield torch.cat([t.to(dtype) for t in tensors])


class Ours:
    """relaxlab's decoder, with the weights of `model` or, without one, random ones in `format`;
    with the pipeline that `variant` makes of the default one."""

    def __init__(
        self,
        config: DecoderConfig,
        batch: int,
        model: Any = None,
        format: str = "BF16",
        variant: Callable[[Pipeline], Pipeline] | None = None,
    ) -> None:
        decoder, module = program(config, batch, format)
        begin = time.monotonic()
        target = Target.cuda(gpu_architecture())
        pipeline = cuda_pipeline(target) if variant is None else variant(cuda_pipeline(target))
        self.executable = rl.compile(module, target=target, pipeline=pipeline)
        self.seconds_to_compile = time.monotonic() - begin
        given = list(weights(model, decoder)) if model is not None else list(_random(decoder))
        self.bytes = sum(w.nbytes for w in given)
        embedding = given[0]
        self.bytes_per_token = self.bytes - embedding.nbytes
        self.executable.load([cupy.from_dlpack(w) for w in given])  # once, not at every call
        shapes = nn.KVCache.shapes(config.num_kv_heads, config.head_dim, POSITIONS)
        self.cache = [
            cupy.zeros((batch, *shape), "float16")
            for _ in range(config.num_layers)
            for shape in shapes
        ]

    def decoder(self, graphs: bool) -> Callable[[torch.Tensor, int], torch.Tensor]:
        """(ids, past positions) -> logits of the last one; with `graphs`, steps are CUDA graphs."""
        step = self.executable.captured("decode") if graphs else self.executable["decode"]
        functions = {"prefill": self.executable["prefill"], "decode": step}

        def call(ids: torch.Tensor, past: int) -> torch.Tensor:
            function = functions["decode" if ids.shape[1] == 1 else "prefill"]
            return torch.from_dlpack(function(ids, (past,), *self.cache))

        return call


def _random(decoder: Decoder) -> Iterator[torch.Tensor]:
    """Small floats; any bytes as the integers of quantised weights."""
    for name, parameter in decoder.named_parameters().items():
        kind = numpy_dtype(parameter.dtype)
        shape = tuple(parameter.shape)
        if kind.kind in "iu":
            # Whole blocks of a file have half-precision scales among their bytes: no NaN.
            most = 64 if name.endswith("blocks") else 256
            drawn = torch.randint(0, most, shape, dtype=torch.uint8, device="cuda")
            yield drawn if kind.kind == "u" else drawn.view(torch.int8)
        else:
            yield (torch.rand(shape, device="cuda") / 64).to(getattr(torch, parameter.dtype))
