"""Functions as values: records of an address and of the arguments that are bound already.

A record is four words, `RECORD`, then the words of the bound arguments. The record of a function
without any is a constant of the program; others belong to the call, like its results. Arguments and
parameters are compared when a function value is called, since types need not tell: a *layout* has a
number per tensor, shape, scalar or function (`leaf_code`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from relaxlab.codegen.artifact import CheckInfo
from relaxlab.codegen.check_messages import literal
from relaxlab.codegen.llvm.builder import Value, int_value
from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.host_frame import HostFrame, coarse, words_of
from relaxlab.codegen.llvm.lowlevel import Address, Array, Flag, Record, Word, low_level
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.team import Team, barrier
from relaxlab.ir import host, types


class Layout(Record):
    """The numbers of leaves of all parameters and of the result; their codes follow."""

    params: Word
    results: Word


class Closure(Record):
    """The address of the function, the numbers of words and of leaves bound, and its layout."""

    code: Address
    words: Word
    leaves: Word
    layout: Layout


RECORD = tuple(Closure.__annotations__)


def leaf_code(register: host.Register) -> int:
    """Return a number that is equal for two registers whose values are laid out in words alike."""
    match register.ty:
        case types.TensorType(_, dtype, ndim) if ndim >= 0:
            return 1 << 48 | _dtype_code(dtype) << 8 | ndim
        case types.ShapeType(ndim=ndim) if ndim >= 0:
            return 2 << 48 | ndim
        case types.PrimType(dtype):
            return 3 << 48 | _dtype_code(dtype) << 8
        case types.DataType(name):
            return 5 << 48 | _dtype_code(name)
        case types.FuncType() | types.ObjectType():  # what is of no known type is a function
            return 4 << 48
        case _:
            raise coarse(f"`{register.name}`", register.ty)


def _dtype_code(dtype: str | None) -> int:
    return zlib.crc32((dtype or "").encode())


def leaf_codes(function: host.HostFunction, values: Iterable[host.Value]) -> list[int]:
    """The codes of values of a function."""
    return [leaf_code(function.registers[r]) for v in values for r in host.leaves(v)]


def has_functions(function: host.HostFunction) -> str | None:
    """The reason why no caller outside the program can give a parameter, or take the result: it is
    a function. None where there is no such reason."""
    named = [(f"parameter `{p.name}`", p.value) for p in function.params]
    for what, value in (*named, ("the result", function.result)):
        for r in host.leaves(value):
            ty = function.registers[r].ty
            if isinstance(ty, types.FuncType | types.ObjectType) and not isinstance(
                ty, types.DataType
            ):
                return (
                    f"{what} of `{function.name}` has type {ty}: natively functions are passed "
                    "between functions of a program alone; call it from another one, or run it in "
                    "the virtual machine"
                )
    return None


def loaded_functions(program: host.HostProgram) -> set[str]:
    """The functions that are used as values."""
    instrs = (i for f in program.functions.values() for i in host.walk_instrs(f.instrs))
    return {i.function for i in instrs if isinstance(i, host.LoadFunction)}


def closure_texts(program: host.HostProgram, declarations: dict[str, str]) -> list[str]:
    """Return constants for the functions used as values, and the functions that calls of them
    need."""
    texts: list[str] = []
    for name in sorted(loaded_functions(program)):
        f, symbol = program.functions[name], symbol_of(name)
        given = leaf_codes(f, [p.value for p in f.params])
        returned = leaf_codes(f, [f.result])
        layout = [len(given), len(returned), *given, *returned]
        texts.append(
            f"@{symbol}.layout = private constant {_words(layout)}\n"
            f"@{symbol}.value = private constant {{ ptr, i64, i64, ptr }} "
            f"{{ ptr @{symbol}, i64 0, i64 0, ptr @{symbol}.layout }}\n"
        )
    if "relaxlab_fits" in declarations:
        texts.append(low_level_text(fits, declarations))
        declarations["llvm.memcpy.p0.p0.i64"] = (
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        )
    return texts


def _words(values: list[int]) -> str:
    return f"[{len(values)} x i64] [{', '.join(f'i64 {v}' for v in values)}]"


def function_value(name: str) -> str:
    """The address of the record of a function without given arguments."""
    return f"@{symbol_of(name)}.value"


def make_closure(e: HostFrame, i: host.MakeClosure) -> str:
    """The address of a new record: that of `i.function` with more arguments given."""
    source = e.regs[i.function].address
    codes = leaf_codes(e.function, i.args)
    what = "is given arguments that it does not take"
    _require(e, i.function, source, codes, -1, f"{what}: {_types(e, i.args)}")
    old, leaves = e.read(source, RECORD.index("words")), e.read(source, RECORD.index("leaves"))
    count = sum(words_of(e.function.registers[r]) for a in i.args for r in host.leaves(a))
    words = e.b.emit(f"add i64 {old}, {count}")
    bytes_ = _bytes(e, e.b.emit(f"add i64 {words}, {len(RECORD)}"))
    record = e.allocate(bytes_)

    def fill() -> None:
        e.write(record, RECORD.index("code"), e.read(source, RECORD.index("code")))
        e.write(record, RECORD.index("words"), words)
        e.write(record, RECORD.index("leaves"), e.b.emit(f"add i64 {leaves}, {len(codes)}"))
        e.write(record, RECORD.index("layout"), e.read(source, RECORD.index("layout")))
        _store(e, source, old, _given(e, record), i.args)

    e.only_thread_0(fill)
    barrier(e.scope, Team())
    return record


def call_closure(e: HostFrame, i: host.CallFunction) -> None:
    """Call the function that a register holds."""
    assert isinstance(i.function, int)
    record = e.regs[i.function].address
    codes, returned = leaf_codes(e.function, i.args), leaf_codes(e.function, [i.dst])
    wanted = f"{_types(e, i.args)} to {_types(e, [i.dst])}"
    text = f"is called as a function from {wanted}, which it is not"
    _require(e, i.function, record, [*codes, *returned], len(returned), text)
    old = e.read(record, RECORD.index("words"))
    count = sum(words_of(e.function.registers[r]) for a in i.args for r in host.leaves(a))
    words = e.b.emit(f"add i64 {old}, {max(1, count)}")
    block = e.b.emit(f"alloca i64, i64 {words}, align 64", "p")
    _store(e, record, old, block, i.args)
    results = sum(words_of(e.function.registers[r]) for r in host.leaves(i.dst))
    out = e.b.alloca(max(1, results), "i64")
    code = e.pointer(e.read(record, RECORD.index("code")))
    args = f"ptr %ctx, ptr {block}, ptr {out}, ptr {e.stack}, i64 %thread, i64 %threads"
    e.return_failure(e.b.emit(f"call i64 {code}({args})"))
    e.load_value(i.dst, out, 0)


def _store(e: HostFrame, source: str, old: str, block: str, args: tuple[host.Value, ...]) -> None:
    """`args`, then the `old` words given in the record `source`, into `block`."""
    word = 0
    for arg in args:
        word = e.store_value(arg, block, word)
    rest = e.b.emit(f"getelementptr i64, ptr {block}, i64 {word}", "p")
    copied = [("ptr", rest), ("ptr", _given(e, source)), ("i64", _bytes(e, old)), ("i1", "false")]
    e.b.call("llvm.memcpy.p0.p0.i64", "void", copied)


def _given(e: HostFrame, record: str) -> str:
    return e.b.emit(f"getelementptr i64, ptr {record}, i64 {len(RECORD)}", "p")


def _bytes(e: HostFrame, words: str) -> str:
    return e.b.emit(f"mul i64 {words}, 8")


def _require(
    e: HostFrame, reg: int, record: str, codes: list[int], results: int, text: str
) -> None:
    """Stop unless the function value takes and returns this; `results` -1: arguments alone, of
    which there may be more."""
    table = e.b.alloca(max(1, len(codes)), "i64")
    for word, code in enumerate(codes):
        e.write(table, word, str(code))
    count = len(codes) - max(0, results)
    args = [("ptr", record), ("ptr", table), ("i64", str(count)), ("i64", str(results))]
    ok = e.b.call("relaxlab_fits", "i1", args)
    message = f"`{e.function.registers[reg].name}` in `{e.function.name}` {text}"
    info = CheckInfo(e.function.name, (literal(message),))
    e.fail_unless(ok, info, 0, int_value(0), Value("int64", "0"))


def _types(e: HostFrame, values: Iterable[host.Value]) -> str:
    return f"({', '.join(str(e.type_of(r)) for v in values for r in host.leaves(v))})"


@low_level
def fits(closure: Closure, codes: Array[Word], n: Word, results: Word) -> Flag:
    """True if a function value takes `n` more arguments with these codes. With `results` at least
    0, they are all that it lacks, and as many codes of results follow, which are its own."""
    layout = closure.layout
    first = layout.params - closure.leaves - n
    if first < 0:
        return False
    if results >= 0 and (first > 0 or results != layout.results):
        return False
    own = Array[Word](layout + 8 * (2 + first))
    if not all(codes[i] == own[i] for i in range(n)):
        return False
    given = closure.leaves
    return all(codes[n + i] == own[n + given + i] for i in range(results))
