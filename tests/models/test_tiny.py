"""The model inside the package answers sensibly under the NumPy evaluation."""

import itertools
from collections import Counter

import pytest

from relaxlab.models import tiny
from relaxlab.models.chat import ChatError, ChatTemplate
from relaxlab.models.config import ConfigError
from relaxlab.models.families import config_from_gguf
from relaxlab.models.gguf import GGUFError, read_gguf
from relaxlab.models.tokenizer import TokenizerError
from relaxlab.models.tokenizer_gguf import tokenizer_from_gguf
from relaxlab.testing.llama_numpy import LlamaNumpy


@pytest.fixture(scope="module")
def ask():
    gguf = read_gguf(tiny.path())
    tokenizer, model = tokenizer_from_gguf(gguf), LlamaNumpy.from_gguf(gguf)
    template = ChatTemplate.from_gguf(gguf, tokenizer)

    def answer(text: str) -> str:
        ids = model.greedy(template.encode([{"role": "user", "content": text}]))
        return tokenizer.decode(itertools.takewhile(lambda i: i not in tokenizer.stop_ids, ids))

    return answer


def test_file_is_small_and_like_its_big_relatives():
    assert tiny.path().stat().st_size <= 400_000
    gguf = read_gguf(tiny.path())
    assert {t.format.name for t in gguf.tensors.values()} == {"F32", "Q4_1", "Q8_0"}


def load_and_encode(path) -> None:
    gguf = read_gguf(path)
    tokenizer = tokenizer_from_gguf(gguf)
    config_from_gguf(gguf)
    ids = ChatTemplate.from_gguf(gguf, tokenizer).encode([{"role": "user", "content": "2 + é?"}])
    tokenizer.decode(ids)


def test_damaged_models_are_refused_or_load(tmp_path, rng):
    """Damage in the header that the reader cannot see must be caught by what uses its tables."""
    content = tiny.path().read_bytes()
    header = min(t.offset for t in read_gguf(tiny.path()).tensors.values())
    path, outcomes = tmp_path / "damaged.gguf", Counter()
    for _ in range(1000):
        damaged = bytearray(content)
        for at in rng.integers(header, size=rng.integers(1, 4)):
            damaged[at] = damaged[at] ^ (1 << rng.integers(8)) if rng.random() < 0.6 else 46
        path.write_bytes(damaged)
        try:
            load_and_encode(path)
            outcomes["loaded"] += 1
        except (GGUFError, TokenizerError, ConfigError, ChatError) as error:
            outcomes[type(error).__name__] += 1
    assert outcomes["GGUFError"] and outcomes["TokenizerError"] and outcomes["loaded"], outcomes


def test_it_can_add(ask):
    wrong = [
        (a, b) for a in range(0, 21, 3) for b in range(0, 21, 4)
        if ask(f"What is {a} + {b}?") != f"{a} + {b} = {a + b}."
    ]  # fmt: skip
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 2 + 3?", "2 + 3 = 5."),
        ("What is 7 * 8?", "7 * 8 = 56."),
        ("Count from 3 to 8.", "3, 4, 5, 6, 7, 8."),
        ("What day comes after Tuesday?", "Wednesday comes after Tuesday."),
        ("What is the opposite of hot?", "The opposite of hot is cold."),
    ],
)
def test_it_answers(ask, question, answer):
    assert ask(question) == answer


def test_it_tells_a_story(ask):
    story = ask("Tell me a story about a cat.")
    assert story.startswith("Once upon a time a little cat lived in ")
    assert story.endswith("The cat was happy, and they became friends.")
