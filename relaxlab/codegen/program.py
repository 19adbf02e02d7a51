"""A lowered program to an artifact: kernels and host functions in one LLVM module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.artifact import Artifact, CheckInfo, FunctionInfo, PackedInfo, TypeTree
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.blas import FUNCTIONS, blas_functions
from relaxlab.codegen.llvm.builder import unoptimised_if_long
from relaxlab.codegen.llvm.closures import closure_texts, has_functions
from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.entry import emit_entry, symbols_of_arguments
from relaxlab.codegen.llvm.guards import Guards
from relaxlab.codegen.llvm.half_conversions import half_conversions
from relaxlab.codegen.llvm.host import HostEmitter
from relaxlab.codegen.llvm.host_frame import UnsupportedHost, words_of
from relaxlab.codegen.llvm.marks import Marks, timed_barrier_text
from relaxlab.codegen.llvm.parallel import compile_objects
from relaxlab.codegen.llvm.support import support_functions
from relaxlab.codegen.llvm.versions import emit_kernels
from relaxlab.codegen.llvm.work import work_of
from relaxlab.codegen.llvm.zones import zone_functions
from relaxlab.ir import expr, host
from relaxlab.ir.c_functions import c_function
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target
from relaxlab.tracing import remark


def program_functions(
    program: host.HostProgram,
    target: Target,
    marks: Marks | None = None,
    checks: bool = False,
) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """Return LLVM IR of the program's functions, the declarations of their callees, and the
    metadata that the runtime needs. Raises UnsupportedHost for a function that needs the virtual
    machine."""
    declarations: dict[str, str] = {}
    barrier = timed_barrier_text(declarations) if marks is not None else None
    texts = support_functions(declarations, target, barrier)
    texts += zone_functions() if checks else []
    # A set of names has another order in each process; the text, and what is cached of it, has not.
    used = {k: program.kernels[k] for k in sorted(_called_kernels(program))}
    kernels, failures = emit_kernels(used, declarations, target, checks=checks)
    texts += kernels
    found: list[CheckInfo] = []
    packed: list[host.CallPacked] = []
    arenas: list[host.AllocStorage] = []
    constants: list[np.ndarray[Any, Any]] = []
    called = _called_functions(program)
    offered = [f.name for f in _offered(program)]
    packed_in: list[host.HostFunction] = []
    for function in program.functions.values():
        emitter = HostEmitter(
            function, declarations, found, arenas, is_entry=function.name not in called,
            program=program, failures=failures, packed=packed, first_constant=len(constants),
            marks=marks, guards=Guards() if checks else None,
        )  # fmt: skip
        try:
            texts.append(unoptimised_if_long(emitter.emit()))
        except UnsupportedHost as error:
            raise UnsupportedHost(str(error), function.name) from None
        constants += function.constants
        # The emitter has appended its calls: they are this function's.
        packed_in += [function] * (len(packed) - len(packed_in))
        if function.name in offered:
            parallel = _runs_kernels(program, function)
            work = _work(program, function) if parallel else None
            texts.append(emit_entry(function, parallel, work, declarations))
    if marks is not None:
        texts.append(marks.text(declarations))
    texts += closure_texts(program, declarations)
    texts += blas_functions(declarations)
    texts += half_conversions(texts, target)
    metadata = {
        "checks": tuple(found),
        "packed": tuple(_packed_info(f, p) for f, p in zip(packed_in, packed, strict=True)),
        "arenas": len(arenas),
        "constants": tuple(constants),
        "externs": jit.external_functions(texts, declarations),
        "data": {
            name: tuple((c.name, tuple(map(TypeTree.of, c.fields))) for c in of.constructors)
            for name, of in program.data.items()
        },
    }
    return texts, declarations, metadata


def compile_program(
    program: host.HostProgram,
    target: Target,
    bounds: dict[str, dict[str, int]] | None = None,
    marks: Marks | None = None,
    checks: bool = False,
) -> Artifact:
    """Compile to machine code. `bounds` gives, per function, the declared upper bounds; `marks`
    where the calls of the program write down their times; `checks` makes a debug build.

    Functions that have no native form, and those that call them, are left out; the artifact says
    why. Raises UnsupportedHost for a program of nothing else, CodegenError for a loop function the
    target cannot express.
    """
    left_out: dict[str, str] = {}
    while True:
        part, reasons = _native_part(program, left_out)
        try:
            texts, declarations, metadata = program_functions(part, target, marks, checks)
            break
        except UnsupportedHost as error:  # what lacks a native form shows when code is made of it
            if not error.function:
                raise
            left_out[error.function] = f"in `{error.function}`: {error}"
    for name, reason in reasons.items():
        remark("compile", name, f"cannot be called natively: {reason}", applied=False)
    code, bitcode = compile_objects(texts, declarations, target)
    infos = tuple(map(_function_info, _offered(part)))
    planned = {f.name: _planned(f, (bounds or {}).get(f.name, {})) for f in part.functions.values()}
    return Artifact(code, bitcode, infos, planned_bytes=planned, left_out=reasons, **metadata)


def _native_part(
    program: host.HostProgram, without: Mapping[str, str]
) -> tuple[host.HostProgram, dict[str, str]]:
    """The program without the functions that need the virtual machine: those given with reasons,
    and those that call them. Also why functions cannot be called natively. Raises UnsupportedHost
    where none can."""
    left_out = dict(without)
    while True:
        # A function that is left out takes its callers with it, and they theirs.
        calls = {f.name: _functions_in(f) & set(left_out) for f in program.functions.values()}
        calling = {
            name: f"`{name}` calls `{min(found)}`: {left_out[min(found)]}"
            for name, found in calls.items()
            if found and name not in left_out
        }
        if not calling:
            break
        left_out |= calling
    rest = {name: f for name, f in program.functions.items() if name not in left_out}
    called = _called_functions(replace(program, functions=rest))
    unused: set[str] = set()
    for f in rest.values():
        reason = has_functions(f)
        if reason is not None and not f.private:
            unused |= {f.name} - called
            left_out[f.name] = reason
    part = replace(program, functions={n: f for n, f in rest.items() if n not in unused})
    if left_out and not _offered(part):
        raise UnsupportedHost(next(iter(left_out.values())))
    return part, left_out


def _functions_in(function: host.HostFunction) -> set[str]:
    """The functions of the program that a function calls or uses as values."""
    instrs = host.walk_instrs(function.instrs)
    named = (i.function for i in instrs if isinstance(i, host.CallFunction | host.LoadFunction))
    return {name for name in named if isinstance(name, str)}


def _planned(function: host.HostFunction, bounds: dict[str, int]) -> int | None:
    """Return the bytes of planned memory where each symbol has its bound, None if one has none."""
    sizes = [storage.size for storage in function.storages()]
    symbols = {s for size in sizes for s in symbols_in(size)}
    if any(s.name not in bounds for s in symbols):
        return None
    return sum(evaluate(size, {s: bounds[s.name] for s in symbols}) for size in sizes)


def _offered(program: host.HostProgram) -> list[host.HostFunction]:
    """The functions that can be called from outside; those that take or return functions are for
    other functions of the program."""
    return [f for f in program.functions.values() if has_functions(f) is None]


def _called_kernels(program: host.HostProgram) -> set[str]:
    return {
        i.function
        for f in program.functions.values()
        for i in host.walk_instrs(f.instrs)
        if isinstance(i, host.CallKernel)
    }


def _runs_kernels(program: host.HostProgram, function: host.HostFunction) -> bool:
    """True if a call reaches a kernel or a library function that threads share: only then is a team
    of them worth starting."""
    seen: set[str] = set()
    work = [function]
    while work:
        f = work.pop()
        seen.add(f.name)
        for i in host.walk_instrs(f.instrs):
            if isinstance(i, host.CallKernel):
                return True
            if isinstance(i, host.CallPacked):
                row = c_function(i.function)
                if i.function in FUNCTIONS or (row is not None and row.is_parallel):
                    return True
            named = isinstance(i, host.CallFunction | host.LoadFunction)
            if named and isinstance(i.function, str) and i.function not in seen:
                work.append(program.functions[i.function])
    return False


def _work(program: host.HostProgram, function: host.HostFunction) -> expr.PrimExpr | None:
    """Return the work of a call, if the sizes of the arguments determine it."""
    work = work_of(program, function)
    known = symbols_of_arguments(function)
    return None if work is None or any(s not in known for s in symbols_in(work)) else work


def _called_functions(program: host.HostProgram) -> set[str]:
    return {name for f in program.functions.values() for name in _functions_in(f)}


def _function_info(f: host.HostFunction) -> FunctionInfo:
    leaves = [r for p in f.params for r in host.leaves(p.value)]
    written = tuple(i for i, r in enumerate(leaves) if r in f.written)
    return FunctionInfo(
        f.name,
        symbol_of(f.name),
        tuple((p.name, TypeTree.of(p.ty)) for p in f.params),
        TypeTree.of(f.result_type),
        written,
        sum(words_of(f.registers[r]) for r in leaves),
        sum(words_of(f.registers[r]) for r in host.leaves(f.result)),
    )


def _packed_info(f: host.HostFunction, call: host.CallPacked) -> PackedInfo:
    def tree(value: host.Value) -> TypeTree:
        if isinstance(value, int):
            return TypeTree.of(f.registers[value].ty)
        fields = tuple(tree(v) for v in value)
        return TypeTree("tuple", f"R.Tuple({', '.join(t.text for t in fields)})", fields=fields)

    args = tuple(
        a if isinstance(a, str)
        else TypeTree("scalar", a.dtype, a.dtype) if isinstance(a, expr.PrimExpr)
        else tree(a)
        for a in call.args
    )  # fmt: skip
    result = None if call.dst is None else tree(call.dst)
    return PackedInfo(call.function, args, result, call.place(f))
