"""Checks of lesson 9, code generation."""

from __future__ import annotations

import re
from collections.abc import Callable


import relaxlab as rl
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.ir.errors import counted
from relaxlab.ir.loops import BlockRealize
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target
from relaxlab.ir.host import CallKernel, walk_instrs
from relaxlab.passes.lower_shapes import lower_shapes

from .compare import floats, loop_function, loops_compute
from relaxlab.lab.verdict import Hint, ask, exercise, value_of, whole

Answer = Callable[[rl.Schedule], None]


@exercise
def full_vectors(mod: Module, answer: Answer) -> str:
    """Stores of as many numbers as a register of this machine holds."""
    sch = rl.Schedule(loop_function(mod, "affine"))
    ask(answer, sch)
    loops_compute(
        mod.with_functions({"affine": sch.func}), "affine", [floats(64)], lambda a: a * 3 + 1
    )
    lanes = Target.host().lanes("float32")
    text = emit_kernel(sch.func, "kernel", {}).text
    stores = re.findall(r"store (?:<(\d+) x float>|float)", text)
    found = {int(s or 1) for s in stores}
    if found != {lanes}:
        widest = max(found, default=1)
        raise Hint(
            f"the code stores {widest} number{'s' * (widest > 1)} at a time, a register holds "
            f"{lanes}: split by {lanes} and vectorize the inner loop"
        )
    return f"every store is `store <{lanes} x float>`."


@exercise
def no_predicate(answer: int) -> str:
    """The longest power of two for which 100 numbers need no condition."""
    lanes = whole(answer)
    if lanes is None or lanes < 1 or lanes & (lanes - 1):
        raise Hint(f"{answer!r} is no power of two")
    sch = rl.Schedule(loop_function(_HUNDRED, "f"))
    (i,) = sch.get_loops(sch.get_block("B"))
    sch.vectorize(sch.split(i, factors=[None, lanes])[1])
    conditions = [n.predicate for n in walk(sch.func.body) if isinstance(n, BlockRealize)]
    real = [c for c in conditions if symbols_in(c)]
    if real:
        raise Hint(
            f"with vectors of {lanes} the block has the condition `{real[0]}`: "
            f"100 is no multiple of {lanes}"
        )
    if lanes < 4:
        raise Hint(f"vectors of {lanes} need no condition, but there are longer ones")
    return "25 vectors of 4, and no condition."


_HUNDRED = rl.parse("""
@I.ir_module
class M:
    @T.prim_func
    def f(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
        for i in range(100):
            with T.sblock("B"):
                vi = T.axis.spatial(100, i)
                B[vi] = A[vi] + 1
""")


@exercise
def count_kernel_calls(answer: Callable[[Module], int]) -> str:
    """The number of CallKernel instructions of `main`."""
    for text in _PROGRAMS:
        mod = rl.parse(text)
        instrs = lower_shapes(rl.trace(mod).result).functions["main"].instrs
        want = sum(isinstance(i, CallKernel) for i in walk_instrs(instrs))
        got = value_of(answer, mod)
        if got == len(instrs) != want:
            raise Hint("this counts all instructions; which of them call a kernel?")
        if got != want:
            raise Hint(
                f"this program calls {counted(want, 'kernel')}, your function says {got}:\n{text}"
            )
    return "what was fused counts once."


_HEAD = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")):
"""
_PROGRAMS = (
    _HEAD + "        y = R.exp(R.nn.relu(x))\n        return y\n",
    _HEAD + "        y = R.nn.softmax(x, axis=1)\n        z = R.sum(y, axis=0)\n        return z\n",
    _HEAD + "        y = R.cumsum(x, axis=1)\n        z = R.cumsum(y, axis=1)\n        return z\n",
)
