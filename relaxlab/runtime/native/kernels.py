"""The loop functions of a program as native code, each callable by itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.codegen.llvm.support import support_functions
from relaxlab.ir import host
from relaxlab.ir.target import Target
from relaxlab.runtime.arrays import Array
from relaxlab.runtime.native.arguments import address_of
from relaxlab.runtime.native.openmp import load_openmp


@dataclass(frozen=True, slots=True)
class NativeKernels:
    """Kernels run by one thread on arrays. `failures` has, by name, the messages of each."""

    code: jit.LoadedObject
    failures: dict[str, tuple[str, ...]]

    @staticmethod
    def of(program: host.HostProgram, target: Target) -> NativeKernels:
        """Compile the kernels. Raises CodegenError for one that the target cannot express."""
        load_openmp()
        declarations: dict[str, str] = {}
        texts = support_functions(declarations, target)
        kernels = program.kernels.items()
        emitted = {k: emit_kernel(f, k, declarations, target) for k, f in kernels}
        texts += [k.text for k in emitted.values()]
        text = jit.module_text(texts, declarations, target)
        code = jit.LoadedObject([jit.compile_object(text, target)[0]], target)
        return NativeKernels(code, {name: tuple(k.failures) for name, k in emitted.items()})

    def run(self, name: str, buffers: Sequence[Array], scalars: Sequence[int]) -> str | None:
        """Run a kernel; return the message of its failure, or None."""
        failures = self.failures[name]
        entry = ctypes.CFUNCTYPE(ctypes.c_int64 if failures else None)(
            self.code.address(symbol_of(name))
        )
        entry.argtypes = None  # type: ignore[assignment]
        args: list[Any] = [ctypes.c_void_p(address_of(a)) for a in buffers]
        args += [ctypes.c_int64(s) for s in (*scalars, 0, 1)]
        failed = ctypes.c_int64(0)
        if failures:
            args.append(ctypes.byref(failed))
        number = entry(*args)
        return failures[number - 1].format() if number else None
