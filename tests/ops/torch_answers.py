"""Run inside an environment that has PyTorch: evaluate expressions on stored arrays.

Arguments: a file with arrays (`{case}.{argument}`, half precision as float32), a JSON file with
[{"text": expression, "dtypes": [...]}, ...], and the file to write results to
(`{case}.{result}`, with half precision as float32).
"""

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np

torch: Any = import_module("torch")  # not in the environment that checks types


def answer(text: str, tensors: list[Any]) -> list[Any]:
    """In half precision PyTorch lacks some operators, and how it sums depends on the processor:
    what is asked for is the rounded result of float32."""
    halves = (torch.float16, torch.bfloat16)
    wide = [t.float() if t.dtype in halves else t for t in tensors]
    names = dict(zip("abcdefgh", wide, strict=False))
    result = eval(text, {"torch": torch, "F": torch.nn.functional, **names})
    return list(result) if isinstance(result, tuple | list) else [result]


def main() -> None:
    source, cases, target = sys.argv[1:]
    arrays = np.load(source)
    results: dict[str, Any] = {}
    with open(cases) as file:
        rows = json.load(file)
    for number, row in enumerate(rows):
        tensors = [
            torch.from_numpy(arrays[f"{number}.{k}"]).to(getattr(torch, dtype))
            for k, dtype in enumerate(row["dtypes"])
        ]
        for k, value in enumerate(answer(row["text"], tensors)):
            results[f"{number}.{k}"] = value.detach().numpy()
    np.savez(target, **results)


main()
