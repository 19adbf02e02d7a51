"""One loop function to one LLVM function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import prove_equal
from relaxlab.analysis.private_buffers import shared_private_buffer
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.hoist_guards import hoist_guards
from relaxlab.codegen.join_indices import join_indices
from relaxlab.codegen.llvm.access import Memory
from relaxlab.codegen.llvm.bounds import Stack, check_bounds
from relaxlab.codegen.llvm.builder import Builder, Value, llvm_type
from relaxlab.codegen.llvm.context import CONTEXT, symbol_of
from relaxlab.codegen.llvm.expressions import FailWhen, Scope
from relaxlab.codegen.llvm.statements import declare_local, emit_stmt
from relaxlab.codegen.llvm.team import Team, dense_strides, emit_team, failure
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.narrow_tiles import narrow_tiles
from relaxlab.codegen.partition_vectors import partition_vectors
from relaxlab.codegen.positive import sizes_of
from relaxlab.codegen.prefetch import insert_prefetches
from relaxlab.codegen.simplify_indices import simplify_indices
from relaxlab.codegen.split_vectors import split_vectors
from relaxlab.codegen.tighten_bounds import tighten_bounds
from relaxlab.codegen.transpose_gathers import transpose_gathers
from relaxlab.codegen.unroll_and_jam import unroll_and_jam
from relaxlab.ir import expr, loops
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.names import ascii_name
from relaxlab.ir.node import walk
from relaxlab.ir.target import GENERIC, Target
from relaxlab.schedule.tensor_intrin import RegisterScope, register_scope


@dataclass(frozen=True, slots=True)
class Kernel:
    """An emitted kernel. `failures`: messages of its failures at run time; if there are any, the
    kernel takes one more pointer, to a zero, and returns the number (from 1) of a failure, or 0."""

    text: str
    failures: tuple[str, ...]


def emit_kernel(
    func: loops.PrimFunc,
    name: str,
    declarations: dict[str, str],
    target: Target = GENERIC,
    *,
    symbol: str = "",
    debug: bool = False,
    checks: bool = False,
) -> Kernel:
    """LLVM IR of `void rl.name(ptr buffers…, i64 symbols…, i64 thread, i64 threads)`.

    Scalar parameters keep their own type. `symbol`: another one than `rl.name`. `debug`:
    instructions refer to metadata by the lines of the statements' spans. `checks`: accesses and
    private buffers are checked. Raises CodegenError for anything without a row.
    """
    b = Builder(declarations, target, debug=debug)
    failures: list[str] = []
    s = Scope(b, name, _reporting(b, failures), on_access=check_bounds if checks else None)
    stack = Stack() if checks else None
    parameters = declare_parameters(s, func)
    # A stack buffer that thread 0 fills is not there for the others.
    shared = shared_private_buffer(func.body)
    if shared is not None:
        raise CodegenError(
            f"the private buffer {shared.name!r} of {name!r} is used by more than one thread; "
            "move its producer into the parallel loop or give it the scope 'global'"
        )
    body, allocated = lower_blocks(func.body)
    lowered = lower_loops(body, sizes_of(func), target, join=not checks)
    # Copies of tiles may have private buffers of their own.
    buffers = dict.fromkeys((*allocated, *_private_buffers(lowered)))
    declare = declare_local if stack is None else stack.declare
    registers = [buffer for buffer in buffers if register_scope(buffer.scope) is not None]
    scopes = _register_scopes(name, registers, lowered)
    _declare_allocated(s, [buffer for buffer in buffers if buffer not in registers], declare)
    for scope in scopes:
        _emit_in_each_thread(s, scope.enter, declare)
    emit_team(s, Team(), lowered)
    for scope in scopes:
        _emit_in_each_thread(s, scope.leave, declare)
    if stack is not None:
        stack.verify(s)
    if failures:
        b.raw(f"ret i64 {failure(s, Team())}")
    else:
        b.raw("ret void")
    return kernel_of(b, symbol or symbol_of(name), parameters, failures)


def kernel_of(
    b: Builder, symbol: str, parameters: Sequence[tuple[str, str]], failures: Sequence[str]
) -> Kernel:
    """The kernel whose instructions the builder has."""
    signature = [f"{ty} {text}" for ty, text in parameters]
    # Kernels that cannot fail have neither the argument nor the result, so that calls of them need
    # no test.
    result = "i64" if failures else "void"
    if failures:
        signature.append("ptr %failed")
    head = f"define {result} @{symbol}({', '.join(signature)}) #0{' !dbg !0' if b.debug else ''}"
    lines = ["entry:", *b.allocas, *b.lines]
    return Kernel(f"{head} {{\n" + "\n".join(lines) + "\n}\n", tuple(failures))


def declare_parameters(s: Scope, func: loops.PrimFunc) -> list[tuple[str, str]]:
    """Give the parameters of a kernel their values; returns their types and names."""
    params: list[tuple[str, str]] = []
    sizes = s.sizes = frozenset(sizes_of(func))
    for i, var in enumerate(kernel_symbols(func)):
        text, size = f"%{ascii_name(var.name)}.{i}", var in sizes
        s.values[var] = Value(var.dtype, text, nonneg=size, index=size)
        params.append((llvm_type(var.dtype), text))
    pointers: list[tuple[str, str]] = []
    for i, buffer in enumerate(func.buffers):
        pointer = f"%{ascii_name(buffer.name)}.p{i}"
        # Without `noalias` LLVM reloads operands after each store. Callers see to it that no
        # argument overlaps another that is written.
        pointers.append(("ptr noalias", pointer))
        s.memory[buffer] = _parameter(s, buffer, pointer)
    return [*pointers, *params, ("i64", "%thread"), ("i64", "%threads")]


def _reporting(b: Builder, failures: list[str]) -> FailWhen:
    """Adds the text of a failure to `failures` and emits its report: the number and, in a debug
    build, the numbers in the text."""

    def fail_when(cond: str, message: str, numbers: tuple[str, str] | None = None) -> int:
        failures.append(message)
        with b.when(cond):
            b.raw(f"store atomic i64 {len(failures)}, ptr %failed monotonic, align 8")
            for word, text in zip(("got", "expected"), numbers or (), strict=False):
                at = CONTEXT.index(word) - CONTEXT.index("kernel_failed")
                place = b.emit(f"getelementptr i64, ptr %failed, i64 {at}", "p")
                b.raw(f"store atomic i64 {text}, ptr {place} monotonic, align 8")
        return len(failures)

    return fail_when


def _private_buffers(body: loops.Stmt) -> Iterator[loops.Buffer]:
    """The private buffers that a statement accesses."""
    accesses = (n for n in walk(body) if isinstance(n, (loops.BufferLoad, loops.BufferStore)))
    return (n.buffer for n in accesses if n.buffer.scope == "local")


def _declare_allocated(
    s: Scope,
    allocated: Sequence[loops.Buffer],
    declare: Callable[[Scope, loops.Buffer], Memory],
) -> None:
    """Allocate a kernel's buffers on the stack."""
    for buffer in allocated:
        if buffer.scope == "global":
            raise CodegenError(
                f"{s.function!r} allocates {buffer.name!r} in main memory where loops run: "
                "allocate it at the top of the function, before the loops, or with "
                'scope="local" for a copy per thread'
            )
        s.memory[buffer] = declare(s, buffer)


