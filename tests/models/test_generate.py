"""Compiled generation: the tiny model always, SmolLM2 where its weights are installed."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from relaxlab.models import smollm2 as smollm2_weights
from relaxlab.models import tiny
from relaxlab.models.generate import TextGenerator, peak_rss_mb
from relaxlab.models.generation import CHUNK, PromptError
from relaxlab.models.gguf import read_gguf
from relaxlab.models.loader import ModelError
from relaxlab.models.sampling import Sampler
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.testing.llama_numpy import LlamaNumpy
from tests.models.logits import logits_effect

pytestmark = pytest.mark.usefixtures("own_cache")

CONTEXT = 64
MARGIN = 0.3


@pytest.fixture(scope="module")
def generator(own_cache):
    return TextGenerator.load("tiny", max_context=CONTEXT)


@pytest.fixture(scope="module")
def oracle():
    return LlamaNumpy.from_gguf(read_gguf(tiny.path()))


@pytest.fixture(autouse=True)
def forget(request):
    if "generator" in request.fixturenames:
        request.getfixturevalue("generator").reset()


def relative(got, want):
    return float(np.abs(got - want).max() / np.abs(want).max())


def check_greedy(oracle, prompt_ids, ids):
    """Each generated id is the oracle's choice given the ones before, where that is clear."""
    logits = oracle.logits([*prompt_ids, *ids])[len(prompt_ids) - 1 : -1]
    second, first = np.sort(logits, axis=-1)[:, -2:].T
    clear = first - second > MARGIN
    assert clear.any()
    assert (logits.argmax(-1) == np.array(ids))[clear].all()


def test_one_compilation_serves_all_lengths(generator, oracle, rng):
    for length in (1, 2, 3, 7, 8, 16, 17, 33, CONTEXT):
        generator.reset()
        ids = rng.integers(0, 384, length).tolist()
        want = oracle.logits(ids)[-1]
        assert relative(generator.logits(ids), want) < 1e-4, length
        generator.executable.threads = 1
        generator.reset()
        one = generator.logits(ids)
        generator.executable.threads = 2
        generator.reset()
        np.testing.assert_array_equal(generator.logits(ids), one)


def test_answers(generator, oracle):
    answer = generator.generate("What is 3 + 4?")
    assert answer.text == "3 + 4 = 7." and answer.stopped == "stop"
    assert answer.prompt_ids == generator.encode("What is 3 + 4?")
    assert answer.prefilled == len(answer.prompt_ids)
    assert answer.prefill_tok_s > 0 and answer.decode_tok_s > 0
    check_greedy(oracle, answer.prompt_ids, answer.ids)


def test_the_stream_is_the_answer_in_pieces(generator):
    pieces = list(generator.stream("Name a day of the week.", max_new_tokens=12))
    seen = []
    whole = generator.generate("Name a day of the week.", max_new_tokens=12, on_text=seen.append)
    assert pieces == seen and "".join(pieces) == whole.text


def test_streams_may_alternate(generator):
    questions = ("What is 2 + 2?", "What is the opposite of big?")
    alone = [list(generator.stream(q)) for q in questions]
    streams = [generator.stream(q) for q in questions]
    together = [[], []]
    for _ in range(CONTEXT):
        for pieces, stream in zip(together, streams, strict=True):
            pieces += islice(stream, 1)
    assert together == alone


def test_a_chat_reuses_what_is_cached(generator):
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    first = generator.generate(messages)
    messages += [{"role": "assistant", "content": first.text},
                 {"role": "user", "content": "What is 1 + 1?"}]  # fmt: skip
    second = generator.generate(messages, max_new_tokens=4)
    assert 0 < second.prefilled < len(second.prompt_ids)
    generator.reset()
    again = generator.generate(messages, max_new_tokens=4)
    assert again.prefilled == len(again.prompt_ids) and again.ids == second.ids


def test_the_end_of_the_answer(generator):
    ids = generator.encode("Tell me a story about a cat.", raw=True)
    assert generator.generate(ids, max_new_tokens=3).stopped == "length"
    one = generator.generate(ids, max_new_tokens=1)
    assert len(one.ids) == 1 and one.decode_tok_s is None
    full = (ids * CONTEXT)[: CONTEXT - 2]
    answer = generator.generate(full, max_new_tokens=99)
    assert answer.stopped in ("context", "stop")
    assert len(answer.ids) == 3 or answer.stopped == "stop"


def test_sampling_is_reproducible(generator):
    def draw(seed):
        sampler = Sampler(temperature=2.0, seed=seed)
        return generator.generate("Tell me a story.", max_new_tokens=20, sampler=sampler).ids

    assert draw(1) == draw(1)
    assert len({tuple(draw(s)) for s in range(4)}) > 1


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty"),
        ([5] * (CONTEXT + 1), f"{CONTEXT + 1} tokens, the context holds {CONTEXT}"),
        ([5, 384], "token id 384, the model has 0..383"),
        ([-1], "token id -1"),
        (None, "a prompt is text, .*, not None"),
        (b"text", "a prompt is text, .*, not a bytes"),
    ],
)
def test_prompts_that_cannot_be_answered(generator, prompt, message):
    with pytest.raises(PromptError, match=message):
        generator.generate(prompt)
    if isinstance(prompt, list):
        with pytest.raises(PromptError, match=message):
            generator.logits(prompt)


