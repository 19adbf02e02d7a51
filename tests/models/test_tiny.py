"""The model inside the package answers sensibly under the NumPy evaluation."""

import itertools

import pytest

from relaxlab.models import tiny
from relaxlab.models.chat import ChatTemplate
from relaxlab.models.gguf import read_gguf
from relaxlab.models.tokenizer import Tokenizer
from relaxlab.testing.llama_numpy import LlamaNumpy


@pytest.fixture(scope="module")
def ask():
    gguf = read_gguf(tiny.path())
    tokenizer, model = Tokenizer.from_gguf(gguf), LlamaNumpy.from_gguf(gguf)
    template = ChatTemplate.from_gguf(gguf, tokenizer)

    def answer(text: str) -> str:
        ids = model.greedy(template.encode([{"role": "user", "content": text}]))
        return tokenizer.decode(itertools.takewhile(lambda i: i not in tokenizer.stop_ids, ids))

    return answer


def test_file_is_small_and_like_its_big_relatives():
    assert tiny.path().stat().st_size <= 400_000
    gguf = read_gguf(tiny.path())
    assert {t.format.name for t in gguf.tensors.values()} == {"F32", "Q4_1", "Q8_0"}


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
