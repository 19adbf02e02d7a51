"""Tuning with worker processes: what runs, what fails, and what `compile` makes of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.cli import main
from relaxlab.cli.tune import state_text
from relaxlab.runtime.cache import compiler_version, machine_key
from relaxlab.schedule.compiled import decisions_of
from relaxlab.tuning.children import Request, TrialFailed
from relaxlab.tuning.database import Database, Record
from relaxlab.tuning.executor import LocalExecutor, local_executor
from relaxlab.tuning.kernels import Kernel, kernels_of
from relaxlab.tuning.plans import Proposal
from relaxlab.tuning.tune_kernel import Limits, State
from relaxlab.tuning.workshop import Built, Refused, Workers, measure_one
from tests.tuning.test_search import PRODUCT

HOST = rl.Target.host()
SCRIPT = """\
from relaxlab.script import relax as R

@R.function
def main(x: R.Tensor((4, 32), "float32")):
    return R.sum(x, axis=1)
"""


@pytest.fixture(scope="module")
def shop() -> Iterator[Workers]:
    with local_executor(1) as executor:
        yield Workers(executor, HOST, 1)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    (found,), _ = kernels_of(PRODUCT, HOST, {"n": [1, 7]})
    return found


def opened(shop: Workers, kernel: Kernel) -> Built:
    found = shop.open(kernel)
    assert isinstance(found, Built), found
    return found


def test_builds_are_told_apart_and_refused_with_reasons(shop: Workers, kernel: Kernel) -> None:
    default = opened(shop, kernel)
    (same,) = shop.build([Proposal({})], {default.digest})
    assert isinstance(same, Refused) and same.outcome == "same" and same.trace == default.trace
    unknown, no_candidate = shop.build(
        [Proposal({"no such": 1}), Proposal({"panel_vectors": 77})], ()
    )
    assert isinstance(unknown, Refused) and unknown.outcome == "invalid"
    assert unknown.reason == "no schedule asks for `no such`"
    assert isinstance(no_candidate, Refused) and no_candidate.outcome == "invalid"
    assert "77" in no_candidate.reason


def test_other_weights_layouts_compute_the_same(shop: Workers, kernel: Kernel) -> None:
    default = opened(shop, kernel)
    (other,) = shop.build([Proposal({"panel_vectors": 1})], {default.digest})
    assert isinstance(other, Built)
    found = measure_one(shop, default, other, [0, 1], 2)
    assert found.measured.rounds and len(found.seconds) == 2 and min(found.seconds) > 0
    again = rl.apply_trace(kernel.program["kernel"], other.trace)
    assert again.decisions["panel_vectors"].value == 1


def test_a_wrong_result_a_crash_and_a_hang_are_one_trial_each(
    shop: Workers, kernel: Kernel
) -> None:
    twice = rl.parse(
        PRODUCT.script().replace("R.matmul(x, w)", "R.multiply(R.matmul(x, w), R.const(2.0))")
    )
    (doubling,), _ = kernels_of(twice, HOST, {"n": [1, 7]})
    wrong = opened(shop, doubling)
    default = opened(shop, kernel)
    with pytest.raises(TrialFailed, match=r"wrong: element .* the result for n=7 is"):
        measure_one(shop, default, wrong, [1], 1)
    assert isinstance(shop._executor, LocalExecutor)
    child = shop._executor._child
    assert child._process is not None
    child._process.send_signal(signal.SIGSEGV)
    child._process.wait()
    with pytest.raises(TrialFailed, match="ended by SIGSEGV"):
        measure_one(shop, default, default, [0], 1)
    endless = {"do": "measure", "sizes": [0], "names": ["", ""], "rounds": 10**8}
    with pytest.raises(TrialFailed, match="no answer within 0.5 s"):
        child.ask(Request(endless, (default.code, default.code), 0.5, shop._opening))
    with pytest.raises(TrialFailed, match="ArtifactError"):
        measure_one(shop, default, replace(default, code=b"no program"), [0], 1)
    assert len(measure_one(shop, default, default, [0], 1).measured.rounds) == 1


def test_a_program_is_tuned_and_compiled(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    seen: list[State] = []
    found = rl.tune(
        PRODUCT, trials=2, shapes={"n": [1]}, database=path, threads=1, workers=1,
        report=seen.append,
    )  # fmt: skip
    assert repr(found).startswith("Tuning(") and "2 trials" in repr(found)
    assert replace(found, interrupted=True).table().endswith("`resume=True` goes on")
    (one,) = found.kernels
    assert "failed" not in one.note
    assert found["matmul"] is one and sum(one.trials.values()) == 2
    assert found.table().startswith("matmul: ") and "default: n=1: " in str(found)
    assert [s.trials for s in seen] == [0, 1, 2]
    trials = [r for r in found.database.records() if r.outcome not in ("accepted", "default")]
    assert len(trials) == 2
    with pytest.raises(KeyError, match="no kernel 'conv' was tuned; there are: matmul"):
        found["conv"]


def test_without_time_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workers, "open", None)
    found = rl.tune(PRODUCT, seconds=0, database=tmp_path / "tuning.db", workers=1)
    assert found.table().startswith("matmul: default; no time was left for it; 0 trials")


def test_compile_takes_what_was_accepted(tmp_path: Path, kernel: Kernel) -> None:
    database = Database(tmp_path / "tuning.db")
    accepted = Record(
        kernel.key, machine_key(HOST), 1, compiler_version(), "m", 1.0, "accepted", "",
        {"panel_vectors": 1}, kernel.sizes, (1.5, 1.4, 1.6), "[]",
    )  # fmt: skip
    database.add(accepted)
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("float32") for s in ((3, 64), (64, 64)))
    made = {}
    for threads in (1, 2):  # the record is of one thread
        exe = rl.compile(PRODUCT, tuned=database.path, threads=threads)
        np.testing.assert_allclose(exe["main"](x, w), x @ w, atol=1e-4)
        mod, pipeline = exe.compiled_from
        trace = rl.trace(mod, pipeline=pipeline)
        made[threads] = decisions_of(trace, "matmul")["panel_vectors"]
        assert ("tuned: 1 decision" in str(trace)) == (threads == 1)
    assert made[1] == 1 and made[2] != 1
    given = {"matmul": {"panel_vectors": 2}}
    exe = rl.compile(PRODUCT, tuned=database, threads=1, decisions=given, use_cache=False)
    assert decisions_of(rl.trace(PRODUCT, pipeline=exe.compiled_from[1]), "matmul")[
        "panel_vectors"
    ] == 2  # fmt: skip
    with pytest.raises(FileNotFoundError):
        rl.compile(PRODUCT, tuned=tmp_path / "none.db")
    with pytest.raises(ValueError, match="tuned decisions are for CPUs"):
        rl.compile(PRODUCT, "interpreter", tuned=database)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, database = tmp_path / "program.py", tmp_path / "a.db"
    script.write_text(SCRIPT)
    command = ["tune", str(script), "--trials", "1", "--database", str(database)]
    assert main([*command, "--workers", "1", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("sum: ") and "1 trial" in out and err == ""
    assert f"tuned={str(database)!r}" in out
    assert main([*command, "--shape", "n=x"]) == 2
    assert "such as n=1,16" in capsys.readouterr().err
    assert main([*command, "--search", "luck"]) == 2
    assert "it is one of: coordinate, random, evolution" in capsys.readouterr().err
    assert main([*command, "--shape", "m=1"]) == 2
    assert "no symbol `m`" in capsys.readouterr().err


def test_records_are_exported_and_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Record("k", "m", 2, "another compiler", "p", 1.0, "accepted", "", {}, (), None, "")
    mine, file, other = (tmp_path / name for name in ("a.db", "all.json", "b.db"))
    Database(mine).add(old, replace(old, target="another machine"))
    assert main(["tune", "--export", str(file), "--database", str(mine)]) == 0
    assert capsys.readouterr().out == f"2 records written to {file}\n"
    Database(other).add(replace(old, time=2.0))
    for _ in range(2):  # twice is as once
        assert main(["tune", "--import", str(file), "--database", str(other)]) == 0
        assert capsys.readouterr().out == f"2 records of {file} are in {other}\n"
        assert len(list(Database(other).records())) == 3


def test_what_cannot_be_exported_or_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def message_of(*options: str) -> str:
        assert main(["tune", *options]) == 2
        return capsys.readouterr().err

    none, file = tmp_path / "none.db", tmp_path / "no.json"
    assert "nothing to do without a script" in message_of()
    assert "no such database" in message_of("--export", str(file), "--database", str(none))
    assert not none.exists() and not file.exists()
    database = ("--database", str(tmp_path / "a.db"))
    assert "no.json: No such file" in message_of("--import", str(file), *database)
    file.write_text("{}\n")
    assert "no.json: a record has other fields" in message_of("--import", str(file), *database)
    file.write_text("no JSON")
    assert "no.json: not the records" in message_of("--import", str(file), *database)


def test_a_line_of_progress(kernel: Kernel) -> None:
    state = State(kernel, Limits(64), 3, 1.25, 2.0)
    assert state_text(state) == "matmul (n=1; n=7): best 1.25x, 3 of 64 trials, 2.0 per second"


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="for the CPU of this machine"):
        rl.tune(PRODUCT, "cuda")
    with pytest.raises(ValueError, match="it is one of: coordinate, random"):
        rl.tune(PRODUCT, search="grid")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1 trial, not 0"):
        rl.tune(PRODUCT, trials=0)