def _register_scopes(
    name: str, registers: Sequence[loops.Buffer], body: loops.Stmt
) -> list[RegisterScope]:
    """The scopes of a kernel's buffers that are registers. Raises CodegenError where several share
    one, or where loops use such a buffer like memory."""
    names = [buffer.scope for buffer in registers]
    crowded = next((n for n in names if names.count(n) > 1), None)
    if crowded is not None:
        held = ", ".join(repr(r.name) for r in registers if r.scope == crowded)
        raise CodegenError(f"{name!r} keeps {held} in {crowded!r}; there is room for one buffer")
    for n in walk(body):
        if isinstance(n, (loops.BufferLoad, loops.BufferStore)) and n.buffer in registers:
            raise CodegenError(
                f"{n.buffer.name!r} of {name!r} lies in registers ({n.buffer.scope!r}), not in "
                "memory: only their tensor intrinsics can use it"
            )
    return [scope for n in names if (scope := register_scope(n)) is not None]


def _emit_in_each_thread(
    s: Scope, func: loops.PrimFunc, declare: Callable[[Scope, loops.Buffer], Memory]
) -> None:
    body, allocated = lower_blocks(func.body)
    _declare_allocated(s, allocated, declare)
    emit_stmt(s, body)


def lower_loops(
    body: loops.Stmt, sizes: Sequence[expr.Var], target: Target = GENERIC, *, join: bool = True
) -> loops.Stmt:
    """Lower block-free loops to those that are emitted as instructions. `sizes` are not
    negative. `join`: the parts of flat indices are put together; bounds are checked by dimension,
    and need them apart."""
    body = simplify_indices(unroll_and_jam(body), sizes)
    if join:
        body = join_indices(body, sizes)
    # Loops end early first: conditions that the ends imply are gone then, and are not hoisted.
    hoisted = partition_vectors(narrow_tiles(hoist_guards(tighten_bounds(body))), target)
    # Guards that remain are in the copies for last tiles, whose short loops end early as well.
    short = tighten_bounds(hoisted, short=1)
    split = split_vectors(insert_prefetches(short, target.facts.cache_line), target)
    return transpose_gathers(split)


def _parameter(s: Scope, buffer: loops.Buffer, pointer: str) -> Memory:
    _require_dense(s, buffer)
    return Memory(pointer, buffer.dtype, dense_strides(s, buffer), 1)


def _require_dense(s: Scope, buffer: loops.Buffer) -> None:
    """Arguments are dense arrays. Raises CodegenError for a parameter declared otherwise."""
    zero = expr.const(0)
    total: expr.PrimExpr = expr.const(1)
    dense = buffer.elem_offset is None or prove_equal(buffer.elem_offset, zero)
    for dim, stride in zip(reversed(buffer.shape), reversed(buffer.strides), strict=False):
        dense = dense and prove_equal(stride, total)
        total = total * dim
    if not dense:
        raise CodegenError(
            f"parameter {buffer.name!r} of {s.function!r} is declared with strides or an offset; "
            "arguments are dense, row by row, so leave both out"
        )
