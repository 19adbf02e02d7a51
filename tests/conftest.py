"""Shared by all tests: where their seeds come from, and one browser for all.

Random tests draw a seed from `random` and print it. Each run draws other ones, unless the
environment variable RELAXLAB_SEED is set: then the same test always draws the same. A run says in
its first lines which value repeats it.
"""

from __future__ import annotations

import gc
import os
import random

import numpy as np
import pytest

from relaxlab.codegen.llvm import parallel
from relaxlab.ir import c_functions, c_libraries, op_table, processes, target
from relaxlab.passes import blas_patterns, libraries  # noqa: F401  registers its patterns
from relaxlab.runtime import packed
from relaxlab.runtime.interpreter import intrinsics as interpreter_intrinsics
from relaxlab.schedule import tensor_intrin
from tests.browser import chromium, open_page  # noqa: F401  fixtures
from tests.compiler import compiler

pytest_plugins = ["tests.tiers", "tests.golden", "tests.gpu", "tests.quiet"]

# In the environment, so that parallel workers collect the same tests.
BASE = os.environ.setdefault("RELAXLAB_SEED", str(random.getrandbits(64)))
random.seed(BASE)  # for seeds drawn while test files are imported
# Read when the first program is loaded. There are more threads than cores where workers run side by
# side: spinning until the others of a team get a core took six times the time of sleeping.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# relaxlab's own operators and targets are registered when they are first asked for.
op_table.op_names()
target.target_kinds()


def pytest_report_header() -> str:
    return f"seeds: RELAXLAB_SEED={BASE}"


def pytest_collection_finish() -> None:
    """Modules and collected tests stay: without this, traversing them and young nodes again and
    again took the garbage collector a tenth of the time in which programs are compiled."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(autouse=True)
def seeded(request):
    """The seeds of a test do not depend on which tests ran before it."""
    random.seed(f"{BASE} {request.node.nodeid}")


@pytest.fixture(autouse=True, scope="session")
def teams():
    """Small programs, too, run in teams of threads, which is where mistakes would show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relaxlab.runtime.native.function.MIN_TEAM_WORK", 0)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_core_per_worker():
    """Parallel workers compile on a core each: the others are taken, and forks cost a tenth."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            for module in (processes, parallel):
                patch.setattr(module, "cores", lambda: 1)
        yield


REGISTRIES = (
    (op_table, "_TABLE"), (packed, "_FUNCS"), (interpreter_intrinsics, "_EXTERNAL"),
    (tensor_intrin, "_REGISTRY"), (libraries, "_TABLE"), (c_functions, "_FUNCTIONS"),
    (c_libraries, "_LIBRARIES"), (target, "_KINDS"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """Operators, Python and C functions, meanings of target instructions, tensor intrinsics,
    library patterns and targets that a test registers are unknown after it."""
    for module, table in REGISTRIES:
        monkeypatch.setattr(module, table, dict(getattr(module, table)))


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """Programs are kept in a folder of the test file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELAXLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def needs_compiler():
    """A skip where there is no C compiler."""
    compiler()


@pytest.fixture
def rng():
    """A generator of random numbers that prints its seed."""
    seed = random.getrandbits(64)
    print("seed", seed)
    return np.random.default_rng(seed)
