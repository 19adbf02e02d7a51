"""The benchmark runs on the tiny model without peers, and computes what it says. No timings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import accuracy, bench_batch, bench_dynamic, bench_llm, bench_start, report
from benchmarks.peers.dynamic import LEARNED, MODELS
from benchmarks.process import Worker, WorkerFailed
from benchmarks.rows import ROWS, Row, Work, dequantised
from relaxlab.models import tiny
from relaxlab.models.gguf import GGUFTensor, read_gguf, write_gguf
from relaxlab.passes.pipeline import batched_pipeline

CORE = Path(sys.executable)


def test_a_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "result.json"
    names = ["relaxlab float32", "relaxlab, float32 weights"]
    arguments = ["--quick", "--model", "tiny", "--output", str(output), "--only", *names]
    assert bench_llm.main(arguments) == 0
    result = json.loads(output.read_text("utf-8"))
    shown = capsys.readouterr().out
    for name in names:
        assert name in shown
        found = result["peers"][name]
        assert not found["cold"]["from_cache"] and found["warm"]["from_cache"]
        assert found["peak_rss_mb"] >= found["warm"]["peak_rss_mb"] > 20
        assert len(found["turns"]) == 1
        for what in ("decode_tok_s", "prefill_tok_s"):
            assert report.speeds(result, name, what)[0] > 0
        for part in ("steps", "prompts"):
            assert found["accuracy"][part]["worst_error"] < 1e-4
        assert found["accuracy"]["greedy"]["clear_equal"] == found["accuracy"]["greedy"]["clear"]
    assert report.ratio(result, names[0], "decode_tok_s") is None  # nobody to compare with
    assert result["limits"]["rounds"][0]["relaxlab_large_pages_prefetch"] > 0


def test_a_quick_run_of_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "batch.json"
    names = ["relaxlab q8", "relaxlab q8, one by one"]
    arguments = ["--quick", "--model", "tiny", "--output", str(output), "--only", *names]
    assert bench_batch.main(arguments) == 0
    result, shown = json.loads(output.read_text("utf-8")), capsys.readouterr().out
    for name in names:
        assert name in shown
        turns = result["peers"][name]["turns"]
        assert set(turns) == {"1", "3"}
        assert all(t["decode_tok_s"] > 0 < t["prefill_tok_s"] for (t,) in turns.values())


def test_a_quick_run_of_networks_with_control_flow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "dynamic.json"
    names = ["relaxlab", "relaxlab, one by one"]
    arguments = ["--quick", "--hidden", "8", "--output", str(output), "--only", *names]
    assert bench_dynamic.main([*arguments, "--models", "bi_rnn"]) == 0
    result, shown = json.loads(output.read_text("utf-8")), capsys.readouterr().out
    (network,) = result["networks"]
    assert set(network["turns"]) == {*names}
    for name, turns in network["turns"].items():
        assert name in shown and set(turns) == {"1", "3"}
        assert all(turn["seconds"] > 0 for (turn,) in turns.values())
    assert network["turns"]["relaxlab"]["3"][0]["batches"] > 10


def test_a_benchmark_of_networks_that_is_stopped_keeps_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: dict[str, Any] = {"model": "bi_rnn", "hidden": 8, "turns": {}, "problems": ["one"]}

    def rounds(model: str, *_: object) -> Iterator[dict[str, Any]]:
        yield measured
        raise KeyboardInterrupt  # before the second round

    monkeypatch.setattr(bench_dynamic, "_rounds", rounds)
    monkeypatch.setattr(bench_dynamic, "_multiply_adds_per_s", lambda _: 1.0)
    output = tmp_path / "dynamic.json"
    arguments = ["--hidden", "8", "--output", str(output), "--models", "bi_rnn", "tree_lstm"]
    with pytest.raises(KeyboardInterrupt):
        bench_dynamic.main(arguments)
    result = json.loads(output.read_text("utf-8"))
    assert result["networks"] == [measured] and result["problems"] == ["one"]
    assert list(tmp_path.iterdir()) == [output]


def test_ablations_are_of_all_networks_by_all_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[tuple[str, tuple[str, ...]]] = []

    def rounds(model: str, _: int, settings: bench_dynamic.Settings, names: object) -> Any:
        run.append((model, settings.variants))
        yield {"model": model, "hidden": 8, "turns": {}, "problems": []}

    monkeypatch.setattr(bench_dynamic, "_rounds", rounds)
    monkeypatch.setattr(bench_dynamic, "_multiply_adds_per_s", lambda _: 1.0)
    arguments = ["--hidden", "8", "--output", str(tmp_path / "dynamic.json"), "--ablations"]
    assert bench_dynamic.main(arguments) == 0
    assert {model for model, _ in run} == set(MODELS)
    assert all(variants == tuple(bench_dynamic.VARIANTS) for _, variants in run)
    passes = {p.name for p in batched_pipeline().passes}
    assert {name.split(".")[0] for name in bench_dynamic.LEFT_OUT} <= passes


def test_variants_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, of_each_kind = tmp_path / "dynamic.json", ("without fuse_ops", "with batch_twins")
    few = {name: bench_dynamic.VARIANTS[name] for name in (*of_each_kind, f"by {LEARNED}")}
    monkeypatch.setattr(bench_dynamic, "VARIANTS", few)
    arguments = ["--hidden", "8", "--models", "drnn", "--ablations", "--quick"]
    assert bench_dynamic.main([*arguments, "--output", str(output)]) == 0
    (network,) = json.loads(output.read_text("utf-8"))["networks"]
    assert set(network["turns"]) == {"relaxlab", *few}


def test_a_quick_run_of_whole_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_start, "BENCH", tmp_path / "nowhere")
    output = tmp_path / "start.json"
    assert bench_start.main(["--quick", "--model", "tiny", "--output", str(output)]) == 0
    result, shown = json.loads(output.read_text("utf-8")), capsys.readouterr().out
    for name in ("relaxlab q8", "relaxlab float32"):
        assert name in shown
        (measured,) = result["processes"][name]["rounds"]
        assert measured["wall_s"] > 0 < measured["cpu_s"] and measured["peak_rss_mb"] > 20
    assert {"import relaxlab", "first prefill", "second prefill"} <= result["stages"].keys()


def test_a_missing_interpreter_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match="nowhere cannot be run: No such file"):
        Worker(tmp_path / "nowhere", "Relaxlab", {})


def test_errors_of_workers(tmp_path: Path) -> None:
    options = {"model": str(tmp_path / "absent.gguf"), "threads": 1}
    with pytest.raises(
        WorkerFailed, match=r"FileNotFoundError: there is no model '.*absent\.gguf'"
    ):
        Worker(CORE, "Relaxlab", options)


def test_a_failed_peer_is_reported() -> None:
    entry = bench_llm.Entry(ROWS[0])
    entry.fail(WorkerFailed("it broke\n    with details"))
    result = results({"mine": [1.0], "peer": [1.0]})
    result["peers"]["mine"] |= entry.result
    assert report.speeds(result, "mine", "decode_tok_s") == []
    assert report.ratio(result, "mine", "decode_tok_s") is None
    assert report.share_of_bandwidth(result, "mine") is None


def results(decode: dict[str, list[float]]) -> dict[str, object]:
    """A run in which `mine` and its peers decoded with those speeds."""
    return {
        "rows": {name: {"group": "file", "ours": name == "mine"} for name in decode},
        "peers": {
            name: {"turns": [{"decode_tok_s": s, "prefill_tok_s": [s, 9 * s, s]} for s in speeds]}
            for name, speeds in decode.items()
        },
        "limits": {"rounds": [{"c": 500.0, "relaxlab": 1000.0, "int8_dot": 4000.0}] * 3},
        "work": {"bytes_per_token": {"mine": 10}, "prefill_macs": 400},
        "settings": {"prompt": 4},
    }


def test_ratios_are_to_the_best_peer_of_each_round() -> None:
    result = results({"mine": [10.0, 20.0, 40.0], "a": [5.0, 1.0, 10.0], "b": [2.0, 4.0, 20.0]})
    found = report.ratio(result, "mine", "decode_tok_s")
    assert found is not None and found.median == 2.0  # of 10/5, 20/4, 40/20
    assert report.speeds(result, "mine", "prefill_tok_s") == [10.0, 20.0, 40.0]


def test_shares_of_the_limits() -> None:
    result = results({"mine": [10.0, 20.0, 40.0], "peer": [1.0, 1.0, 1.0]})
    assert report.share_of_bandwidth(result, "mine") == pytest.approx(20 * 10 / 1000)
    assert report.share_of_products(result, "mine") == pytest.approx(20 * (400 / 4) / 4000)


def test_comparing_logits() -> None:
    want = np.array([[4.0, 0.0, 0.0], [1.0, 0.9, 0.0], [0.0, 0.0, -8.0]], np.float32)
    same = accuracy.compare(want, want)
    assert same["worst_error"] == 0 and same["agreement"] == 1
    assert same["mean_divergence"] == pytest.approx(0, abs=1e-12)
    got = want.copy()
    got[1] = [0.9, 1.0, 0.0]  # the other token, but the lead was small
    got[2, 2] = -4.0
    found = accuracy.compare(got, want)
    assert found["worst_error"] == pytest.approx(0.5)
    assert found["median_error"] == pytest.approx(0.1, rel=1e-5)
    assert found["agreement"] == pytest.approx(2 / 3)
    assert found["clear_positions"] == 1 and found["clear_agreement"] == 1
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (want, got))
    assert found["mean_divergence"] == pytest.approx((p * np.log(p / q)).sum(-1).mean(), rel=1e-4)


def test_bytes_and_products_of_a_model(tmp_path: Path) -> None:
    gguf = read_gguf(tiny.path())
    work = Work.of(gguf)
    assert work.bytes_per_token(None) == sum(t.nbytes for t in gguf.tensors.values())
    copy = read_gguf(dequantised(tiny.path(), "BF16", tmp_path))
    assert work.bytes_per_token("BF16") == Work.of(copy).bytes_per_token(None)
    matrices = {n: t.shape[0] * t.shape[1] for n, t in gguf.tensors.items() if len(t.shape) == 2}
    head = matrices.pop("token_embd.weight")
    assert work.prefill_macs(5) == 5 * sum(matrices.values()) + head


def test_an_embedding_that_is_not_the_output_is_not_read(tmp_path: Path) -> None:
    gguf = read_gguf(tiny.path())
    embedding = gguf.tensor("token_embd.weight")
    head = GGUFTensor("output.weight", embedding.shape, embedding.format, embedding.raw)
    path = tmp_path / "untied.gguf"
    write_gguf(path, gguf.metadata, [*gguf.tensors.values(), head])
    tied, untied = Work.of(gguf), Work.of(read_gguf(path))
    assert untied.bytes_per_token(None) == tied.bytes_per_token(None)
    assert untied.prefill_macs(5) == tied.prefill_macs(5)


def test_dequantised_weights_keep_their_values(tmp_path: Path) -> None:
    gguf, copy = read_gguf(tiny.path()), read_gguf(dequantised(tiny.path(), "F32", tmp_path))
    for name, tensor in gguf.tensors.items():
        np.testing.assert_array_equal(copy.tensor(name).dequantise(), tensor.dequantise())


def test_rows_have_different_names() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    groups = {row.group for row in ROWS}
    assert all(any(r.ours for r in ROWS if r.group == g) for g in groups)
    assert all(isinstance(row, Row) and (row.ours or row.python != CORE) for row in ROWS)
