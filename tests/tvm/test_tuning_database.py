"""A search by TVM's names writes a database of files, which another process reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = '''
import sys
import numpy as np
import tvm
from tvm import meta_schedule as ms
from tvm.script import ir as I, tirx as T

@I.ir_module
class Program:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"),
             C: T.Buffer((64, 64), "float32")):
        for i, j, k in T.grid(64, 64, 64):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

TARGET = tvm.target.Target("llvm -num-cores 1")

def searched(folder):
    database = ms.database.JSONDatabase(work_dir=folder)
    ms.tune_tir(mod=Program, target=TARGET, max_trials_global=2, num_trials_per_iter=2,
                work_dir=folder, database=database)
    return len(database)

def read(folder):
    database = ms.database.JSONDatabase(work_dir=folder)
    scheduled = database.query_schedule(Program, TARGET, "main")
    a = np.random.default_rng(0).random((64, 64), "float32")
    c = tvm.runtime.tensor(np.zeros((64, 64), "float32"))
    tvm.compile(scheduled.mod, TARGET)["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(a), c)
    np.testing.assert_allclose(c.numpy(), a @ a, rtol=1e-4)
    record = database.query_tuning_record(Program, TARGET, "main")
    return len(database), 0 < float(record.run_secs[0]) < 1

print(globals()[sys.argv[1]](sys.argv[2]))
'''


def test_a_search_fills_files_that_another_process_reads(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    found: list[str] = []
    for step in ("searched", "read"):
        folder = str(tmp_path / "found")
        command = [sys.executable, "-m", "relaxlab.tvm", str(program), step, folder]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert ran.returncode == 0, ran.stderr
        found.append(ran.stdout.splitlines()[-1])
    count = int(found[0])
    assert count >= 1 and found[1] == f"({count}, True)"
