"""TVM's MetaSchedule as a peer, in the environment of TVM; `bench_metaschedule` runs it.

metaschedule.py tune  SCRIPT FOLDER CORES    # until it is ended; the folder keeps its records
metaschedule.py serve SCRIPT FOLDER CORES    # a line per request: "result FILE" or "sample CALLS"
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

MANY = 10**6
"""Trials that no search gets to: its time is limited instead."""


def target_of(cores: int) -> Any:
    """This machine as TVM names it."""
    import tvm

    cpu = tvm.target.codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": cores})


def module_of(script: Path) -> Any:
    """The program with loop functions in place of operators, fused as TVM fuses."""
    import tvm
    from tvm import relax
    from tvm.script import ir
    from tvm.script import relax as names

    mod = tvm.script.from_source(script.read_text("utf-8"), extra_vars={"I": ir, "R": names})
    passes = ("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")
    return tvm.transform.Sequential([getattr(relax.transform, p)() for p in passes])(mod)


def tune(script: Path, folder: Path, cores: int) -> None:
    """Search without an end: evolution with the cost model by XGBoost, its defaults."""
    from tvm.s_tir.meta_schedule.relax_integration import tune_relax

    tune_relax(module_of(script), {}, target_of(cores), str(folder), max_trials_global=MANY)


def serve(script: Path, folder: Path, cores: int) -> None:
    """Run the program with the best records of the folder, on the arguments that are there."""
    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.relax_integration import compile_relax

    mod = module_of(script)
    database = meta_schedule.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    exe = compile_relax(database, mod, target_of(cores), None)
    function = relax.VirtualMachine(exe, tvm.cpu())["main"]
    given = np.load(folder / "arguments.npz")
    args = [tvm.runtime.tensor(given[name]) for name in given.files]
    function(*args)
    for line in sys.stdin:
        do, what = line.split()
        if do == "result":
            np.save(what, function(*args).numpy())
            print("kept", flush=True)
        else:
            start = time.perf_counter()
            for _ in range(int(what)):
                function(*args)
            print((time.perf_counter() - start) / int(what), flush=True)


if __name__ == "__main__":
    action, script, folder, cores = sys.argv[1:]
    {"tune": tune, "serve": serve}[action](Path(script), Path(folder), int(cores))
