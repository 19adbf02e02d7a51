"""Small random models of every family: as transformers makes them, and as GGUF files."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Pipeline
from tokenizers import models, pre_tokenizers

from relaxlab.models import tiny
from relaxlab.models.config import DecoderConfig
from relaxlab.models.gguf import GGUFTensor, read_gguf, write_gguf
from relaxlab.models.loader import Checkpoint

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / ".venv-reference/bin/python"
POSITIONS = 40
VOCABULARY = 384

SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": VOCABULARY, "max_position_embeddings": 64,
    "pad_token_id": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One random model. `values` go to transformers' configuration."""

    name: str
    family: str
    values: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"

    def rope_metadata(self) -> dict[str, Any]:
        """Return a GGUF file's metadata about scaling that llama.cpp evaluates itself, less the
        prefix."""
        given = self.values.get("rope_parameters", {})
        keys = YARN_KEYS if given.get("rope_type") == "yarn" else {}
        return {keys[k]: v for k, v in given.items() if k in keys}

    def request(self) -> dict[str, Any]:
        return {
            "name": self.name, "config": f"{self.family}Config",
            "model": f"{self.family.removesuffix('Text')}ForCausalLM",
            "values": SIZES | self.values, "dtype": self.dtype, "positions": POSITIONS,
        }  # fmt: skip


LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}  # fmt: skip
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        "long_factor": [2.0, 2.5, 3.0, 4.0, 5.0, 6.0]}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
        "original_max_position_embeddings": 16}  # fmt: skip
