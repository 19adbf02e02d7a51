"""Train the tiny Llama that ships inside the package, and write it as a GGUF file.

    python tools/train_tiny.py relaxlab/models/data/tiny.gguf

Needs torch and tokenizers beside the package. The text is made up here: sums, counting, days and
opposites, and short stories from a grammar, as chats and as plain lines. The model has the shape of
its big relatives (grouped-query attention, rotary embedding, gated feed-forward, tied embeddings)
and is trained under the rounding of the formats that it is stored in, Q4_1 and Q8_0.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.gguf import GGUFTensor, write_gguf

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONFIG = DecoderConfig(
    hidden_size=128,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    ffn_size=256,
    vocab_size=384,
    context_length=256,
    norm_eps=1e-5,
    rope=Rope(10000.0, 32, interleaved=True),
    tied_embeddings=True,
)

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December"]  # fmt: skip
OPPOSITES = [("big", "small"), ("hot", "cold"), ("day", "night"), ("up", "down"),
             ("happy", "sad"), ("fast", "slow"), ("open", "closed"), ("old", "new"),
             ("wet", "dry"), ("left", "right")]  # fmt: skip
COLOURS = {"the sky": "blue", "grass": "green", "the sun": "yellow", "snow": "white",
           "a carrot": "orange", "coal": "black", "a tomato": "red"}  # fmt: skip
ANIMALS = {"cat": "milk", "dog": "bone", "bird": "seed", "mouse": "cheese", "rabbit": "carrot",
           "horse": "apple"}  # fmt: skip
PLACES = ["a small house", "a green garden", "an old barn", "a big forest"]


def sum_of(rng: random.Random) -> tuple[str, str]:
    """An expression such as ``2 + 3`` and its value."""
    kind = rng.choice("+++--*")
    if kind == "*":
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        return f"{a} * {b}", str(a * b)
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    if kind == "-":
        a, b = max(a, b), min(a, b)
    return f"{a} {kind} {b}", str(a + b if kind == "+" else a - b)


def story(rng: random.Random, animal: str) -> str:
    other = rng.choice([a for a in ANIMALS if a != animal])
    place = rng.choice(PLACES)
    food = ANIMALS[animal]
    return (
        f"Once upon a time a little {animal} lived in {place}. One day the {animal} was hungry. "
        f"It met a {other}. The {other} gave the {animal} some {food}. "
        f"The {animal} was happy, and they became friends."
    )


def question(rng: random.Random) -> tuple[str, str]:
    """One made-up question and its answer."""
    kind = rng.choices(["sum", "count", "day", "month", "opposite", "colour", "story", "self"],
                       [10, 3, 1, 1, 1, 1, 2, 0.5])[0]  # fmt: skip
    if kind == "sum":
        expression, value = sum_of(rng)
        ask = rng.choice(["What is {}?", "{} =", "Compute {}.", "How much is {}?"])
        return ask.format(expression), f"{expression} = {value}."
    if kind == "count":
        start = rng.randint(0, 30)
        end = start + rng.randint(1, 9)
        numbers = ", ".join(map(str, range(start, end + 1)))
        return f"Count from {start} to {end}.", numbers + "."
    if kind in ("day", "month"):
        names = DAYS if kind == "day" else MONTHS
        at, step = rng.randrange(len(names)), rng.choice([-1, 1])
        relation = "after" if step == 1 else "before"
        return (f"What {kind} comes {relation} {names[at]}?",
                f"{names[(at + step) % len(names)]} comes {relation} {names[at]}.")  # fmt: skip
    if kind == "opposite":
        a, b = rng.sample(rng.choice(OPPOSITES), 2)
        return f"What is the opposite of {a}?", f"The opposite of {a} is {b}."
    if kind == "colour":
        thing = rng.choice(list(COLOURS))
        return f"What colour is {thing}?", f"{thing.capitalize()} is {COLOURS[thing]}."
    if kind == "story":
        animal = rng.choice(list(ANIMALS))
        return f"Tell me a story about a {animal}.", story(rng, animal)
    greeting = rng.choice(["Who are you?", "Hello!", "Hi!", "What can you do?"])
    return greeting, "Hello! I am a tiny language model. I can add, count and tell stories."


def chat_turn(rng: random.Random) -> str:
    ask, answer = question(rng)
    return f"<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"


def document(rng: random.Random) -> str:
    """A chat of some turns, or plain lines."""
    if rng.random() < 0.75:
        return "".join(chat_turn(rng) for _ in range(rng.choice([1, 1, 2, 3])))
    if rng.random() < 0.25:
        return story(rng, rng.choice(list(ANIMALS))) + "<|endoftext|>"
    lines = (f"{a} = {b}\n" for a, b in (sum_of(rng) for _ in range(rng.randint(1, 6))))
    return "".join(lines) + "<|endoftext|>"


def train_tokenizer(rng: random.Random) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG.vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((document(rng) for _ in range(3000)), trainer)
    if tokenizer.get_vocab_size() != CONFIG.vocab_size:
        raise SystemExit("the made-up text is too small for the vocabulary")
    return tokenizer


class Batches:
    """Rows of tokens that start where a document starts and run over as many as fit."""

    def __init__(self, tokenizer: Tokenizer, rng: random.Random) -> None:
        self.tokenizer, self.rng = tokenizer, rng

    def row(self, length: int) -> list[int]:
        ids: list[int] = []
        while len(ids) <= length:
            ids += self.tokenizer.encode(document(self.rng)).ids
        return ids[: length + 1]

    def next(self, rows: int, length: int) -> torch.Tensor:
        return torch.tensor([self.row(length) for _ in range(rows)])


def rounded_q4_1(w: torch.Tensor) -> torch.Tensor:
    blocks = w.reshape(*w.shape[:-1], -1, 32)
    low, high = blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True)
    step = (high - low) / 15
    q = ((blocks - low) / step.clamp_min(1e-12)).round().clamp(0, 15)
    return (q * step.half().float() + low.half().float()).reshape(w.shape)


def rounded_q8_0(w: torch.Tensor) -> torch.Tensor:
    blocks = w.reshape(*w.shape[:-1], -1, 32)
    step = blocks.abs().amax(-1, keepdim=True) / 127
    q = (blocks / step.clamp_min(1e-12)).round().clamp(-127, 127)
    return (q * step.half().float()).reshape(w.shape)


def format_of(name: str, shape: tuple[int, ...]) -> str:
    """Matrices in Q4_1, the embedding, which is also the head, in Q8_0, and norms as they are."""
    if len(shape) == 1:
        return "F32"
    return "Q8_0" if name == "token_embd.weight" else "Q4_1"


class TinyLlama:
    """The model as a table of parameters by GGUF name, and its forward pass."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.weights: dict[str, torch.Tensor] = {}
        for name, shape in CONFIG.tensor_shapes().items():
            if len(shape) == 1:
                value = torch.ones(shape)
            else:
                scale = 0.04 if name == "token_embd.weight" else shape[-1] ** -0.5
                value = torch.randn(shape, generator=generator) * scale
            self.weights[name] = value.requires_grad_()
        positions = torch.arange(CONFIG.context_length)[:, None]
        angle = positions * torch.from_numpy(CONFIG.rope.inverse_frequencies())
        self.cos, self.sin = angle.cos(), angle.sin()
        self.round_weights = False

    def weight(self, name: str) -> torch.Tensor:
        """The parameter; in the later part of training as its stored format will round it, with
        the gradient passed straight through."""
        w = self.weights[name]
        rounding = {"Q4_1": rounded_q4_1, "Q8_0": rounded_q8_0}.get(format_of(name, w.shape))
        if not self.round_weights or rounding is None:
            return w
        return w + (rounding(w) - w).detach()

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight(f"{name}.weight"), CONFIG.norm_eps)

    def heads(self, x: torch.Tensor, name: str, heads: int) -> torch.Tensor:
        y = F.linear(x, self.weight(f"{name}.weight"))
        return y.reshape(*x.shape[:2], heads, CONFIG.head_dim).transpose(1, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (rows, n, vocab_size) of ids (rows, n)."""
        embedding = self.weight("token_embd.weight")
        x = F.embedding(ids, embedding)
        for layer in range(CONFIG.num_layers):
            block = f"blk.{layer}."
            y = self.norm(x, block + "attn_norm")
            q = self.rotate(self.heads(y, block + "attn_q", CONFIG.num_heads))
            k = self.rotate(self.heads(y, block + "attn_k", CONFIG.num_kv_heads))
            v = self.heads(y, block + "attn_v", CONFIG.num_kv_heads)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            mixed = mixed.transpose(1, 2).flatten(2)
            x = x + F.linear(mixed, self.weight(block + "attn_output.weight"))
            y = self.norm(x, block + "ffn_norm")
            gate = F.silu(F.linear(y, self.weight(block + "ffn_gate.weight")))
            up = F.linear(y, self.weight(block + "ffn_up.weight"))
            x = x + F.linear(gate * up, self.weight(block + "ffn_down.weight"))
        return F.linear(self.norm(x, "output_norm"), embedding)


def train(model: TinyLlama, batches: Batches, steps: int, rows: int) -> None:
    peak = 4e-3
    optimizer = torch.optim.AdamW(model.weights.values(), lr=peak, betas=(0.9, 0.98),
                                  weight_decay=0.01)  # fmt: skip
    began = time.time()
    for step in range(steps):
        model.round_weights = step > 0.6 * steps
        rate = min(1, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimizer.param_groups[0]["lr"] = peak * max(rate, 0.005)
        ids = batches.next(rows, CONFIG.context_length)
        logits = model.forward(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.weights.values(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.4f} {time.time() - began:.0f} s", flush=True)


def metadata_of(tokenizer: Tokenizer) -> dict[str, object]:
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    model = json.loads(tokenizer.to_str())["model"]
    return {
        "general.architecture": "llama",
        "general.name": "relaxlab tiny",
        "general.license": "apache-2.0",
        "llama.block_count": CONFIG.num_layers,
        "llama.context_length": CONFIG.context_length,
        "llama.embedding_length": CONFIG.hidden_size,
        "llama.feed_forward_length": CONFIG.ffn_size,
        "llama.attention.head_count": CONFIG.num_heads,
        "llama.attention.head_count_kv": CONFIG.num_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": CONFIG.norm_eps,
        "llama.rope.freq_base": CONFIG.rope.theta,
        "llama.rope.dimension_count": CONFIG.head_dim,
        "llama.vocab_size": CONFIG.vocab_size,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [token for token, _ in vocabulary],
        "tokenizer.ggml.token_type": [3 if token in SPECIAL else 1 for token, _ in vocabulary],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(arguments.seed)
    tokenizer = train_tokenizer(rng)
    model = TinyLlama(arguments.seed)
    train(model, Batches(tokenizer, rng), arguments.steps, arguments.rows)
    tensors = []
    for name, weight in model.weights.items():
        values = weight.detach().numpy().astype(np.float32)
        tensors.append(GGUFTensor.quantised(name, values, format_of(name, values.shape)))
    write_gguf(arguments.output, metadata_of(tokenizer), tensors)


if __name__ == "__main__":
    main()
