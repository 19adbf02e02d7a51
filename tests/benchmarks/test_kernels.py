"""The benchmarks of kernels run at tiny sizes without peers, and compute what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import bench_attention, bench_chains, bench_gemm, bench_ragged
from benchmarks.kernels import chart, matrices, program, race, table
from benchmarks.kernels.cases import KINDS, Case, error_of, inputs
from benchmarks.kernels.lengths import lengths_of
from benchmarks.limits import CLimits
from benchmarks.peers.kernels.relaxlab import FUNCTIONS

TINY: list[tuple[Any, dict[str, Any]]] = [
    (bench_gemm, {"LENGTHS": (1, 3), "WIDTH": 16}),
    (bench_chains, {"IN_CACHE": 5, "BEYOND": 7, "WIDTH": 24}),
    (bench_attention, {"LENGTHS": (1, 17), "LONG": (33,)}),
    (bench_ragged, {"DATA": ("CoLA",), "PARTS_DATA": (), "BATCHES": (32,), "WHOLE": ("encoder",)}
     | {"PRODUCTS": (), "TRIANGLES": (17,)}),
]


@pytest.mark.parametrize(("module", "sizes"), TINY, ids=[m.__name__ for m, _ in TINY])
def test_a_run_without_peers(
    module: Any,
    sizes: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in sizes.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(race, "PAUSE_S", 0.01)
    monkeypatch.setattr(race, "PEAKS", 2)
    quick = race.Settings(1, 2, 0.001, fresh=False)
    monkeypatch.setattr(program, "Settings", lambda threads: quick)
    output = tmp_path / "new" / "result.json"
    assert module.main(["--only", "relaxlab", "--output", str(output)]) == 0
    result = json.loads(output.read_text("utf-8"))
    shown = capsys.readouterr().out
    assert len(result["cases"]) >= 2
    for case in result["cases"]:
        assert case["name"] in shown
        found = case["peers"]["relaxlab"]
        assert len(found["seconds"]) == 2 and found["error"] < 1e-5
        assert table.ratio(result, case, "relaxlab") is None  # nobody to compare with
    if module is bench_ragged:  # written case by case, too
        lines = output.with_suffix(".jsonl").read_text("utf-8").splitlines()
        seconds = [case["peers"]["relaxlab"]["seconds"] for case in map(json.loads, lines)]
        assert seconds == [case["peers"]["relaxlab"]["seconds"] for case in result["cases"]]


def test_no_group_begins_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_: race.Race, group: list[Case]) -> list[dict[str, Any]]:
        return [{"name": case.name} for case in group]

    ticks = iter([0.0, 1.0, 5.0, 9.0])  # the start, two groups, the end
    monkeypatch.setattr(race, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(race.Race, "measure", measure)
    groups = [[Case("gemm", {"m": 1, "n": n, "k": 1})] for n in (1, 2)]
    log = race.Log(tmp_path / "lines.jsonl", until=3.0)
    result = race.run([], groups, race.Settings(1), log)
    assert [case["name"] for case in result["cases"]] == [groups[0][0].name]
    assert result["left_out"] == [groups[1][0].name]
    (line,) = (tmp_path / "lines.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line) == {"name": groups[0][0].name, "threads": 1}


@pytest.mark.parametrize("kind", sorted(FUNCTIONS))
def test_every_kind_agrees_with_its_reference(kind: str) -> None:
    from benchmarks.peers.kernels.relaxlab import RelaxlabKernels

    sizes = {"m": 3, "n": 6, "k": 5, "d": 7, "r": 2, "s": 4, "kv": 3}
    planned = KINDS[kind].result(sizes) != ()
    case = Case(kind, sizes, planned=planned)
    run, fetch = RelaxlabKernels(1).make(case, inputs(case))
    run()
    got = fetch()
    assert error_of(case, got) < 1e-5
    got.flat[-1] += 1
    assert error_of(case, got) > 1e-3


@pytest.mark.parametrize("what", ["scores", "softmax", "mix", "layer norm"])
def test_parts_of_a_layer_agree_with_their_references(what: str) -> None:
    from benchmarks.peers.kernels.ragged import RelaxlabRagged

    case = bench_ragged._case(what, "CoLA", 32)
    run, fetch = RelaxlabRagged(1).make(case, inputs(case))
    run()
    got = fetch()
    assert error_of(case, got) < 1e-5
    got.flat[0] += 9  # the first sequence is among those that are compared
    assert error_of(case, got) > 1e-3


def test_products_of_different_sizes_agree_with_their_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchmarks.peers.kernels.ragged import RelaxlabMatrices

    for name, value in {"STEP": 8, "LEAST": 8, "MOST": 40}.items():
        monkeypatch.setattr(matrices, name, value)
    sizes, kind = matrices.sizes_of(3), matrices._products(3)
    rng = np.random.default_rng(0)
    arrays = [rng.random(shape, dtype="float32") for shape in kind.shapes({})]
    run, fetch = RelaxlabMatrices(1)._products(sizes, arrays)
    run()
    assert kind.sample is not None
    np.testing.assert_allclose(kind.sample(fetch()), kind.reference(*arrays), rtol=1e-5)


def test_the_prelude_and_the_memory_of_a_layer_are_compared_with_what_is_needed() -> None:
    seconds = {"encoder": 2.0, "key ranges": 0.01}
    cases: list[dict[str, Any]] = [
        {"kind": f"{what}, CoLA x 32", "name": what, "threads": 2,
         "peers": {"relaxlab": {"seconds": [s], "arena_bytes": 10240 * 500}}}
        for what, s in seconds.items()
    ]  # fmt: skip
    result = {"cases": cases, "ours": ["relaxlab"]}
    assert list(bench_ragged.prelude_shares(result)) == [("CoLA x 32, 2 threads", 0.005)]
    ((name, used, needed, padded),) = bench_ragged.memory(result)
    rows = lengths_of("CoLA", 32)
    assert (name, used) == ("encoder", 5120000)
    assert needed == 10240 * rows.sum() and padded == 10240 * 32 * rows.max()


def test_a_constant_argument_is_packed_once() -> None:
    from benchmarks.peers.kernels.relaxlab import RelaxlabKernels, script

    kernels = RelaxlabKernels(1)
    cases = [Case("gemm", {"m": m, "n": 16, "k": 8}, constant=True) for m in (3, 5)]
    assert "'num_input': 1" in script(cases[0])
    made = [kernels.make(case, inputs(case)) for case in cases]
    (program,) = kernels._programs.values()
    assert len(program["main"].bound) == 1  # no call is given weights, which it would pack
    for case, (run, fetch) in zip(cases, made, strict=True):
        run()
        assert error_of(case, fetch()) < 1e-5


def test_a_program_that_serves_all_sizes() -> None:
    from benchmarks.peers.kernels.relaxlab import script

    texts = {script(Case("gemm", {"m": m, "n": 4, "k": 4})) for m in (1, 2, 3)}
    assert len(texts) == 1


def test_rows_are_sampled() -> None:
    case = Case("row sum", {"n": 1000, "d": 3}, limit="read")
    (x,) = inputs(case)
    want = x.astype(np.float64).sum(-1)
    assert error_of(case, want) < 1e-12
    want[-1] += 1
    assert error_of(case, want) > 0.01  # the last row is always among them


def test_the_work_of_a_case() -> None:
    assert Case("gemm", {"m": 2, "n": 3, "k": 5}).work == 60
    assert Case("softmax", {"n": 4, "d": 8}, limit="copy").work == 2 * 4 * 8 * 4
    assert Case("row sum", {"n": 4, "d": 8}, limit="read").work == (4 * 8 + 4) * 4
    # two products for the 1 + 2 + 3 pairs that a causal mask leaves, multiply and add
    assert Case("attention", {"s": 3}).work == 2 * 2 * 6 * 9 * 64


def test_large_inputs_are_random_and_the_same_everywhere() -> None:
    case = Case("softmax", {"n": 5000, "d": 300}, limit="copy")
    (x,), (y,) = inputs(case), inputs(case)
    assert x.shape == (5000, 300) and x.dtype == np.float32
    np.testing.assert_array_equal(x, y)
    assert abs(float(x.mean())) < 0.01 and abs(float(x.std()) - 1) < 0.01


def result_of(seconds: dict[str, list[float]], limits: list[float]) -> dict[str, Any]:
    case = Case("gemm", {"m": 1, "n": 10, "k": 10}).request() | {"name": "the case", "work": 200.0}
    found = {name: {"seconds": s, "compile_s": 1.0} for name, s in seconds.items()}
    return {
        "cases": [case | {"limits": limits, "peers": found}],
        "ours": ["relaxlab"],
        "peers": {name: {"version": "1"} for name in seconds},
        "busy_cores": [0.0],
        "settings": {"threads": 2, "rounds": 3, "seconds": 1, "seconds_in_all": 1.0},
        "machine": {"cpu": "", "cores": 2, "memory_gb": 1, "system": "", "date": "", "commit": ""},
    }


def test_ratios_are_to_the_best_peer_of_each_round() -> None:
    times = {"relaxlab": [1.0, 2.0, 4.0], "a": [2.0, 9.0, 9.0], "b": [9.0, 2.0, 1.0]}
    result = result_of(times, [400.0, 400.0, 400.0])
    (case,) = result["cases"]
    found = table.ratio(result, case, "relaxlab")
    assert found is not None and found.median == 1.0  # of 2/1, 2/2, 1/4
    assert table.best_peer(result, case) == "b"
    assert table.share(case, "relaxlab") == pytest.approx(0.25)  # 200/2 of 400

    def everything(case: Any) -> bool:
        return True

    def nothing(case: Any) -> bool:
        return False

    aims: list[tuple[Callable[..., Any], float, bool]] = [
        (table.aim_of_ratio, 1.0, True),
        (table.aim_of_ratio, 1.1, False),
        (table.aim_of_share, 0.25, True),
        (table.aim_of_share, 0.3, False),
    ]
    for aim, least, met in aims:
        assert [m for _, _, m in aim(result, "text", least, everything)] == [met]
        assert list(aim(result, "text", least, nothing)) == []
    shown = table.render(result, table.aim_of_ratio(result, "text", 1.1, everything))
    assert "MISSED" in shown and "1.00 (0.62–1.50)x" in shown


def test_the_peak_of_registers() -> None:
    (case,) = result_of({"relaxlab": [1.0, 1.0, 1.0]}, [100.0, 400.0, 200.0])["cases"]
    assert table.share(case, "relaxlab") == 0.5
    assert table.share(case | {"limit": "copy"}, "relaxlab") == 1.0


def test_peers_alone_have_a_table_and_a_chart(tmp_path: Path) -> None:
    result = result_of({"a": [1.0, 2.0], "b": [2.0, 3.0]}, [1.0]) | {"ours": []}
    assert "the case" in table.render(result)
    if chart.draw(result, "a title", tmp_path / "chart.json") is not None:
        assert "relative to a in" in (tmp_path / "chart.svg").read_text("utf-8")


def test_without_a_limit_there_is_no_share() -> None:
    (case,) = result_of({"relaxlab": [1.0]}, [])["cases"]
    assert table.share(case, "relaxlab") is None


def test_a_peer_that_cannot_start_takes_no_part(tmp_path: Path) -> None:
    class Absent(race.Row):
        @property
        def python(self) -> Path:
            return tmp_path / "nowhere"

    with ExitStack() as stack:
        found = race.Race([Absent("x", "JAXKernels")], race.Settings(), tmp_path, stack)
        assert found.measure([]) == []
        assert "cannot be run" in found.about["x"]["error"]


def test_a_wrong_result_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "error_of", lambda case, got: 0.5)
    with (
        ExitStack() as stack,
        pytest.raises(RuntimeError, match=r"relaxlab: gemm m=1 n=4 k=4 is wrong by 5\.0e-01"),
    ):
        runners = race.Race([race.RELAXLAB], race.Settings(1), tmp_path, stack)
        runners.measure([Case("gemm", {"m": 1, "n": 4, "k": 4})])


def test_the_chart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = result_of({"relaxlab": [1.0, 2.0], "peer": [2.0, 3.0]}, [1.0])
    file = chart.draw(result, "a title", tmp_path / "chart.json")
    assert file is not None and file == tmp_path / "chart.svg"
    text = file.read_text("utf-8")
    assert "<svg" in text and "a title" in text


def test_limits_in_c(tmp_path: Path) -> None:
    limits = CLimits(2, tmp_path)
    if not limits.about["c_compiler"]:
        pytest.skip("no C compiler")
    found = limits.measure(("read", "copy", "fma"), 1 << 20, 2)
    copies = {"copy_memcpy", "copy_plain", "copy_stream", "copy_string"}
    assert {"c_large_pages", "c_large_pages_prefetch_l1", "fma", *copies} <= set(found)
    assert all(value > 1e6 for value in found.values())