YARN_KEYS = {
    "rope_type": "rope.scaling.type", "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow",
}  # fmt: skip
CASES = (
    Case("llama", "Llama", {"rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True}),
    Case("mistral", "Mistral", {"sliding_window": 7, "head_dim": 32}),
    Case("qwen2", "Qwen2", {"tie_word_embeddings": True}, "bfloat16"),
    Case("qwen2-windows", "Qwen2", {"use_sliding_window": True, "sliding_window": 6,
                                    "max_window_layers": 1}),
    Case("qwen2-yarn", "Qwen2",
         {"rope_parameters": YARN | {"beta_fast": 1.25, "beta_slow": 0.0625}}),
    Case("qwen3", "Qwen3", {"head_dim": 32}),
    Case("qwen3-yarn", "Qwen3", {"head_dim": 32, "rope_parameters": YARN}),
    Case("gemma", "Gemma", {"head_dim": 32, "num_key_value_heads": 1}),
    Case("gemma2", "Gemma2", {"head_dim": 32, "sliding_window": 9, "query_pre_attn_scalar": 32,
                              "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    Case("gemma3", "Gemma3Text", {"head_dim": 32, "sliding_window": 9, "num_hidden_layers": 7,
                                  "query_pre_attn_scalar": 32, "intermediate_size": 32}),
    Case("phi", "Phi", {"partial_rotary_factor": 0.5}),
    Case("phi3", "Phi3", {"sliding_window": 11}),
    Case("phi3-long", "Phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 16}),
    Case("phi3-short", "Phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 48}),
)  # fmt: skip


def make_models(folder: Path) -> None:
    """Have transformers make all models and their logits, with a tokenizer for each."""
    cases = folder / "cases.json"
    cases.write_text(json.dumps([case.request() for case in CASES]))
    script = Path(__file__).with_name("transformers_answers.py")
    subprocess.run([REFERENCE, script, cases, folder], check=True, capture_output=True, cwd=ROOT)
    for case in CASES:
        write_tokenizer(folder / case.name)


def write_tokenizer(folder: Path, config: dict[str, Any] | None = None) -> None:
    """A byte-level tokenizer without merges, as Hugging Face stores it: 256 bytes, <s>, </s>."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters = [chr(b) for b in visible] + [chr(256 + i) for i in range(256 - len(visible))]
    pipeline = Pipeline(models.BPE({c: i for i, c in enumerate(characters)}, []))
    pipeline.add_special_tokens(["<s>", "</s>"])
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])  # fmt: skip
    pipeline.save(str(folder / "tokenizer.json"))
    values = {"bos_token": "<s>", "eos_token": {"content": "</s>"}} | (config or {})
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


def write_as_gguf(
    checkpoint: Checkpoint, case: Case, path: Path, format: str = "F32"
) -> dict[str, np.ndarray]:
    """Write a model as llama.cpp's converter would, matrices in a format, with the tokenizer of
    the tiny model; the weights as they are in the file, by their names there."""
    config, family = checkpoint.config, case.family
    scaling = {f"{ARCHITECTURES[family]}.{k}": v for k, v in case.rope_metadata().items()}
    tensors = {n: checkpoint.read(n)["data"].astype(np.float32) for n in config.tensor_shapes()}
    if family in ("Llama", "Mistral"):
        for name in tensors:
            if ".attn_q." in name or ".attn_k." in name:
                tensors[name] = pairs_side_by_side(tensors[name], config.head_dim)
    if family == "Phi3":
        for layer in range(config.num_layers):
            fuse(tensors, f"blk.{layer}.attn_qkv.weight",
                 [f"blk.{layer}.attn_{n}.weight" for n in "qkv"])  # fmt: skip
            fuse(tensors, f"blk.{layer}.ffn_up.weight",
                 [f"blk.{layer}.ffn_{n}.weight" for n in ("gate", "up")])  # fmt: skip
    rope = config.rope
    if rope.long_divisors is not None:
        tensors["rope_factors_short.weight"] = np.float32(rope.divisors)
        tensors["rope_factors_long.weight"] = np.float32(rope.long_divisors)
    elif rope.divisors is not None and not scaling:
        tensors["rope_freqs.weight"] = np.float32(rope.divisors)
    stored = [
        GGUFTensor.quantised(name, values, format if values.ndim > 1 else "F32")
        for name, values in tensors.items()
    ]
    tokenizer = {
        k: v for k, v in read_gguf(tiny.path()).metadata.items() if k.startswith("tokenizer.")
    }
    write_gguf(path, gguf_metadata(config, ARCHITECTURES[family]) | scaling | tokenizer, stored)
    return {t.name: t.dequantise() for t in stored}


ARCHITECTURES = {
    "Llama": "llama", "Mistral": "llama", "Qwen2": "qwen2", "Qwen3": "qwen3", "Gemma": "gemma",
    "Gemma2": "gemma2", "Gemma3Text": "gemma3", "Phi": "phi2", "Phi3": "phi3",
}  # fmt: skip


def gguf_metadata(config: DecoderConfig, arch: str) -> dict[str, Any]:
    norm = "layer_norm" if config.norm == "layer" else "layer_norm_rms"
    found: dict[str, Any] = {
        "block_count": config.num_layers,
        "context_length": config.context_length,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.ffn_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        f"attention.{norm}_epsilon": config.norm_eps,
        "rope.freq_base": config.rope.theta,
        "rope.dimension_count": config.rope.dims,
        "attn_logit_softcapping": config.attention_softcap,
        "final_logit_softcapping": config.logit_softcap,
        "attention.sliding_window": next((w for w in config.windows if w), None),
        "rope.scaling.original_context_length": config.rope.original_context,
        "rope.scaling.attn_factor": config.rope.scale if config.rope.long_divisors else None,
    }
    known = {f"{arch}.{key}": value for key, value in found.items() if value is not None}
    return {"general.architecture": arch, **known}


def pairs_side_by_side(values: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows (i, i + d/2) of each head as (2i, 2i + 1): llama.cpp's order for Llama."""
    heads = values.reshape(-1, 2, head_dim // 2, *values.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)


def fuse(tensors: dict[str, np.ndarray], name: str, parts: list[str]) -> None:
    tensors[name] = np.concatenate([tensors.pop(part) for part in parts])
