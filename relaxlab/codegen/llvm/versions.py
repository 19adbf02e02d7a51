"""Large kernels with guarded versions: a function for each version, and one that calls them.

So the versions of one kernel are emitted and optimised on all cores, and LLVM, some of whose passes
are not linear, sees them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relaxlab.codegen.llvm.builder import Builder
from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.expressions import Scope, emit_expr
from relaxlab.codegen.llvm.kernel import Kernel, declare_parameters, emit_kernel, kernel_of
from relaxlab.ir import expr, loops
from relaxlab.ir.node import Node, replace, walk
from relaxlab.ir.processes import map_forked
from relaxlab.ir.target import Target

LARGE = 2000
"""Nodes of a kernel that is divided: a tenth of a second's work, against which a call for each use
of the kernel is nothing."""
SECONDS = 4e-5
"""Time to emit a node of a scheduled kernel: 20 to 60 microseconds, more where loops are
unrolled."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A version of a kernel, or a whole one."""

    kernel: str
    symbol: str
    func: loops.PrimFunc


def emit_kernels(
    funcs: Mapping[str, loops.PrimFunc],
    declarations: dict[str, str],
    target: Target,
    *,
    checks: bool,
) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """LLVM IR of the kernels, in functions as `emit_kernel` makes them and functions of versions;
    and the messages of each kernel's failures. Raises what `emit_kernel` does."""
    parts = [p for name, func in funcs.items() for p in _parts(name, func)]

    def emit(part: _Part) -> tuple[Kernel, dict[str, str]]:
        used: dict[str, str] = {}
        kernel = emit_kernel(
            part.func, part.kernel, used, target, symbol=part.symbol, checks=checks
        )
        return kernel, used

    emitted: dict[str, list[Kernel]] = {name: [] for name in funcs}
    seconds = [SECONDS * _size(p.func) for p in parts]
    for part, (kernel, used) in zip(parts, map_forked(emit, parts, seconds), strict=True):
        emitted[part.kernel].append(kernel)
        declarations |= used
    texts: list[str] = []
    failures: dict[str, tuple[str, ...]] = {}
    for name, kernels in emitted.items():
        texts += [k.text for k in kernels]
        whole = kernels[0]
        if len(kernels) > 1:
            whole = _calling(name, funcs[name], kernels, declarations, target)
            texts.append(whole.text)
        failures[name] = whole.failures
    return texts, failures


def _parts(name: str, func: loops.PrimFunc) -> list[_Part]:
    versions = list(_versions(func.body)) if _size(func) >= LARGE else []
    if len(versions) < 2:
        return [_Part(name, symbol_of(name), func)]
    return [
        _Part(name, _symbol(name, number), replace(func, body=body))
        for number, body in enumerate(versions)
    ]


def _symbol(name: str, version: int) -> str:
    return f"{symbol_of(name)}.v{version}"


def _size(func: loops.PrimFunc) -> int:
    return sum(1 for _ in walk(func.body))


def _versions(body: loops.Stmt) -> Iterator[loops.Stmt]:
    """Yield the statement once for each of its versions, all others empty. The guards stay: they
    are what is known of sizes in a version."""
    guarded = _guarded(body)
    if guarded is None:
        yield body
        return
    empty = loops.SeqStmt(())
    for version in _versions(guarded[1]):
        yield replace(body, then_case=version, else_case=empty)
    for version in _versions(guarded[2]):
        yield replace(body, then_case=empty, else_case=version)


def _guarded(body: loops.Stmt) -> tuple[expr.PrimExpr, loops.Stmt, loops.Stmt] | None:
    """The guard of two versions, which only reads symbols and cannot fail, and the versions."""
    match body:
        case loops.IfThenElse(guard, yes, loops.Stmt() as no) if not any(
            isinstance(n, loops.BufferLoad | expr.Call) or _may_divide_by_zero(n)
            for n in walk(guard)
        ):
            return guard, yes, no
        case _:
            return None


def _may_divide_by_zero(e: Node) -> bool:
    return isinstance(e, expr.BinaryOp) and e.row.is_division and not isinstance(e.b, expr.IntImm)


def _calling(
    name: str,
    func: loops.PrimFunc,
    versions: Sequence[Kernel],
    declarations: dict[str, str],
    target: Target,
) -> Kernel:
    """The kernel that calls the version whose guards hold, and numbers the failures of all."""
    b = Builder(declarations, target)
    messages: list[str] = []
    s = Scope(b, name, _no_failure)
    parameters = declare_parameters(s, func)
    given = [(ty.split()[0], text) for ty, text in parameters]
    fails = any(v.failures for v in versions)

    def visit(body: loops.Stmt, number: int) -> int:
        """Emit the calls of versions from `number` on; returns the number after them."""
        guarded = _guarded(body)
        if guarded is not None:
            guard, yes, no = guarded
            then, other = b.label("then"), b.label("else")
            b.branch(b.materialise(emit_expr(s, guard)), then, other)
            b.place(then)
            number = visit(yes, number)
            b.place(other)
            return visit(no, number)
        code, failures = "0", versions[number].failures
        if failures:
            code = b.call(_symbol(name, number), "i64", [*given, ("ptr", "%failed")])
            ok = b.emit(f"icmp eq i64 {code}, 0")
            counted = b.emit(f"add i64 {code}, {len(messages)}")
            code = b.emit(f"select i1 {ok}, i64 0, i64 {counted}")
            messages.extend(failures)
        else:
            b.call(_symbol(name, number), "void", given)
        b.raw(f"ret i64 {code}" if fails else "ret void")
        return number + 1

    visit(func.body, 0)
    return kernel_of(b, symbol_of(name), parameters, messages)


def _no_failure(cond: str, message: str, numbers: tuple[str, str] | None = None, /) -> int:
    raise AssertionError(f"a guard cannot fail: {message}")
