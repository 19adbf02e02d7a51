"""Programs of a virtual machine that call registered functions, with conditions and constants."""

import numpy as np
import tvm
from tvm import relax


@tvm.register_global_func("programs.plus", override=True)
def plus(a, b):
    return tvm.runtime.tensor(a.numpy() + b.numpy())


@tvm.register_global_func("programs.times", override=True)
def times(a, b):
    return tvm.runtime.tensor(a.numpy() * b.numpy())


@tvm.register_global_func("programs.number", override=True)
def number(n):
    return tvm.runtime.tensor(np.full(2, n, "float32"))


def built():
    ib = relax.ExecBuilder()
    with ib.function("both", num_inputs=2):
        ib.emit_call("programs.plus", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_call("programs.times", args=[ib.r(2), ib.r(1)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    with ib.function("constant", num_inputs=1):
        one = ib.convert_constant(tvm.runtime.tensor(np.ones(2, "float32")))
        ib.emit_call("programs.plus", args=[ib.r(0), one], dst=ib.r(1))
        ib.emit_call("programs.number", args=[ib.imm(5)], dst=ib.r(2))
        ib.emit_call("programs.plus", args=[ib.r(1), ib.r(2)], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    with ib.function("choice", num_inputs=3):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("programs.plus", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_goto(2)
        ib.emit_call("programs.times", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    with ib.function("outer", num_inputs=2):
        ib.emit_call("both", args=[ib.r(1), ib.r(0)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    return ib.get()


vm = relax.VirtualMachine(built(), tvm.cpu())
a, b = (tvm.runtime.tensor(np.array(x, "float32")) for x in ([1, 2], [3, 4]))
for result in (
    vm["both"](a, b), vm["constant"](a), vm["choice"](1, a, b), vm["choice"](0, a, b),
    vm["outer"](a, b),
):  # fmt: skip
    print(result.numpy().tolist())

wrong = relax.ExecBuilder()
try:
    with wrong.function("early", num_inputs=1):
        wrong.emit_call("programs.plus", args=[wrong.r(0), wrong.r(1)], dst=wrong.r(2))
        wrong.emit_ret(wrong.r(2))
    wrong.get()
except tvm.error.InternalError as error:
    print("r(1)" in str(error))
