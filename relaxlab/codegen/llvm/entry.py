"""Entry points of a program, which decide whether a call starts a team of threads."""

from __future__ import annotations

from relaxlab.codegen.llvm.builder import Builder, Value
from relaxlab.codegen.llvm.context import CONTEXT, symbol_of
from relaxlab.codegen.llvm.expressions import Scope, emit_expr
from relaxlab.codegen.llvm.host_frame import words_of
from relaxlab.ir import expr, host
from relaxlab.ir.node import walk


def emit_entry(
    function: host.HostFunction, parallel: bool, work: expr.PrimExpr | None,
    declarations: dict[str, str],
) -> str:  # fmt: skip
    """Emit the function that Python calls: `i64 entry(ptr ctx, i64 threads)` runs the function,
    with a team if it is `parallel` and its `work` is enough.

    Threads other than 0 write their (equal) results to scratch memory of their own.
    """
    symbol = symbol_of(function.name)
    words = sum(words_of(function.registers[r]) for r in host.leaves(function.result))
    b = Builder(declarations)

    def word(name: str) -> str:
        at = CONTEXT.index(name)
        pointer = b.emit(f"getelementptr inbounds i64, ptr %ctx, i64 {at}", "p")
        return b.emit(f"load ptr, ptr {pointer}, align 8")

    thread = b.call("omp_get_thread_num", "i32", [])
    threads = b.call("omp_get_num_threads", "i32", [])
    thread, threads = (b.emit(f"sext i32 {t} to i64") for t in (thread, threads))
    scratch, given, shared = b.alloca(max(1, words), "i64"), word("args"), word("out")
    first = b.emit(f"icmp eq i64 {thread}, 0")
    # All threads store equal words; to one place that would still be a race.
    out = b.emit(f"select i1 {first}, ptr {shared}, ptr {scratch}")
    args = [("ptr", "%ctx"), ("ptr", given), ("ptr", out), ("ptr", "null")]
    code = b.call(symbol, "i64", [*args, ("i64", thread), ("i64", threads)])
    with b.when(first):
        at = CONTEXT.index("failed")
        pointer = b.emit(f"getelementptr inbounds i64, ptr %ctx, i64 {at}", "p")
        b.raw(f"store i64 {code}, ptr {pointer}, align 8")
    body = "\n".join(["entry:", *b.allocas, *b.lines, "  ret void"])
    team = f"define void @{symbol}.team(ptr %ctx) #0 {{\n{body}\n}}\n"

    b = Builder(declarations)
    given, out = word("args"), word("out")

    def fork() -> None:
        count = b.emit("trunc i64 %threads to i32")
        args = [("ptr", f"@{symbol}.team"), ("ptr", "%ctx"), ("i32", count), ("i32", "0")]
        b.call("GOMP_parallel", "void", args)
        at = CONTEXT.index("failed")
        pointer = b.emit(f"getelementptr inbounds i64, ptr %ctx, i64 {at}", "p")
        b.raw(f"ret i64 {b.emit(f'load i64, ptr {pointer}, align 8')}")
        # `when` ends its body with a jump, which needs a block of its own after the return.
        b.place(b.label("unreachable"))

    if parallel:
        # A team of one costs what a team costs, and gains nothing: its work is not even counted.
        with b.when(b.emit("icmp sgt i64 %threads, 1")):
            if work is None:
                fork()
            else:
                least = b.emit(f"ptrtoint ptr {word('min_work')} to i64")
                enough = b.emit(f"icmp sge i64 {_work(b, function, work, given)}, {least}")
                with b.when(enough):
                    fork()
    args = [("ptr", "%ctx"), ("ptr", given), ("ptr", out), ("ptr", "null")]
    b.raw(f"ret i64 {b.call(symbol, 'i64', [*args, ('i64', '0'), ('i64', '1')])}")
    body = "\n".join(["entry:", *b.allocas, *b.lines])
    return team + f"\ndefine i64 @{symbol}.entry(ptr %ctx, i64 %threads) #0 {{\n{body}\n}}\n"


def symbols_of_arguments(function: host.HostFunction) -> dict[expr.Var, int]:
    """The symbols that are dimensions of arguments, with the number of the word that has each."""
    found: dict[expr.Var, int] = {}
    words: dict[int, int] = {}
    at = 0
    for reg in (r for p in function.params for r in host.leaves(p.value)):
        words[reg] = at
        at += words_of(function.registers[reg])
    for i in function.instrs:
        if isinstance(i, host.MatchShape) and i.value in words and i.kind != "scalar":
            first = words[i.value] + (i.kind == "tensor")
            for axis, dim in enumerate(i.dims or ()):
                if isinstance(dim, host.BindDim):
                    found[dim.symbol] = first + axis
    return found


def _work(b: Builder, function: host.HostFunction, work: expr.PrimExpr, given: str) -> str:
    """Compute the work of a call with these arguments."""

    def never(failed: str, message: str, numbers: tuple[str, str] | None = None, /) -> int:
        raise AssertionError(message)

    total = b.alloca(1, "i64", align=8)
    b.raw(f"store i64 0, ptr {total}, align 8")

    def scope() -> Scope:
        found = Scope(b, function.name, never)
        for symbol, word in symbols_of_arguments(function).items():
            pointer = b.emit(f"getelementptr inbounds i64, ptr {given}, i64 {word}", "p")
            size = b.emit(f"load i64, ptr {pointer}, align 8")
            found.values[symbol] = Value("int64", size, nonneg=True)
        return found

    def add(part: expr.PrimExpr) -> None:
        match part:
            case expr.Add(one, other) if any(isinstance(n, expr.Select) for n in walk(part)):
                add(one)
                add(other)
            case expr.Select(test, yes, no):
                # Of a product's versions only the one that runs: all of them took 0.5 us.
                text = b.materialise(emit_expr(scope(), test))
                then, otherwise, done = b.label("then"), b.label("else"), b.label("endif")
                b.branch(text, then, otherwise)
                for label, chosen in ((then, yes), (otherwise, no)):
                    b.place(label)
                    add(chosen)
                    b.jump(done)
                b.place(done)
            case _:
                before = b.emit(f"load i64, ptr {total}, align 8")
                more = b.materialise(emit_expr(scope(), part))
                b.raw(f"store i64 {b.emit(f'add i64 {before}, {more}')}, ptr {total}, align 8")

    add(work)
    return b.emit(f"load i64, ptr {total}, align 8")
