"""Run inside an environment that has transformers: continue a left-padded batch greedily.

Arguments: a model folder, a JSON file with {"prompts": [[ids]], "steps": n}, and the file to write
`logits` (prompts, steps, vocabulary) and `ids` (prompts, steps) to.
"""

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np

torch: Any = import_module("torch")  # not in the environment that checks types
transformers: Any = import_module("transformers")


def main() -> None:
    folder, task, target = sys.argv[1:]
    with open(task) as file:
        asked = json.load(file)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    longest = max(map(len, asked["prompts"]))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in asked["prompts"]])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in asked["prompts"]])
    steps = asked["steps"]
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=steps, min_new_tokens=steps,
            eos_token_id=None, pad_token_id=0, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    logits = torch.stack(out.logits, dim=1)
    np.savez(target, logits=logits.numpy(), ids=out.sequences[:, longest:].numpy())


main()
