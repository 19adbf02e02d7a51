"""Tuning on a cluster of processes: workers that end, hang, lie, or are of another kind."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import relaxlab as rl
from relaxlab.cli import main
from relaxlab.tuning import cluster as cluster_module
from relaxlab.tuning import workshop as workshop_module
from relaxlab.tuning.children import Child, Request, TrialFailed
from relaxlab.tuning.cluster import MEASURE, SILENT_SECONDS, Cluster, cluster_executor, targets_of
from relaxlab.tuning.database import Database
from relaxlab.tuning.executor import Reply
from relaxlab.tuning.kernels import TuneError, kernels_of
from relaxlab.tuning.measured import measured_of
from relaxlab.tuning.workshop import Built, Workers, measure_one
from tests.tuning.test_search import PRODUCT
from tests.tuning.test_tune import SCRIPT

distributed = pytest.importorskip("distributed")
HOST = rl.Target.host()


@pytest.fixture(autouse=True, scope="module")
def environment():
    """Dask's clusters set OMP_NUM_THREADS to 1 for good, with which later tests, such as notebooks
    that measure, would run on one thread."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The scheduler of three machines, as it were, each with one process that also measures."""
    # A process that is killed is started again, however long that takes on a busy machine.
    patience = import_module("dask").config.set({"distributed.deploy.lost-worker-timeout": "600s"})
    with patience, distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None,
        resources={MEASURE: 1}, silence_logs=50,
    ) as made:  # fmt: skip
        yield made.scheduler_address


def processes_of(client: Any) -> dict[str, int]:
    """The process of each worker, of which one may have to start again."""
    client.wait_for_workers(3, timeout=120)
    return client.run(os.getpid)


def phase_of(request: Request) -> object:
    return request.message.get("rounds", request.message["do"])


