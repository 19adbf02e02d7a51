"""Databases of schedules, in memory and in files, queried and applied by a pass."""

import os
import tempfile

import tvm
from tvm import relax, s_tir, te
from tvm.s_tir import meta_schedule as ms
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Program:
    @T.prim_func(private=True, s_tir=True)
    def scale(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(8, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        cls = Program
        with R.dataflow():
            y = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((8, 8), "float32"))
            R.output(y)
        return y


def shifted(by):
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + by, name="B")
    return tvm.IRModule({"main": te.create_prim_func([a, b])})


def loops(sch):
    return [int(sch.get(one).extent) for one in sch.get_loops(sch.get_sblock("B"))]


def fused(sch):
    return sch.fuse(*sch.get_loops(sch.get_sblock("B")))


TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})


def committed(database, mod, factor, seconds):
    sch = s_tir.Schedule(mod)
    sch.split(fused(sch), factors=[None, factor])
    workload = database.commit_workload(mod)
    info = ms.arg_info.ArgInfo.from_prim_func(mod["main"])
    database.commit_tuning_record(
        ms.database.TuningRecord(sch.trace, workload, seconds, TARGET, info)
    )
    return workload


def told(database, mod):
    found = database.query(mod, TARGET, kind="schedule")
    record = database.query(mod, TARGET, kind="record")
    return found and loops(found), record and [float(s) for s in record.run_secs]


def of_times(records):
    return [[float(s) for s in record.run_secs] for record in records]


def main():
    one, two = shifted(1.0), shifted(2.0)
    memory = ms.database.MemoryDatabase()
    workload = committed(memory, one, 4, [3.0, 1.0])
    committed(memory, one, 8, [1.0])
    committed(memory, one, 16, [1e10])
    empty = ms.database.TuningRecord(s_tir.Schedule(one).trace, workload, [0.5])
    memory.commit_tuning_record(empty)
    memory.commit_tuning_record(ms.database.TuningRecord(empty.trace, workload))
    print(len(memory), of_times(memory.get_top_k(workload, 5)), told(memory, one))
    print(memory.has_workload(one), memory.has_workload(two), told(memory, two))
    with tempfile.TemporaryDirectory() as folder:
        kept = ms.database.create(work_dir=folder)
        committed(kept, two, 2, [2.0])
        committed(kept, one, 2, [0.25])
        print(sorted(os.listdir(folder)))
        again = ms.database.JSONDatabase(work_dir=folder)
        print(len(again), told(again, one), told(again, two), again.has_workload(one))
        record = again.query_tuning_record(two, TARGET, "main")
        print(record.args_info[0].dtype, [int(d) for d in record.args_info[0].shape])
        union = ms.database.UnionDatabase(memory, again)
        ordered = ms.database.OrderedUnionDatabase(memory, again)
        print(told(union, one), told(ordered, one), told(ordered, two))
    made = ms.database.ScheduleFnDatabase(lambda sch: bool(fused(sch)))
    print(loops(made.query_schedule(two, TARGET, "main")))

    alone = tvm.IRModule({"main": Program["scale"].with_attr("global_symbol", "main")})
    committed(memory, alone, 32, [1.0])
    print(ms.database.Database.current() is None)
    with TARGET, memory:
        scheduled = relax.transform.MetaScheduleApplyDatabase()(Program)
    print(loops(s_tir.Schedule(scheduled["scale"])))


main()
