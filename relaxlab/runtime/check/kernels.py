"""Search for the kernel that native code computes differently from the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir import graph, host
from relaxlab.ir.target import Target
from relaxlab.passes.kernel_calls import written_buffers
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.arrays import Array
from relaxlab.runtime.check.compare import ROUNDINGS, Tolerance, coarsest, difference
from relaxlab.runtime.check.inputs import copy_value
from relaxlab.runtime.check.stages import Interpreter, Stage
from relaxlab.runtime.native.kernels import NativeKernels
from relaxlab.runtime.vm.vm import Kernel, VirtualMachine


class _Found(Exception):  # noqa: N818
    pass


def find_wrong_kernel(stage: Stage, target: Target, name: str, args: tuple[Any, ...]) -> str | None:
    """Return a message on the first kernel of a call whose native results differ from the
    interpreter's, both on the arguments that it has in the virtual machine. None where all kernels
    agree, or where the stage does not run native code."""
    if stage.title != "native code":
        return None
    program = lower_shapes(stage.after)
    native = NativeKernels.of(program, target)
    roundoff = coarsest(stage.after)

    def compared(kernel: str) -> Kernel:
        func = program.kernels[kernel]
        outputs = written_buffers(func)

        def run(buffers: Sequence[Array], scalars: Sequence[int]) -> None:
            copies = [b.copy() for b in buffers]
            failure = native.run(kernel, copies, scalars)
            interpreter = Interpreter()
            args = host.kernel_arguments(func, buffers, scalars)
            interpreter.run_loops(func, args, name=kernel)
            if failure:
                raise _Found(f"the kernel `{kernel}` fails: {failure}")
            # Room for kernels that magnify errors, in place of nudging their inputs.
            tolerance = Tolerance(roundoff * ROUNDINGS, interpreter.length, ())
            for at in sorted(outputs):
                place = f"`{func.buffers[at].name}`"
                problem = difference(copies[at], buffers[at], place, tolerance)
                if problem is not None:
                    raise _Found(f"the kernel `{kernel}`: {problem}")

        return run

    machine = VirtualMachine(program, {k: compared(k) for k in native.failures})
    fn = stage.after[name]
    assert isinstance(fn, graph.Function)
    try:
        machine.run(name, *copy_value(args))
    except _Found as found:
        return str(found)
    return None