def test_no_trial_is_lost_or_counted_twice_with_workers_that_are_killed(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker is killed with a build, the opening, a measurement and a confirmation."""
    killed: list[object] = []
    hand_out = Cluster._hand_out

    def killing(
        self: Cluster, waiting: deque[Any], running: dict[Any, Any], measures: bool
    ) -> None:
        hand_out(self, waiting, running, measures)
        for job, worker in running.values():
            if phase_of(job.request) not in killed:
                killed.append(phase_of(job.request))
                os.kill(processes_of(self._client)[worker.address], signal.SIGKILL)
                return

    # Each candidate seems to be twice as fast, so that there is something to be confirmed.
    twice = lambda ratios: measured_of([[2 * r for r in at] for at in ratios])  # noqa: E731
    monkeypatch.setattr(workshop_module, "measured_of", twice)
    monkeypatch.setattr(Cluster, "_hand_out", killing)
    found = rl.tune(
        PRODUCT, trials=4, shapes={"n": [1]}, database=tmp_path / "a.db", threads=1,
        scheduler=address,
    )  # fmt: skip
    assert killed == ["build", 1, 15, 31]
    (kernel,) = found.kernels
    assert sum(kernel.trials.values()) == 4 and "failed" not in kernel.trials
    assert kernel.note == "confirmed" and kernel.point
    records = list(found.database.records())
    outcomes = Counter(r.outcome for r in records)
    assert outcomes.pop("accepted") == 1 and outcomes.total() == 4
    points = [repr(r.point) for r in records if r.outcome != "accepted"]
    assert len(set(points)) == 4


@pytest.fixture(params=[SILENT_SECONDS])
def shop(address: str, request: pytest.FixtureRequest) -> Iterator[tuple[Workers, Built, Cluster]]:
    """With all three machines; the parameter is the time after which one is taken to hang."""
    (kernel,), _ = kernels_of(PRODUCT, HOST, {"n": [1]})
    with cluster_executor(address, HOST, request.param) as executor:
        processes_of(executor._client)
        while len(executor._await(measures=True)) < 3:
            time.sleep(0.1)
        workers = Workers(executor, HOST, 1)
        default = workers.open(kernel)
        assert isinstance(default, Built), default
        yield workers, default, executor


@pytest.mark.parametrize("shop", [4.0], indirect=True)
def test_what_a_worker_that_hangs_was_asked_goes_to_another(
    shop: tuple[Workers, Built, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, default, executor = shop
    pids = processes_of(executor._client)
    stopped: list[str] = []
    hand_out = Cluster._hand_out

    def stopping(
        self: Cluster, waiting: deque[Any], running: dict[Any, Any], measures: bool
    ) -> None:
        hand_out(self, waiting, running, measures)
        if not stopped:
            stopped.append(next(worker.address for _, worker in running.values()))
            os.kill(pids[stopped[0]], signal.SIGSTOP)

    monkeypatch.setattr(Cluster, "_hand_out", stopping)
    try:
        found = dict(workers.measure(default, [(default, [0])] * 3, 3))
        assert sorted(found) == [0, 1, 2]
        assert not any(isinstance(one, TrialFailed) for one in found.values())
        assert stopped[0] not in {w.address for w in executor._usable(True)}
    finally:
        os.kill(pids[stopped[0]], signal.SIGCONT)
    deadline = time.monotonic() + 60
    while stopped[0] not in {w.address for w in executor._await(True)}:  # it is back
        assert time.monotonic() < deadline


def plant(ratio: float | None) -> None:
    """Have the worker in which it is called report this ratio whatever it measures, 0 for a
    failure, and None for what it measures."""

    def planted(child: Child, request: Request) -> Reply:
        message, blobs = child.ask(request)
        if not ratio:
            return TrialFailed("wrong: so it says")
        # As many as were asked for: a true measurement may have stopped early, and from too few
        # samples nothing is concluded, true or not.
        rounds = range(request.message["rounds"])
        message["ratios"] = [[ratio * (1 + 1e-3 * i) for i in rounds] for _ in message["ratios"]]
        return message, blobs

    cluster_module.reply_of = measured if ratio is None else planted


measured = cluster_module.reply_of


@pytest.mark.parametrize("ratio", [3.0, 0.0])
def test_a_worker_that_lies_is_found_out(
    shop: tuple[Workers, Built, Cluster], ratio: float
) -> None:
    workers, default, executor = shop
    liar, *others = processes_of(executor._client)
    executor._client.run(plant, ratio, workers=[liar])
    executor._client.run(plant, 1.0, workers=others)
    try:
        while liar not in executor.dropped:
            for _, timed in workers.measure(default, [(default, [0])] * 3, 15):
                assert not isinstance(timed, TrialFailed)
                assert timed.measured.ratio == pytest.approx(1, rel=0.1)
        assert "contradicted it 3 times" in executor.dropped[liar]
        assert measure_one(workers, default, default, [0], 3).measured.ratio < 2
    finally:
        executor._client.run(plant, None)


def test_machines_are_told_apart_by_their_cpu(address: str) -> None:
    assert targets_of(address) == {HOST: 3}
    other = replace(HOST, cpu="another")
    with (
        cluster_executor(address, other) as executor,
        pytest.raises(TuneError, match=r"no worker of the cluster can measure; .*measure=1`") as e,
    ):
        Workers(executor, other, 1)
    assert str(e.value).count(f"another CPU: {HOST.cpu}, not another") == 3


def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 0.5)
    with pytest.raises(TuneError, match="no scheduler answers at 'tcp://127.0.0.1:9'"):
        rl.tune(PRODUCT, scheduler="tcp://127.0.0.1:9", database=tmp_path / "a.db")
    monkeypatch.setattr("distributed.Client", None)
    with pytest.raises(TuneError, match="no scheduler answers at 'host': missing port number"):
        rl.tune(PRODUCT, scheduler="host", database=tmp_path / "a.db")
    with pytest.raises(ValueError, match="kernels are tuned for CPUs"):
        rl.tune(PRODUCT, "cuda:sm_90", scheduler="tcp://127.0.0.1:9")


def test_the_command_takes_a_scheduler(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, database = tmp_path / "program.py", tmp_path / "a.db"
    script.write_text(SCRIPT)
    command = ["tune", str(script), "--trials", "1", "--database", str(database)]
    assert main([*command, "--threads", "1", "--scheduler", address]) == 0
    assert capsys.readouterr().out.startswith("sum: ")
    assert len(list(Database(database).records())) >= 1
