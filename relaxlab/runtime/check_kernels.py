"""Which kernel a program's native code computes differently."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.codegen.llvm.support import support_functions, symbol_of
from relaxlab.ir import expr, graph
from relaxlab.ir.target import Target
from relaxlab.passes import host
from relaxlab.passes.kernel_calls import written_buffers
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.arrays import Array
from relaxlab.runtime.check_compare import ROUNDINGS, Tolerance, coarsest, difference
from relaxlab.runtime.check_inputs import copy_value
from relaxlab.runtime.check_stages import Interpreter, Stage
from relaxlab.runtime.vm import Kernel, VirtualMachine


class _Found(Exception):  # noqa: N818
    pass


def find_wrong_kernel(
    stage: Stage, target: Target, name: str, args: tuple[Any, ...]
) -> str | None:
    """In words, the first kernel of a call that gives, natively and on the arguments it has in the
    virtual machine, something else than the interpreter; None where all kernels are right, or
    where the stage does not run native code."""
    if stage.title != "native code":
        return None
    program = lower_shapes(stage.after)
    native = _NativeKernels.of(program, target)
    roundoff = coarsest(stage.after)

    def compared(kernel: str) -> Kernel:
        func = program.kernels[kernel]
        outputs = written_buffers(func)

        def run(buffers: Sequence[Array], scalars: Sequence[int]) -> None:
            copies = [b.copy() for b in buffers]
            failure = native.run(kernel, copies, scalars)
            by_symbol = dict(zip(host.kernel_symbols(func), scalars, strict=True))
            passed = [by_symbol[p] for p in func.params if isinstance(p, expr.Var)]
            interpreter = Interpreter()
            interpreter.run_loops(func, [*buffers, *passed], name=kernel)
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


@dataclass(frozen=True, slots=True)
class _NativeKernels:
    """The loop functions of a program as native code, run by one thread on arrays."""

    code: jit.LoadedObject
    failures: dict[str, tuple[str, ...]]

    @staticmethod
    def of(program: host.HostProgram, target: Target) -> _NativeKernels:
        declarations: dict[str, str] = {}
        texts = support_functions(declarations)
        emitted = {
            k: emit_kernel(f, k, declarations, contract=target.contract)
            for k, f in program.kernels.items()
        }
        texts += [k.text for k in emitted.values()]
        text = jit.module_text(texts, declarations, target)
        code = jit.LoadedObject(jit.compile_object(text, target)[0], target)
        return _NativeKernels(code, {name: tuple(k.failures) for name, k in emitted.items()})

    def run(self, name: str, buffers: Sequence[Array], scalars: Sequence[int]) -> str | None:
        """Run one; what failed in it, in words."""
        failures = self.failures[name]
        entry = ctypes.CFUNCTYPE(ctypes.c_int64 if failures else None)(
            self.code.address(symbol_of(name))
        )
        entry.argtypes = None  # type: ignore[assignment]
        args: list[Any] = [ctypes.c_void_p(a.__array_interface__["data"][0]) for a in buffers]
        args += [ctypes.c_int64(s) for s in (*scalars, 0, 1)]
        failed = ctypes.c_int64(0)
        if failures:
            args.append(ctypes.byref(failed))
        number = entry(*args)
        return failures[number - 1] if number else None
