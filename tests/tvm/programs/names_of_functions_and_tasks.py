"""Functions in passes know their names, loops their threads, and kernels become tasks."""

import tempfile

import numpy as np
import tvm
from tvm import relax, s_tir, tirx
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.training.optimizer import SGD
from tvm.s_tir import meta_schedule as ms
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Program:
    @T.prim_func(private=True, s_tir=True)
    def add1(A: T.Buffer((T.int64(8),), "float32"), B: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("B"):
                vi = T.axis.spatial(T.int64(8), i)
                B[vi] = A[vi] + T.float32(1)

    @R.function
    def main(x: R.Tensor((8,), "float32"), w: R.Tensor((8,), "float32")):
        cls = Program
        with R.dataflow():
            y = R.call_tir(cls.add1, (x,), out_ty=R.Tensor((8,), "float32"))
            z = R.call_tir(cls.add1, (y,), out_ty=R.Tensor((8,), "float32"))
            o = R.add(z, w)
            R.output(o)
        return o


@relax.transform.function_pass(opt_level=0)
def of_graphs(func, mod, ctx):
    print("graph", func.attrs["global_symbol"])
    return func


@tirx.transform.prim_func_pass(opt_level=0)
def of_loops(func, mod, ctx):
    print("loops", func.attrs is None or "global_symbol" not in func.attrs)
    return func.with_attr("seen", 1)


seen = of_loops(of_graphs(Program))
print(seen["add1"].attrs["seen"], sorted(v.name_hint for v in seen.get_global_vars()))

# --- Loops and expressions
sch = s_tir.Schedule(Program)
sch.work_on("add1")
outer, inner = sch.split(sch.get_loops(sch.get_sblock("B"))[0], [None, 4])
sch.bind(outer, "blockIdx.x")
print(sch.get(outer).thread_binding.thread_tag, sch.get(inner).thread_binding)
x = relax.Var("x", R.Tensor([8], "float32"))
print(x, relax.op.add(x, x), relax.const(1.0), tirx.IntImm("int32", 5).ty.dtype)
sgd = SGD(0.1)
sgd.init(x)
print(sgd.get_function().attrs["global_symbol"])

# --- Tasks, and a program with the schedules of a database
target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
(task,) = ms.relax_integration.extract_tasks(Program, target, {})
print(task.task_name, task.weight, len(task.dispatched), task.mod["main"].params[0].name)
database = ms.database.JSONDatabase(work_dir=tempfile.mkdtemp())
workload = database.commit_workload(task.mod)
sch = s_tir.Schedule(task.mod)
sch.vectorize(sch.get_loops("B")[0])
infos = ms.arg_info.ArgInfo.from_prim_func(task.mod["main"])
database.commit_tuning_record(
    ms.database.TuningRecord(sch.trace, workload, [1e-6], target, infos)
)
tvm.ir.assert_structural_equal(database.query_schedule(task.mod, target, "main").mod, sch.mod)
weights = {"w": tvm.runtime.tensor(np.ones(8, "float32"))}
vm = relax.VirtualMachine(
    ms.relax_integration.compile_relax(database, Program, target, weights), tvm.cpu()
)
zeros = tvm.runtime.tensor(np.zeros(8, "float32"))
print(vm["main"](zeros).numpy())
vm.save_function("main", "saved", zeros)
print(vm.time_evaluator("saved", tvm.cpu(), number=1)().mean > 0)

# --- Functions with other parameters
@R.function
def func(a: R.Tensor((8,), "float32"), b: R.Tensor(("n",), "float32")):
    c = R.add(a, a)
    return (c, b)


print(len(func.bind_params({func.params[0]: relax.const(np.ones(8, "float32"))}).params))
print(int(func.bind_symbolic_vars({"n": 4}).params[1].ty.shape[0]))
copy = relax.utils.copy_with_new_vars(func)
print(copy.params[0].same_as(func.params[0]), len(copy.params))
tvm.ir.assert_structural_equal(copy, func)
print(Program.get_global_var("main") in Program.functions)
image = relax.Var("image", R.Tensor([1, 3, 8, 8], "float32"))
weight = relax.Var("weight", R.Tensor([4, 3, 3, 3], "float32"))
for strides in (1, 2):
    conv = relax.op.nn.conv2d(image, weight, strides=strides)
    pattern = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    print(pattern.has_attr({"strides": [1, 1]}).match(conv))
