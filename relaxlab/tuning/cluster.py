"""Tuning by the workers of a Dask scheduler (`dask.distributed`).

All workers build. Those that were started with the resource `measure` measure, too, one program at
a time, whoever asks: `dask worker tcp://… --nthreads 1 --resources measure=1`, once on each
machine. Of these, the ones with the CPU that is tuned for are used. This process alone keeps
records, one for each request; workers keep nothing, so that they may end at any moment.
"""

from __future__ import annotations

import platform
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from relaxlab.ir.errors import UserError
from relaxlab.ir.target import Target
from relaxlab.runtime.cache import compiler_version
from relaxlab.tuning.children import Child, Request, TrialFailed
from relaxlab.tuning.executor import Reply, reply_of
from relaxlab.tuning.kernels import TuneError
from relaxlab.tuning.witnesses import STRIKES, Report, verdict_of

MEASURE = "measure"
"""The resource of Dask's workers that measure."""
CONNECT_SECONDS = 30.0
"""Within which a scheduler answers."""
PATIENCE_SECONDS = 600.0
"""Within which there is a worker that can be used; machines of a cluster may have to start."""
SILENT_SECONDS = 60.0
"""A worker without a sign of life for so long is taken to hang. A busy one gives several."""
LOSSES = 3
"""Workers that may end or hang with a request before it has failed: it is to blame."""
TICK = 0.5
"""Seconds after which workers are looked at again."""


class DaskNotFound(UserError, ImportError):
    """Dask, whose workers are to be used, is not installed."""


@dataclass(frozen=True, slots=True)
class Description:
    """A worker's own account of itself. system: with the version of Python."""

    version: str
    target: Target
    system: str


def describe() -> Description:
    """The description of the worker in which it is called."""
    system = f"{platform.system()}, Python {platform.python_version()}"
    return Description(compiler_version(), Target.host(), system)


_local = threading.local()


def answer(request: Request) -> Reply:
    """The reply to a request, of a process that belongs to the worker's thread: one for builds, and
    one for measurements, which keeps to some of the cores. TrialFailed is returned, since Dask
    reports what is raised as a failure of its own."""
    name = "build" if request.opening is None else "bench"
    if not hasattr(_local, name):
        setattr(_local, name, Child())
    return reply_of(getattr(_local, name), request)


@dataclass(slots=True)
class _Worker:
    """A worker as this process sees it. description: what it said it is, or the reason why it could
    not; None as long as it has not, and then `described` is the future of it. seen: when its last
    sign of life, `beat`, came; running: requests that it was given."""

    address: str
    threads: int
    measures: bool
    described: Any
    description: Description | str | None = None
    beat: float = 0.0
    seen: float = field(default_factory=time.monotonic)
    running: int = 0


@dataclass(slots=True)
class _Job:
    """A request that is to be answered. lost: the workers that ended or hung with it; reports: of
    machines that measured."""

    number: int
    request: Request
    lost: int = 0
    reports: list[Report] = field(default_factory=list[Report])


def _is_for(job: _Job, worker: _Worker, usable: Sequence[_Worker]) -> bool:
    """True if a worker may have a job: it has not reported on it, unless all have."""
    asked = {report.machine for report in job.reports}
    return worker.address not in asked or all(w.address in asked for w in usable)


