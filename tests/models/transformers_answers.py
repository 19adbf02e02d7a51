"""Run inside an environment that has transformers: random models and their logits.

Arguments: a JSON file with [{"name": ..., "config": class, "model": class, "values": {...},
"dtype": ...}, ...] and a folder. For each model, `folder/name` gets what Hugging Face saves, and
`folder/name.npz` the token ids (b, n) and the logits (b, n, vocab_size) of all positions.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

torch: Any = import_module("torch")  # not in the environment that checks types
transformers: Any = import_module("transformers")


def random_model(case: dict[str, Any]) -> Any:
    """All weights are random, those too that are ones or zeros in a fresh model."""
    config = getattr(transformers, case["config"])(**case["values"])
    model = getattr(transformers, case["model"])(config).eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim > 1:
                p.normal_(std=p.shape[-1] ** -0.5)
            else:
                p.normal_(mean=float("norm" in name and "bias" not in name), std=0.2)
            p.copy_(p.to(getattr(torch, case["dtype"])))
    return model


def main() -> None:
    cases, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for number, case in enumerate(cases):
        torch.manual_seed(number)
        model = random_model(case)
        ids = torch.randint(0, case["values"]["vocab_size"], (3, case["positions"]))
        with torch.no_grad():
            logits = model(ids).logits
        model.to(getattr(torch, case["dtype"])).save_pretrained(folder / case["name"])
        np.savez(folder / f"{case['name']}.npz", ids=ids.numpy(), logits=logits.numpy())


main()
