"""The accounting of memory: pools, plans, and the figures that are compared."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import bench_memory, models
from benchmarks.pools import MB, BestFitPool, BucketPool, Use, peak, replay
from relaxlab.models.config import Rope

SMALL = replace(
    models.LLAMA3_8B, hidden_size=64, num_heads=4, num_kv_heads=2, head_dim=16, ffn_size=96,
    vocab_size=50, num_layers=2, rope=Rope(1e4, 16),
)  # fmt: skip


def test_buckets_serve_their_own_size_only() -> None:
    pool = BucketPool()
    replay(pool, [Use(0, 1, 5000), Use(1, 2, 8192), Use(2, 3, 8000)])
    assert pool.reserved == 2 * 8192  # the third takes the block of the first
    replay(pool, [Use(0, 1, 4096)])
    assert pool.reserved == 2 * 8192 + 4096


def test_best_fit_splits_and_merges() -> None:
    pool = BestFitPool()
    a, b = pool.allocate(12 * MB), pool.allocate(30 * MB)
    assert pool.reserved == 42 * MB
    pool.free(b)
    c, d = pool.allocate(20 * MB), pool.allocate(10 * MB)
    assert pool.reserved == 42 * MB and (c, d) == (b, b + 20 * MB)
    pool.free(c)
    pool.free(d)
    assert pool.allocate(30 * MB) == b  # its parts have become one again
    pool.free(a)
    assert pool.allocate(11 * MB + MB // 2) == a  # whole: a rest of half a MB is not split off
    pool.allocate(MB // 4)
    assert pool.reserved == 44 * MB  # small tensors have segments of their own


def test_pools_never_give_out_what_is_in_use() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    pool, held = BestFitPool(), dict[int, int]()
    for _ in range(600):
        if held and rng.random() < 0.45:
            start = rng.choice(list(held))
            del held[start]
            pool.free(start)
        else:
            size = rng.choice((1, 700, 3 << 18, 5 << 20, 37 << 20)) + rng.randrange(4096)
            start = pool.allocate(size)
            assert all(start + size <= s or s + n <= start for s, n in held.items())
            held[start] = size
    assert pool.reserved >= sum(held.values())


def test_replaying_frees_after_the_last_use() -> None:
    uses = [Use(0, 1, 4096), Use(1, 2, 4096), Use(2, 3, 4096), Use(3, 3, 4096)]
    pool = BucketPool()
    replay(pool, uses)
    assert pool.reserved == peak(uses) == 2 * 4096


@pytest.mark.parametrize(("symbol", "batch"), [("s", 1), ("b", "b")])
def test_plans_take_no_more_than_pools(symbol: str, batch: int | str) -> None:
    function = "prefill" if symbol == "s" else "decode"
    module = models.decoder(SMALL, (function,), batch, {symbol: 100, "p": 64})
    expanded = bench_memory.cpu_pipeline().run(module).find("plan_memory").before
    found = bench_memory.account(expanded, function, symbol, (10, 100), 2)
    assert found["peak"] <= found["planned"] <= 1.25 * found["peak"]
    assert found["symbolic"] <= 1.1 * found["planned"]
    assert found["pools"]["size buckets"] > found["planned"]


def test_a_quick_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_memory, "LLAMA3_8B", SMALL)
    output = tmp_path / "memory.json"
    assert bench_memory.main(["--quick", "--output", str(output)]) == 0
    result = json.loads(output.read_text("utf-8"))
    assert [w["name"] for w in result["workloads"]] == ["prefills", "decode batches"]
    assert "decode batches b = 1, 16, 32, 64" in capsys.readouterr().out
    if shutil.which("cc"):
        assert result["allocations"]["all"] >= result["allocations"]["calls"] > 0