class Cluster:
    """An executor of a Dask scheduler's workers.

    A request that is lost with its worker goes to another. Where a worker's replies are given up
    because it hangs, it is not used again until it answers.
    """

    def __init__(self, client: Any, target: Target, silent: float = SILENT_SECONDS) -> None:
        """client: a `distributed.Client`; silent: see `SILENT_SECONDS`."""
        self._client, self._target, self._silent = client, target, silent
        self._workers: dict[str, _Worker] = {}
        self._strikes: Counter[str] = Counter()
        self.dropped: dict[str, str] = {}

    @property
    def builders(self) -> int:
        """See `Executor`. Raises TuneError where no worker can build, or none can measure."""
        self._await(measures=True)
        return sum(w.threads for w in self._await(measures=False))

    def build(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Executor`."""
        for job, _, reply in self._replies(deque(map(_Job, range(len(requests)), requests)), False):
            yield job.number, reply

    def measure(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Executor`. What would change the search is asked of a second machine, if there is
        one."""
        waiting = deque(map(_Job, range(len(requests)), requests))
        for job, worker, reply in self._replies(waiting, True):
            if worker is None:  # it was lost too often
                yield job.number, reply
                continue
            job.reports.append(Report(worker.address, reply))
            asked = {r.machine for r in job.reports}
            others = [w for w in self._usable(measures=True) if w.address not in asked]
            verdict = verdict_of(job.reports, len(others))
            if verdict is None:
                waiting.append(job)
                continue
            if verdict.alone is not None:
                self._strikes[verdict.alone] += 1
            yield job.number, verdict.reply

    def _replies(
        self, waiting: deque[_Job], measures: bool
    ) -> Iterator[tuple[_Job, _Worker | None, Reply]]:
        """Yield jobs with the worker that answered, None where all were lost. Jobs may be added to
        those that wait at any time."""
        running: dict[Any, tuple[_Job, _Worker]] = {}
        try:
            while waiting or running:
                self._refresh()
                self._hand_out(waiting, running, measures)
                if not running:
                    self._await(measures)
                    continue
                self._wait(list(running))
                for future, (job, worker) in list(running.items()):
                    reply = self._result(future)
                    going = reply is None and future.status in ("pending", "finished")
                    if going and not self._is_lost(worker):
                        continue
                    del running[future]
                    worker.running -= 1
                    if reply is not None:
                        yield job, worker, reply
                        continue
                    with suppress(Exception):  # the worker is not there any more
                        future.cancel()
                    job.lost += 1
                    if job.lost < LOSSES:
                        waiting.appendleft(job)
                    else:
                        yield job, None, TrialFailed(f"{LOSSES} workers were lost with it")
        finally:
            for future, (_, worker) in running.items():
                worker.running -= 1
                with suppress(Exception):  # the scheduler or the worker may be gone
                    future.cancel()

    def _hand_out(
        self, waiting: deque[_Job], running: dict[Any, tuple[_Job, _Worker]], measures: bool
    ) -> None:
        """Give jobs that wait to workers that are idle."""
        usable = self._usable(measures)
        for worker in usable:
            limit = 1 if measures else worker.threads
            while worker.running < limit:
                job = next((j for j in waiting if _is_for(j, worker, usable)), None)
                if job is None:
                    break
                waiting.remove(job)
                worker.running += 1
                options: dict[str, Any] = {"resources": {MEASURE: 1}} if measures else {}
                future = self._client.submit(
                    answer, job.request, workers=[worker.address], allow_other_workers=False,
                    pure=False, **options,
                )  # fmt: skip
                running[future] = job, worker

    def _wait(self, futures: list[Any]) -> None:
        """Wait until one of the futures ends, at most for a tick."""
        distributed = import_module("distributed")
        with suppress(TimeoutError, distributed.CancelledError), self._client.as_current():
            distributed.wait(futures, TICK, "FIRST_COMPLETED")

    def _result(self, future: Any) -> Any:
        """The result of a future; None if it is not here, or not yet: it may be lost with its
        worker."""
        if future.status == "finished":
            with suppress(TimeoutError, import_module("distributed").CancelledError):
                return future.result(timeout=TICK)
        return None

    def _refresh(self) -> None:
        """Learn which workers there are, and of their signs of life. Raises TuneError where the
        scheduler is gone."""
        try:
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, ValueError) as error:
            raise TuneError(
                f"the scheduler is gone ({error}); what was measured is kept: go on with resume"
            ) from None
        for address in self._workers.keys() - found.keys():
            del self._workers[address]
        for address, facts in found.items():
            worker = self._workers.get(address)
            if worker is None:
                described = self._client.submit(
                    describe, workers=[address], allow_other_workers=False, pure=False
                )
                measures = facts["resources"].get(MEASURE, 0) >= 1
                worker = _Worker(address, facts["nthreads"], measures, described)
                self._workers[address] = worker
            if facts["last_seen"] != worker.beat:
                worker.beat, worker.seen = facts["last_seen"], time.monotonic()
            if worker.description is None and worker.described.done():
                failed = worker.described.status == "error"
                reason = (
                    f"it does not run relaxlab: {worker.described.exception()}" if failed else None
                )
                worker.description = reason or self._result(worker.described)

    def _is_lost(self, worker: _Worker) -> bool:
        silent = time.monotonic() - worker.seen > self._silent
        return silent or self._workers.get(worker.address) is not worker

    def _usable(self, measures: bool) -> list[_Worker]:
        """The workers that may be given requests."""
        return [
            w for w in self._workers.values()
            if (w.measures or not measures) and w.description is not None and not self._is_lost(w)
            and self._fault(w, measures) is None
        ]  # fmt: skip

    def _fault(self, worker: _Worker, measures: bool) -> str | None:
        """The reason why a worker that has described itself cannot be used, None if it can."""
        fault = self._fault_of(worker, measures)
        if fault is not None:
            self.dropped[worker.address] = fault
        return fault

    def _fault_of(self, worker: _Worker, measures: bool) -> str | None:
        found = worker.description
        if not isinstance(found, Description):
            return found
        if found.version != compiler_version():
            return f"it has another relaxlab, LLVM or NumPy ({found.system})"
        if measures and found.target != self._target:
            return f"it measures for another CPU: {found.target.cpu}, not {self._target.cpu}"
        if self._strikes[worker.address] >= STRIKES:
            return f"other machines contradicted it {STRIKES} times"
        return None

    def _await(self, measures: bool) -> list[_Worker]:
        """The workers that can be used, as soon as there are some. Raises TuneError if there are
        none for long, or if those that are there will never do."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._refresh()
            found = self._usable(measures)
            if found:
                return found
            able = [w for w in self._workers.values() if w.measures or not measures]
            faults = {w.address: self._fault(w, measures) for w in able if w.description}
            unfit = able and all(faults.get(w.address) for w in able)
            if unfit or time.monotonic() > end:
                raise TuneError(_none(measures, {w.address: faults.get(w.address) for w in able}))
            time.sleep(TICK)


def _none(measures: bool, faults: Mapping[str, str | None]) -> str:
    """The message for a cluster none of whose workers can build, or measure. faults: the reasons,
    by their address, None for one that does not answer."""
    kind = "measure" if measures else "build"
    option = f" --resources {MEASURE}=1" if measures else ""
    lines = [f"  {address}: {fault or 'it does not answer'}" for address, fault in faults.items()]
    start = f"start workers with `dask worker … --nthreads 1{option}`"
    return "\n".join([f"no worker of the cluster can {kind}; {start}", *lines])


@contextmanager
def cluster_executor(
    address: str, target: Target, silent: float = SILENT_SECONDS
) -> Iterator[Cluster]:
    """An executor of the workers of the Dask scheduler at an address, such as `tcp://host:8786`.
    Raises DaskNotFound, and TuneError where no scheduler answers."""
    with _connected(address) as client:
        yield Cluster(client, target, silent)


def targets_of(address: str) -> dict[Target, int]:
    """The CPUs for which the workers of a scheduler can measure, and how many have each. Raises
    what `cluster_executor` raises."""
    with _connected(address) as client:
        info = client.scheduler_info(n_workers=-1)["workers"]
        able = [a for a, facts in info.items() if facts["resources"].get(MEASURE, 0) >= 1]
        found: dict[str, Description] = client.run(describe, workers=able) if able else {}
    return dict(Counter(d.target for d in found.values()))


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise DaskNotFound(
            "a scheduler is one of Dask's: pip install 'relaxlab[cluster]', here and on its workers"
        ) from None
    try:
        # A client whose address says too little is half made, and takes a minute to go away.
        import_module("distributed.comm").get_address_host_port(address)
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise TuneError(f"no scheduler answers at {address!r}: {error}") from None
    with client:
        yield client
