"""The systems compared, with their environments and weights."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT
from relaxlab.models.config import DecoderConfig
from relaxlab.models.families import config_from_gguf
from relaxlab.models.gguf import GGUF, GGUFTensor, read_gguf, write_gguf

CORE = Path(sys.executable)
BENCH = ROOT / ".venv-bench" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Row:
    """A peer. `ours` are compared with the best of the others of their `group`.

    weights: None for the file as it is, else the format into which a copy of it is dequantised.
    stored: the format in which the peer itself keeps them, if that is another.
    environment: variables of its process.
    logits: whether it gives logits, and not tokens only.
    """

    name: str
    group: str
    worker: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    stored: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    logits: bool = True

    @property
    def ours(self) -> bool:
        return self.worker == "Relaxlab"

    @property
    def python(self) -> Path:
        return CORE if self.ours else BENCH


# What relaxlab asks for itself, memory in large pages, where it made a peer faster.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

Q8 = {"activations": "q8"}

ROWS = (
    Row("relaxlab q8", "file", "Relaxlab", Q8),
    Row("relaxlab q16", "file", "Relaxlab", {"activations": "q16"}),
    Row("relaxlab float32", "file", "Relaxlab"),
    Row("llama.cpp", "file", "LlamaCpp"),
    Row(
        "llama.cpp, tuned", "file", "LlamaCpp", {"flash_attn": True, "use_mmap": False},
        environment=LARGE_PAGES,
    ),
    Row("OpenVINO GenAI", "file", "OpenVINO", logits=False),
    Row("relaxlab, float32 weights", "float32", "Relaxlab", weights="F32"),
    Row(
        "PyTorch float32", "float32", "PyTorch", {"dtype": "float32"}, stored="F32",
        environment=LARGE_PAGES,
    ),
    Row("relaxlab, bfloat16 weights", "bfloat16", "Relaxlab", Q8, weights="BF16"),
    Row(
        "PyTorch bfloat16", "bfloat16", "PyTorch", {"dtype": "bfloat16"}, stored="BF16",
        environment=LARGE_PAGES,
    ),
)  # fmt: skip

GROUPS = {
    "file": "the weights as the file has them",
    "float32": "dequantised to float32",
    "bfloat16": "dequantised to bfloat16",
}


def dequantised(model: Path, format: str, folder: Path) -> Path:
    """A copy of a GGUF file in `folder` whose matrices are stored in `format`."""
    path = folder / f"{model.stem}.{format}.gguf"
    if not path.exists():
        gguf = read_gguf(model)
        tensors = (
            GGUFTensor.quantised(t.name, t.dequantise(), format if len(t.shape) > 1 else "F32")
            for t in gguf.tensors.values()
        )
        write_gguf(path, gguf.metadata, tensors)
    return path


@dataclass(frozen=True, slots=True)
class Work:
    """The demands of a model on the machine: bytes of weights read per decoded token (the embedding
    only if it is also the output matrix), multiply-adds of a prompt of n tokens."""

    config: DecoderConfig
    weights: tuple[GGUFTensor, ...]

    @staticmethod
    def of(gguf: GGUF) -> Work:
        config = config_from_gguf(gguf)
        unread = set() if config.tied_embeddings else {"token_embd.weight"}
        return Work(config, tuple(t for name, t in gguf.tensors.items() if name not in unread))

    def bytes_per_token(self, stored: str | None) -> int:
        """As the file has them, or with all matrices in the format `stored`."""
        size = {None: None, "F32": 4, "BF16": 2}[stored]
        total = 0
        for tensor in self.weights:
            count = tensor.shape[0] * tensor.shape[-1]
            kept = size is None or len(tensor.shape) == 1
            total += tensor.nbytes if kept else count * size
        return total

    def prefill_macs(self, tokens: int) -> int:
        """Return the multiply-adds of the matrices; the output matrix serves the last position
        only."""
        heads = {"token_embd.weight", "output.weight"}
        matrices = [t for t in self.weights if len(t.shape) == 2]
        return sum(t.shape[0] * t.shape[1] * (1 if t.name in heads else tokens) for t in matrices)
