"""Memory of loading a model: each weight is in it once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.models.test_sentence import WORDS, drawn, linear

LAYERS, HIDDEN, INNER = 3, 512, 8192
"""Three layers have enough weights to be repacked one by one (`split_transform_params`)."""

LOAD = """
import sys
from relaxlab.models.text_encoder import BertEncoder

def read(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))

before = read("VmRSS:")
encoder = BertEncoder.from_pretrained(sys.argv[1])
print(encoder.executable.from_cache, read("VmHWM:") - before)
"""

def write_encoder(folder: Path, rng: np.random.Generator) -> int:
    """A BERT whose matrices are packed by the compiler; return the bytes of its file."""
    config = {
        "model_type": "bert", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": 8, "intermediate_size": INNER, "vocab_size": len(WORDS),
        "max_position_embeddings": 32, "type_vocab_size": 2,
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), HIDDEN),
        "embeddings.position_embeddings.weight": (32, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(LAYERS):
        at = f"encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= linear(f"{at}.attention.{name}", HIDDEN, HIDDEN)
        shapes |= linear(f"{at}.intermediate.dense", INNER, HIDDEN)
        shapes |= linear(f"{at}.output.dense", HIDDEN, INNER)
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
    shapes |= {f"{name}.{part}": (HIDDEN,) for name in norms for part in ("weight", "bias")}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    save_file(drawn(shapes, rng), folder / "model.safetensors")
    return (folder / "model.safetensors").stat().st_size


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_in_memory_once(tmp_path: Path, rng: np.random.Generator) -> None:
    """A process that loads a program from the cache takes less than half of the file's size beside
    the weights; 60 MB are the modules that it imports."""
    size = write_encoder(tmp_path, rng)
    environment = {**os.environ, "RELAXLAB_CACHE": str(tmp_path / "cache")}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True,
            check=True, env=environment,
        ).stdout.split()
        for _ in range(2)
    ]  # fmt: skip
    assert [o[0] for o in outputs] == ["False", "True"]
    assert int(outputs[1][1]) < 1.3 * size + 60e6