@pytest.mark.parametrize("prompt", [["one", "two"], [1, "two"], [{"role": "user"}, None]])
def test_lists_that_are_no_prompt(generator, prompt):
    with pytest.raises(PromptError, match="`generate_all` answers several"):
        generator.generate(prompt)


def test_an_empty_text_without_template_is_empty(generator):
    with pytest.raises(PromptError, match="empty"):
        generator.generate("", raw=True)
    for count in (0, 2.5):
        with pytest.raises(
            PromptError, match="max_new_tokens must be a whole number of at least 1"
        ):
            generator.generate("a", max_new_tokens=count)


def test_contexts_that_the_model_does_not_have():
    for asked in (0, 257):
        with pytest.raises(ModelError, match=r"max_context must lie in 1\.\.256"):
            TextGenerator.load("tiny", max_context=asked)


def test_the_second_load_comes_from_the_cache(generator):
    again = TextGenerator.load("tiny", max_context=CONTEXT)
    assert not generator.executable.from_cache and again.executable.from_cache
    assert again.times.compile_s < generator.times.compile_s
    ids = again.encode("What is 3 + 4?")
    np.testing.assert_array_equal(again.logits(ids), generator.logits(ids))


def test_no_call_reaches_beyond_the_cache(generator):
    prefill, vocabulary = generator.executable["prefill"], generator.checkpoint.config.vocab_size
    decode = generator.executable["decode"]
    assert prefill(np.zeros((1, CONTEXT), np.int32), (0,)).shape == (1, vocabulary)
    assert decode(np.zeros((1, 1), np.int32), (CONTEXT - 1,)).shape == (1, vocabulary)
    generator.reset()
    for function, length, past in ((prefill, 2, CONTEXT - 1), (decode, 1, CONTEXT)):
        with pytest.raises(CheckFailed, match=r"needs p( \+ s <=| <) positions.*it is 64"):
            function(np.zeros((1, length), np.int32), (past,))
    with pytest.raises(CheckFailed, match=f"s .* may be at most {CHUNK}"):
        prefill(np.zeros((1, CHUNK + 1), np.int32), (0,))


def test_contexts_share_a_program(generator):
    other = TextGenerator.load("tiny", max_context=CONTEXT - 1)
    assert other.executable.from_cache and other.executable.key == generator.executable.key
    with pytest.raises(PromptError, match=f"the context holds {CONTEXT - 1}"):
        other.logits([5] * CONTEXT)


def test_measurements(generator):
    assert generator.executable.artifact.planned_bytes["prefill"] > 0
    assert 20 < peak_rss_mb() < 1e6
    assert math.isfinite(generator.times.load_s) and generator.times.compile_s > 0


@pytest.mark.parametrize(("activations", "tolerance"), [("q16", 1e-3), ("q8", 0.1)])
def test_quantised_activations(oracle, activations, tolerance, rng):
    generator = TextGenerator.load("tiny", max_context=CONTEXT, activations=activations)
    assert generator.generate("What is 3 + 4?").text == "3 + 4 = 7."
    for length in (1, 9, 20):
        generator.reset()
        ids = rng.integers(0, 384, length).tolist()
        assert relative(generator.logits(ids), oracle.logits(ids)[-1]) < tolerance


# --- SmolLM2 ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2_oracle():
    try:
        path = smollm2_weights.path()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return LlamaNumpy.from_gguf(read_gguf(path))


PROSE = Path(__file__).with_name("prose.txt")


@pytest.mark.parametrize(
    ("activations", "worst", "agreement"),
    [("float32", 2e-3, 0.995), ("q16", 2e-3, 0.99), ("q8", 0.15, 0.95)],
)
def test_smollm2(smollm2_oracle, activations, worst, agreement):
    generator = TextGenerator.load("smollm2-135m", activations=activations)
    ids = generator.encode(PROSE.read_text(encoding="utf-8"), raw=True)
    want = smollm2_oracle.logits(ids)
    for length in (1, 16, 33, len(ids)):
        generator.reset()
        assert relative(generator.logits(ids[:length]), want[length - 1]) < worst, length
    generator.reset()
    effect = logits_effect(generator, smollm2_oracle, ids)
    print(activations, effect)
    assert effect.positions >= 500
    assert effect.worst < worst and effect.agreement >= agreement
    if activations != "q8":
        answer = generator.generate("What is the capital of France?", max_new_tokens=32)
        assert "Paris" in answer.text
        check_greedy(smollm2_oracle, answer.prompt_ids, answer.ids)
