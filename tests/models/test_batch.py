"""Many sequences at once: each is answered as if it were alone."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.models.generate import TextGenerator
from relaxlab.models.generation import Generation, PromptError
from relaxlab.models.loader import ModelError, open_model
from relaxlab.models.paged_decoder import PagedDecoder
from relaxlab.models.pages import PageAllocator, PagedSequence, PoolExhausted, ragged_arrays
from relaxlab.models.sampling import Sampler
from relaxlab.nn.layers import FEW_ROWS
from relaxlab.nn.paged_loops import PAGE, PoolShape
from tests.models.test_decoder import write_folder
from tests.test_repo import ROOT

pytestmark = pytest.mark.usefixtures("own_cache")

PYTHON = ROOT / ".venv-reference/bin/python"
CONTEXT, PAGES = 128, 24


class Recorder(Sampler):
    """Draws as `Sampler` does, but never one of the ids `never` (default: the stop tokens of the
    tiny model), and keeps the logits."""

    def __init__(self, never: tuple[int, ...] | None = None, **options) -> None:
        super().__init__(**options)
        self.rows: list[np.ndarray] = []
        stops = open_model("tiny").tokenizer.stop_ids if never is None else never
        self.never = list(stops)

    def __call__(self, logits: np.ndarray) -> int:
        self.rows.append(logits.copy())
        allowed = logits.copy()
        allowed[self.never] = -np.inf
        return super().__call__(allowed)


@pytest.fixture(scope="module")
def alone(own_cache):
    return TextGenerator.load("tiny", max_context=CONTEXT)


@pytest.fixture(scope="module")
def loaded(own_cache):
    return TextGenerator.load("tiny", max_context=CONTEXT, pages=PAGES, max_sequences=8)


@pytest.fixture
def batch(loaded):
    """With nothing under way, before and after."""
    assert not loaded.active and loaded.cache.allocator.free == PAGES
    yield loaded
    for request in list(loaded.active):
        loaded.cancel(request)
    assert loaded.cache.allocator.free == PAGES


def some_ids(rng: np.random.Generator, length: int) -> list[int]:
    return rng.integers(3, 384, length).tolist()


def run(batch: TextGenerator) -> None:
    while batch.step():
        pass


def check(alone: TextGenerator, request: Generation, seen: Recorder, **options) -> None:
    """The request was answered as `alone` answers its prompt, by the same logits."""
    alone.reset()
    recorder = Recorder(**options)
    want = alone.generate(
        request.prompt_ids, max_new_tokens=request.max_new_tokens, sampler=recorder
    )
    if same_choices(request.ids, seen.rows, want.ids, recorder.rows):
        assert (request.text, request.stopped) == (want.text, want.stopped)


def same_choices(ids: list[int], rows, want_ids: list[int], want_rows) -> bool:
    """True if the ids agree to the end. Asserts that they part only where two logits tie, and that
    the logits agree up to there."""
    for i, (got, want) in enumerate(zip(rows, want_rows, strict=False)):
        scale = np.abs(want).max()
        assert np.abs(got - want).max() <= 1e-5 * scale
        if ids[i] != want_ids[i]:
            assert abs(want[ids[i]] - want[want_ids[i]]) <= 2e-5 * scale
            return False
    assert ids == want_ids and len(rows) == len(want_rows)
    return True


def test_each_sequence_is_answered_as_if_it_were_alone(batch, alone, rng):
    samplers = [Recorder() for _ in range(5)]
    prompts = [some_ids(rng, n) for n in (1, 3, 16, 17, 60)]
    answers = batch.generate_all(prompts, max_new_tokens=20, samplers=samplers)
    for request, sampler in zip(answers, samplers, strict=True):
        check(alone, request, sampler)


def test_each_sequence_has_a_sampler_of_its_own(batch, alone):
    options = [{"temperature": 0.8, "seed": 3}, {}, {"temperature": 1.2, "top_k": 5, "seed": 4}]
    samplers = [Recorder(**o) for o in options]
    answers = batch.generate_all(["Count to five."] * 3, max_new_tokens=16, samplers=samplers)
    for request, sampler, option in zip(answers, samplers, options, strict=True):
        check(alone, request, sampler, **option)


def test_sequences_join_and_leave_at_any_step(batch, alone):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    submitted: list[tuple[Generation, Recorder]] = []
    left: set[int] = set()
    for _ in range(40):
        if rng.random() < 0.4 and len(batch.active) < 8:
            ids = [rng.randrange(3, 384) for _ in range(rng.choice((1, 2, 15, 16, 33)))]
            sampler = Recorder()
            request = batch.submit(ids, max_new_tokens=rng.randrange(1, 20), sampler=sampler)
            submitted.append((request, sampler))
        if rng.random() < 0.1 and batch.active:
            leaving = rng.choice(batch.active)
            left.add(id(leaving))
            batch.cancel(leaving)
            assert leaving.stopped == "cancelled"
        batch.step()
    run(batch)
    for request, sampler in submitted:
        if id(request) not in left:
            check(alone, request, sampler)


def test_prompts_are_read_in_parts_beside_others_that_are_answered(batch, alone, rng, monkeypatch):
    monkeypatch.setattr("relaxlab.models.paged_cache.CHUNK", 24)
    samplers = [Recorder() for _ in range(3)]
    prompts = [some_ids(rng, n) for n in (2, 70, 50)]
    requests = [
        batch.submit(p, max_new_tokens=9, sampler=s)
        for p, s in zip(prompts, samplers, strict=True)
    ]
    batch.step()
    assert [len(r.ids) for r in requests] == [1, 0, 0]
    assert [r.sequence.length for r in requests] == [2, 22, 0]
    run(batch)
    for request, sampler in zip(requests, samplers, strict=True):
        check(alone, request, sampler)


def test_one_sequence_answers_several_prompts_in_turn(batch, alone, rng):
    """None of them ends by itself, whatever the prompts are."""
    prompts = [some_ids(rng, n) for n in (3, 20, 7)]
    one_by_one, together = (
        m.generate_all(prompts, max_new_tokens=6, samplers=[Recorder() for _ in prompts])
        for m in (alone, batch)
    )
    assert [a.ids for a in one_by_one] == [a.ids for a in together]
    first, second = (alone.submit(p, max_new_tokens=6, sampler=Recorder()) for p in prompts[:2])
    for _ in range(3):
        alone.step()
    fork = alone.fork(first, max_new_tokens=2, sampler=Recorder())
    run(alone)
    assert [first.ids, second.ids] == [a.ids for a in together[:2]]
    assert fork.ids == first.ids[3:5] and first.decode_tok_s > 0


def test_text_arrives_as_it_is_generated(batch):
    pieces: dict[int, list[str]] = {0: [], 1: []}
    prompts = ["What is 3 + 4?", "Count to five."]
    answers = batch.generate_all(prompts, on_text=lambda i, piece: pieces[i].append(piece))
    assert ["".join(p) for p in pieces.values()] == [a.text for a in answers]
    assert len(pieces[1]) > 3 and answers[0].text == "3 + 4 = 7."


def test_youngest_sequences_wait_when_pages_run_out(batch, alone, rng):
    """Together they need 5 * 6 pages, there are 24."""
    samplers = [Recorder() for _ in range(5)]
    prompts = [some_ids(rng, 50) for _ in range(5)]
    requests = [
        batch.submit(p, max_new_tokens=40, sampler=s)
        for p, s in zip(prompts, samplers, strict=True)
    ]
    most = 0
    while batch.step():
        most = max(most, sum(not r.sequence.length for r in requests if r.stopped is None))
        assert batch.cache.allocator.free >= 0
    assert most, "somebody had to wait"
    for request, sampler in zip(requests, samplers, strict=True):
        check(alone, request, sampler)


def test_an_exhausted_pool_is_an_error_that_names_the_way_out(batch, alone, rng):
    first = batch.submit(some_ids(rng, 20), max_new_tokens=8, sampler=Recorder())
    sampler = Recorder()
    batch.step()
    taken = batch.cache.allocator.allocate(batch.cache.allocator.free)
    second = batch.submit(some_ids(rng, 40), max_new_tokens=8, sampler=sampler)
    with pytest.raises(PoolExhausted, match="^3 more pages .* to go on, 2 of 24 are free; cancel"):
        for _ in range(PAGE + 1):
            batch.step()
    assert first.stopped == "length" and second.stopped is None
    batch.cache.allocator.release(taken)
    run(batch)
    check(alone, second, sampler)


def test_a_pool_limits_the_context(rng):
    small = TextGenerator.load("tiny", max_context=CONTEXT, pages=2, max_sequences=8)
    with pytest.raises(PromptError, match="33 tokens, the context holds 32; .* with more pages"):
        small.submit(some_ids(rng, 33))
    (answer,) = small.generate_all([some_ids(rng, 30)], max_new_tokens=10, samplers=[Recorder()])
    assert (answer.stopped, len(answer.ids)) == ("context", 3)
    cache: Any = small.cache
    assert not small.active and cache.allocator.free == 2


def test_a_fork_shares_pages_and_goes_its_own_way(batch, alone, rng):
    ids = some_ids(rng, 37)
    first = batch.submit(ids, max_new_tokens=30, sampler=Recorder())
    for _ in range(4):
        batch.step()
    free, samplers = batch.cache.allocator.free, [Recorder(temperature=1.0, seed=s) for s in (1, 2)]
    others = [batch.fork(first, max_new_tokens=12, sampler=s) for s in samplers]
    assert batch.cache.allocator.free == free
    batch.step()
    assert batch.cache.allocator.free == free - 2, "each has a last page of its own"
    run(batch)
    alone.reset()
    want = alone.generate(ids, max_new_tokens=30, sampler=Recorder())
    assert first.ids == want.ids
    for seed, (other, sampler) in enumerate(zip(others, samplers, strict=True), 1):
        assert other.prompt_ids == [*ids, *want.ids[:4]]
        check(alone, other, sampler, temperature=1.0, seed=seed)
    with pytest.raises(PromptError, match="is finished"):
        batch.fork(first)


def test_an_interrupted_step_can_be_repeated(batch, alone, rng, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    samplers = [Recorder(), Recorder()]
    requests = [batch.submit(some_ids(rng, n), sampler=s, max_new_tokens=6)
                for n, s in zip((5, 30), samplers, strict=True)]  # fmt: skip
    for name in ("_extend", "_few_steps"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(batch.cache, name, interrupted)
            batch.step()
        batch.step()
    run(batch)
    for request, sampler in zip(requests, samplers, strict=True):
        check(alone, request, sampler)


def test_a_failing_sampler_leaves_other_sequences_alone(batch, alone, rng):
    class Failing(Recorder):
        fails = True

        def __call__(self, logits: np.ndarray) -> int:
            if len(self.rows) == 2 and self.fails:
                self.fails = False
                raise ZeroDivisionError
            return super().__call__(logits)

    samplers = [Recorder(), Failing(), Recorder()]
    requests = [batch.submit(some_ids(rng, 20), sampler=s, max_new_tokens=6) for s in samplers]
    with pytest.raises(ZeroDivisionError):
        run(batch)
    assert [len(r.ids) for r in requests] == [3, 2, 2]
    run(batch)
    for request, sampler in zip(requests, samplers, strict=True):
        check(alone, request, sampler)


def test_bad_input(batch):
    with pytest.raises(PromptError, match="empty"):
        batch.submit([])
    with pytest.raises(PromptError, match="at least 1"):
        batch.submit("a", max_new_tokens=0)
    with pytest.raises(PromptError, match="has not begun"):
        batch.fork(batch.submit("a"))
    with pytest.raises(ModelError, match="at least one page"):
        TextGenerator.load("tiny", pages=0)


def test_contexts_pools_and_numbers_of_sequences_share_a_program(batch):
    other = TextGenerator.load("tiny", max_context=CONTEXT - 3, pages=5, max_sequences=100)
    assert other.executable.from_cache and other.executable.key == batch.executable.key


def test_more_sequences_than_are_few(batch, alone, rng):
    """Their steps have another function, which gives the same tokens."""
    wide = TextGenerator.load("tiny", max_context=CONTEXT, pages=200, max_sequences=60)
    prompts = [some_ids(rng, int(n)) for n in rng.integers(1, 12, FEW_ROWS + 3)]
    for prompt, answer in zip(prompts, wide.generate_all(prompts, max_new_tokens=4), strict=True):
        assert answer.ids == alone.generate(prompt, max_new_tokens=4).ids


def test_the_pool_is_all_the_memory_that_sequences_have(batch):
    config = batch.checkpoint.config
    position = config.num_layers * config.num_kv_heads * config.head_dim * 2 * 4
    assert batch.cache.nbytes == PAGES * PAGE * position


@pytest.mark.parametrize("activations", ["q8", "q16"])
def test_quantised_activations(activations):
    batch = TextGenerator.load(
        "tiny", activations=activations, pages=PAGES, max_context=CONTEXT, max_sequences=2
    )
    answers = batch.generate_all(["What is 3 + 4?", "What is 5 + 2?"])
    assert [a.text for a in answers] == ["3 + 4 = 7.", "5 + 2 = 7."]


def paged_arguments(module_rng, decoder: PagedDecoder, pages: int):
    """Pools, and the arguments of a call with three sequences."""
    config = decoder.config
    allocator = PageAllocator(pages)
    sequences = [PagedSequence(allocator) for _ in range(3)]
    shapes = PoolShape(config.num_kv_heads, config.head_dim).of(pages)
    pools = [np.zeros(s, np.float32) for _ in range(config.num_layers) for s in shapes]

    def arguments(rows: list[int], tile: int):
        for sequence, count in zip(sequences, rows, strict=True):
            sequence.extend(count)
        ids = module_rng.integers(0, config.vocab_size, (1, sum(rows))).astype(np.int32)
        return [ids, *ragged_arrays(sequences, rows, tile)]

    return pools, arguments


def test_all_executors_agree(tmp_path, rng):
    """The interpreter, machine code, and the threads of a GPU."""
    write_folder(tmp_path, rng)
    checkpoint = open_model(tmp_path)
    decoder = PagedDecoder(checkpoint.config, checkpoint.formats, max_context=64)
    module, names = decoder.build_paged(max_rows=64, max_sequences=4)
    weights = checkpoint.weights(decoder, names)
    native = rl.compile(module, use_cache=False)
    packed = list(native["transform_params"](tuple(weights)))
    gpu = rl.compile(module, "cuda", use_cache=False)
    (pools, arguments) = paged_arguments(rng, decoder, 6)
    runs = {
        "interpreter": ([p.copy() for p in pools], weights, lambda *a: rl.interpret(module, *a)),
        "native": ([p.copy() for p in pools], packed, lambda name, *a: native[name](*a)),
        "gpu": ([p.copy() for p in pools], weights, gpu.simulate),
    }
    calls = (("extend", [1, 5, 3], 4), ("extend", [2, 1, 9], 4), ("step", [1, 1, 1], 1))
    for name, rows, tile in calls:
        given = arguments(rows, tile)
        results = {
            who: np.asarray(call(name, *given, *own, *values))
            for who, (own, values, call) in runs.items()
        }
        want = results.pop("interpreter")
        for who, got in results.items():
            assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max(), (name, who)


@pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-reference")
def test_against_left_padded_generation_by_transformers(tmp_path, rng):
    write_folder(tmp_path, rng)
    prompts = [some_ids(rng, n) for n in (1, 4, 18, 33)]
    prompts = [[i % 256 for i in p] for p in prompts]
    steps, task, target = 12, tmp_path / "task.json", tmp_path / "answers.npz"
    task.write_text(json.dumps({"prompts": prompts, "steps": steps}))
    script = Path(__file__).with_name("transformers_batch.py")
    subprocess.run([PYTHON, script, tmp_path, task, target], check=True)
    answers = np.load(target)
    batch = TextGenerator.load(tmp_path, pages=16, max_sequences=4)
    samplers = [Recorder(never=()) for _ in prompts]
    got = batch.generate_all(prompts, max_new_tokens=steps, samplers=samplers)
    for i, (request, sampler) in enumerate(zip(got, samplers, strict=True)):
        if {256, 257} & {*answers["ids"][i]}:  # what special tokens mean differs
            continue
        same_choices(request.ids, sampler.rows, answers["ids"][i].tolist(), answers["logits"][i])


def test_smollm2(smollm2, rng):
    batch = TextGenerator.load(smollm2.path, pages=32, max_context=256, max_sequences=3)
    alone = TextGenerator.load(smollm2.path, max_context=256)
    prompts = ["Why is the sky blue?", "Hi", rng.integers(3, 49000, 70).tolist()]
    samplers = [Recorder() for _ in prompts]
    answers = batch.generate_all(prompts, max_new_tokens=8, samplers=samplers)
    for request, sampler in zip(answers, samplers, strict=True):
        check(alone, request, sampler)
