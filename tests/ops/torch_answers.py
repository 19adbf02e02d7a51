"""Run inside an environment that has PyTorch: evaluate expressions on stored arrays.

Arguments: a file with arrays (`{case}.{argument}`, half precision as float32), a JSON file with
[{"text": expression, "dtypes": [...]}, ...], and the file to write results to
(`{case}.{result}`, again with half precision as float32).
"""

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np

torch: Any = import_module("torch")  # not in the environment that checks types


def answer(text: str, tensors: list[Any]) -> list[Any]:
    names = dict(zip("abcdefgh", tensors, strict=False))
    here = {"torch": torch, "F": torch.nn.functional}
    try:
        result = eval(text, {**here, **names})
    except NotImplementedError:  # of what PyTorch lacks in half precision, the rounded result
        halves = (torch.float16, torch.bfloat16)
        wide = {k: v.float() if v.dtype in halves else v for k, v in names.items()}
        result = eval(text, {**here, **wide}).to(tensors[0].dtype)
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
            small = value.dtype in (torch.float16, torch.bfloat16)
            results[f"{number}.{k}"] = (value.float() if small else value).detach().numpy()
    np.savez(target, **results)


main()
