"""Run inside an environment that has PyTorch and transformers: make small BERTs, and evaluate them.

Arguments: a folder. It gets, per kind of model, a folder `{kind}-{head}` as `save_pretrained`
writes it, and `answers.npz` with `{kind}-{head}.{case}.{array}`: inputs and outputs.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

torch: Any = import_module("torch")  # neither is in the environment that checks types
transformers: Any = import_module("transformers")

SIZES = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80,
    "vocab_size": 100, "layer_norm_eps": 1e-5, "initializer_range": 0.2,
}  # fmt: skip
KINDS = {
    "bert": ("Bert", {"max_position_embeddings": 40, "type_vocab_size": 2}),
    "tanh": (
        "Bert",
        {"max_position_embeddings": 40, "type_vocab_size": 2, "hidden_act": "gelu_new"},
    ),
    "roberta": (
        "Roberta",
        {"max_position_embeddings": 42, "type_vocab_size": 1, "pad_token_id": 1},
    ),
}
HEADS = {"lm": "ForMaskedLM", "class": "ForSequenceClassification", "plain": "Model"}
CASES = [(1, 1), (1, 40), (2, 7), (3, 16), (4, 33)]


def randomised(model: Any) -> Any:
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name:
            torch.nn.init.normal_(parameter, float("LayerNorm.w" in name), 0.2)
    return model.eval()


def inputs(kind: str, batch: int, length: int) -> dict[str, Any]:
    """Random tokens; texts of a batch have different lengths, the second is padded in front."""
    padding = 1 if kind == "roberta" else 0
    ids = torch.randint(2, SIZES["vocab_size"], (batch, length))
    types = torch.randint(0, KINDS[kind][1]["type_vocab_size"], (batch, length))
    mask = torch.ones(batch, length, dtype=torch.int64)
    for row in range(1, batch):
        cut = int(torch.randint(0, length, ()))
        mask[row, slice(0, cut) if row == 1 else slice(length - cut, length)] = 0
    ids[mask == 0] = padding
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(3)
    results: dict[str, np.ndarray] = {}
    for kind, (name, options) in KINDS.items():
        config = getattr(transformers, f"{name}Config")(**SIZES, **options, num_labels=3)
        for head, suffix in HEADS.items():
            if kind == "tanh" and head != "lm":
                continue
            model = randomised(getattr(transformers, f"{name}{suffix}")(config))
            model.save_pretrained(folder / f"{kind}-{head}")
            for number, (batch, length) in enumerate(CASES):
                given = inputs(kind, batch, length)
                with torch.no_grad():
                    found = model(**given, output_hidden_states=True)
                row = {k: v.to(torch.int32) for k, v in given.items()}
                row["hidden"] = found.hidden_states[-1]
                if head == "plain":
                    row["pooled"] = found.pooler_output
                else:
                    row["logits"] = found.logits
                for key, value in row.items():
                    results[f"{kind}-{head}.{number}.{key}"] = value.numpy()
    np.savez(folder / "answers.npz", **results)


main()
