"""Run inside an environment that has llama-cpp-python: logits of GGUF files.

Arguments: a JSON file with [{"model": path, "ids": [...], "context": ..., "options": {...}}, ...]
and the file to write the logits (n, vocab_size) to, as `0`, `1`, …
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

llama_cpp: Any = import_module("llama_cpp")  # not in the environment that checks types


def main() -> None:
    results: dict[str, Any] = {}
    for number, case in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        llama = llama_cpp.Llama(
            case["model"], n_ctx=case["context"], logits_all=True, n_threads=2, verbose=False,
            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn=False,
            **case["options"],
        )  # fmt: skip
        llama.eval(case["ids"])
        results[str(number)] = np.array(llama.scores[: len(case["ids"])])
    np.savez(sys.argv[2], **results)


main()
