"""Host functions to LLVM: the graph function itself as native code.

A host function runs as a team: every thread walks the instructions and computes the same integers
and addresses, kernels divide their work, and thread 0 alone allocates, calls out and reports. The
caller passes one block of 64-bit words, the *context*; its layout is `CONTEXT`.

Each function is `i64 name(ptr ctx, ptr in, ptr out, ptr caller_stack, i64 thread, i64 threads)`:
values travel as words (a tensor: its address, then its dimensions; a shape: its dimensions; a
scalar: its bits), and the result is 0, or the number of the check that failed. `caller_stack` is
the start of the stack of the functions that call each other, null for the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from relaxlab.codegen.artifact import CheckInfo
from relaxlab.codegen.check_messages import check_info, literal
from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.blas import FUNCTIONS, call_blas
from relaxlab.codegen.llvm.builder import Builder, Value, float_value, int_value, llvm_type
from relaxlab.codegen.llvm.closures import (
    UnsupportedHost,
    call_closure,
    coarse,
    function_value,
    leaf_codes,
    make_closure,
    words_of,
)
from relaxlab.codegen.llvm.expressions import Scope, emit_expr
from relaxlab.codegen.llvm.guards import Guards
from relaxlab.codegen.llvm.marks import Marks
from relaxlab.codegen.llvm.statements import Team, barrier
from relaxlab.codegen.llvm.support import BLOCK_HEADER, CONTEXT, TOO_MUCH, symbol_of
from relaxlab.ir import expr, host, types
from relaxlab.ir.dtypes import bytes_of, is_float

_TEAM_ARGS = [("i64", "%thread"), ("i64", "%threads")]
STACK_BYTES = 2 << 20
"""Stack that functions which call each other may take: half of what Intel's OpenMP gives its
threads, which kernels need, too."""


@dataclass(slots=True)
class Reg:
    """A register at run time: address and dimensions of a tensor, dimensions of a shape, or a
    scalar. `dims` None: the static type has them."""

    address: str = ""
    dims: list[Value] | None = None
    scalar: Value | None = None


@dataclass(slots=True)
class HostEmitter:
    """Emits one host function; `checks`, `packed` and `arenas` are shared by the program.

    `checks` explains non-zero return values. `failures`: the possible failures per kernel. `marks`:
    the memory for times of calls, `guards`: the checks of a debug build; or None.
    """

    program: host.HostProgram
    function: host.HostFunction
    declarations: dict[str, str]
    failures: Mapping[str, tuple[str, ...]]
    checks: list[CheckInfo]
    packed: list[host.CallPacked]
    arenas: list[host.AllocStorage]
    is_entry: bool
    first_constant: int
    marks: Marks | None = None
    guards: Guards | None = None
    regs: dict[int, Reg] = field(default_factory=lambda: dict[int, Reg]())
    stack: str = "%caller_stack"
    storages: dict[int, str] = field(default_factory=lambda: dict[int, str]())
    scope: Scope = field(init=False)
    given: dict[int, types.Type] = field(init=False)

    def __post_init__(self) -> None:
        self.scope = Scope(Builder(self.declarations), self.function.name, self.fail_when)
        self.given = {}
        for p in self.function.params if self.is_entry else ():
            self.given.update(_leaf_types(p.value, p.ty))

    @property
    def b(self) -> Builder:
        return self.scope.builder

    def type_of(self, reg: int) -> types.Type:
        return self.function.registers[reg].ty

    # -- words ---------------------------------------------------------------------------------

    def read(self, base: str, word: int) -> str:
        """Load word `word` of a block of words."""
        pointer = self.b.emit(f"getelementptr inbounds i64, ptr {base}, i64 {word}", "p")
        return self.b.emit(f"load i64, ptr {pointer}, align 8")

    def write(self, base: str, word: int, text: str, ty: str = "i64") -> None:
        """Store word `word`."""
        pointer = self.b.emit(f"getelementptr inbounds i64, ptr {base}, i64 {word}", "p")
        self.b.raw(f"store {ty} {text}, ptr {pointer}, align 8")

    def context(self, name: str) -> str:
        """Load a word of the context."""
        return self.read("%ctx", CONTEXT.index(name))

    def set_context(self, name: str, text: str, ty: str = "i64") -> None:
        self.write("%ctx", CONTEXT.index(name), text, ty)

    def pointer(self, word: str) -> str:
        return self.b.emit(f"inttoptr i64 {word} to ptr", "p")

    def only_thread_0(self, body: Callable[[], None]) -> None:
        first = self.b.emit("icmp eq i64 %thread, 0")
        with self.b.when(first):
            body()

    def published(self, compute: Callable[[], str]) -> str:
        """Return a word that thread 0 computes and every thread gets."""
        self.only_thread_0(lambda: self.set_context("publish", compute()))
        barrier(self.scope, Team())
        word = self.context("publish")
        # The second barrier keeps thread 0 from publishing the next word before all have read this
        # one.
        barrier(self.scope, Team())
        return word

    # -- values --------------------------------------------------------------------------------

    def load_value(self, value: host.Value, base: str, word: int) -> int:
        """Read registers from words; returns the next word."""
        for reg in host.leaves(value):
            ty = self.type_of(reg)
            match ty:
                case types.TensorType(ndim=ndim) if ndim >= 0:
                    address = self.pointer(self.read(base, word))
                    dims = [self.size(base, word + 1 + i) for i in range(ndim)]
                    self.regs[reg] = Reg(address, dims)
                case types.ShapeType(ndim=ndim) if ndim >= 0:
                    self.regs[reg] = Reg(dims=[self.size(base, word + i) for i in range(ndim)])
                case types.PrimType(dtype):
                    self.regs[reg] = Reg(scalar=self.unpack_scalar(self.read(base, word), dtype))
                case types.FuncType() | types.ObjectType():
                    self.regs[reg] = Reg(self.pointer(self.read(base, word)))
                case _:
                    raise coarse(f"`{self.function.registers[reg].name}`", ty)
            word += words_of(self.function.registers[reg])
        return word

    def size(self, base: str, word: int) -> Value:
        return Value("int64", self.read(base, word), nonneg=True)

    def store_value(self, value: host.Value, base: str, word: int) -> int:
        """Write registers to words; returns the next word."""
        for reg in host.leaves(value):
            held, ty = self.regs[reg], self.type_of(reg)
            match ty:
                case types.TensorType():
                    self.write(base, word, held.address, "ptr")
                    for i, d in enumerate(self.dims(reg)):
                        self.write(base, word + 1 + i, d.text or "")
                case types.ShapeType():
                    for i, d in enumerate(self.dims(reg)):
                        self.write(base, word + i, d.text or "")
                case types.FuncType() | types.ObjectType():
                    self.write(base, word, held.address, "ptr")
                case _:
                    assert held.scalar is not None
                    self.write(base, word, self.pack_scalar(held.scalar))
            word += words_of(self.function.registers[reg])
        return word

    def unpack_scalar(self, word: str, dtype: str) -> Value:
        ty = llvm_type(dtype)
        if dtype.startswith("float"):
            bits = {"float64": 64, "float32": 32, "float16": 16}[dtype]
            small = word if bits == 64 else self.b.emit(f"trunc i64 {word} to i{bits}")
            return Value(dtype, self.b.emit(f"bitcast i{bits} {small} to {ty}"))
        if ty == "i64":
            return Value(dtype, word)
        return Value(dtype, self.b.emit(f"trunc i64 {word} to {ty}"))

    def pack_scalar(self, v: Value) -> str:
        if v.dtype.startswith("float"):
            bits = {"float64": 64, "float32": 32, "float16": 16}[v.dtype]
            word = self.b.emit(f"bitcast {v.ty} {v.text} to i{bits}")
            return word if bits == 64 else self.b.emit(f"zext i{bits} {word} to i64")
        if v.dtype == "bfloat16":
            return self.b.emit(f"zext {v.ty} {v.text} to i64")
        return cast(self.b, v, "int64").text or ""

    def dims(self, reg: int) -> list[Value]:
        """The dimensions of a tensor or shape register."""
        held, ty = self.regs[reg], self.type_of(reg)
        if held.dims is not None:
            return held.dims
        shape = ty.shape if isinstance(ty, types.TensorType) else None
        if shape is None:
            raise coarse(f"`{self.function.registers[reg].name}`", ty)
        return [self.scalar(d) for d in shape]

    def scalar(self, e: expr.PrimExpr) -> Value:
        v = emit_expr(self.scope, e)
        self.b.materialise(v)
        return v

    def bytes(self, reg: int) -> str:
        """The size of a tensor; more than there is memory where it overflows."""
        ty = self.type_of(reg)
        assert isinstance(ty, types.TensorType) and ty.dtype is not None
        total, overflow = int_value(bytes_of(ty.dtype)), int_value(0, "bool")
        for d in (dims := self.dims(reg)):
            total, one = self.checked_product(total, d)
            overflow = binary(self.b, expr.Or, overflow, one)
        # An empty tensor has no bytes, however long its other dimensions are.
        for d in dims:
            filled = binary(self.b, expr.NE, d, int_value(0))
            overflow = binary(self.b, expr.And, overflow, filled)
        if overflow.const is not None:
            return str(TOO_MUCH) if overflow.const else total.text or ""
        text = f"select i1 {overflow.text}, i64 {TOO_MUCH}, i64 {total.text}"
        return self.b.emit(text)

    def storage_bytes(self, size: expr.PrimExpr) -> str:
        """A size in bytes; more than there is memory where the arithmetic overflows, which the
        same arithmetic on floats shows."""
        if isinstance(size, expr.IntImm):
            return str(size.value if size.value < 1 << 63 else TOO_MUCH)
        exact = self.scalar(size)
        # In floats it grows past every limit instead of wrapping, and 53 bits of it are exact
        # enough for a comparison with 2^60.
        estimate = self.scalar(host.on_floats(size))
        limit = float_value(float(TOO_MUCH), "float64")
        fits = self.b.emit(f"fcmp olt double {estimate.text}, {limit.text}")
        return self.b.emit(f"select i1 {fits}, i64 {exact.text}, i64 {TOO_MUCH}")

    def checked_product(self, x: Value, y: Value) -> tuple[Value, Value]:
        """A product, and whether it overflowed."""
        if x.const is not None and y.const is not None:
            exact = int(x.const) * int(y.const)
            return int_value(exact), int_value(exact >= 1 << 63, "bool")
        pair = self.b.call(
            "llvm.umul.with.overflow.i64", "{ i64, i1 }", [("i64", v.text or "") for v in (x, y)]
        )
        value, bit = (self.b.emit(f"extractvalue {{ i64, i1 }} {pair}, {i}") for i in (0, 1))
        return Value("int64", value), Value("bool", bit)

    # -- the function --------------------------------------------------------------------------

    def emit(self) -> str:
        """The LLVM function."""
        if not self.is_entry:
            self.limit_recursion()
        word = 0
        for param in self.function.params:
            word = self.load_value(param.value, "%in", word)
            self.guarded(lambda g, param=param: g.aligned(self, param.value))
        self.instrs(self.function.instrs)
        self.guarded(lambda g: g.aligned(self, self.function.result))
        self.store_value(self.function.result, "%out", 0)
        self.release_storages()
        self.b.raw("ret i64 0")
        lines = ["entry:", *self.b.allocas, *self.b.lines]
        head = f"define i64 @{symbol_of(self.function.name)}"
        params = "ptr %ctx, ptr %in, ptr %out, ptr %caller_stack, i64 %thread, i64 %threads"
        return f"{head}({params}) #0 {{\n" + "\n".join(lines) + "\n}\n"

    def limit_recursion(self) -> None:
        """Stop before the stack overflows. The threads' stacks grow in step, so all stop at the
        same depth: frames with memory aligned to 64 bytes begin at multiples of it."""
        here = self.b.alloca(8, "i64")
        first = self.b.emit("icmp eq ptr %caller_stack, null")
        self.stack = self.b.emit(f"select i1 {first}, ptr {here}, ptr %caller_stack", "p")
        top, bottom = (self.b.emit(f"ptrtoint ptr {p} to i64") for p in (self.stack, here))
        used = self.b.emit(f"sub i64 {top}, {bottom}")
        ok = self.b.emit(f"icmp slt i64 {used}, {STACK_BYTES}")
        name = literal(self.function.name)
        text = f"`{name}` is called too deeply: the calls take {{got}} bytes of stack"
        info = CheckInfo(self.function.name, (text,))
        self.fail_unless(ok, info, 0, Value("int64", used), int_value(0))

    def instrs(self, instrs: tuple[host.Instr, ...]) -> None:
        for i in instrs:
            self.instr(i)

    def instr(self, i: host.Instr) -> None:
        match i:
            case host.MatchShape():
                self.match_shape(i)
            case host.ComputeScalar(symbol, value):
                self.scope.values[symbol] = self.scalar(value)
            case host.Require(condition, got, _):
                ok = self.scalar(condition)
                numbers = (0, self.scalar(got), int_value(0))
                self.fail_unless(ok.text or "", check_info(self.function, i), *numbers)
            case host.LoadConst(dst, index):
                data = self.function.constants[index]
                table = self.pointer(self.context("constants"))
                address = self.pointer(self.read(table, self.first_constant + index))
                self.regs[dst] = Reg(address, [int_value(d) for d in data.shape])
            case host.LoadFunction(dst, name):
                self.regs[dst] = Reg(function_value(name))
            case host.MakeClosure(dst):
                self.regs[dst] = Reg(make_closure(self, i))
            case host.MakeShape(dst, dims):
                self.regs[dst] = Reg(dims=[self.scalar(d) for d in dims])
            case host.MakeScalar(dst, value):
                self.regs[dst] = Reg(scalar=self.scalar(value))
            case host.AllocStorage(dst):
                self.regs[dst] = Reg(self.storage(i))
            case host.Alloc(dst, _):
                self.regs[dst] = Reg()
                size = self.bytes(dst)
                self.regs[dst] = Reg(self.allocate(size))
                self.guarded(lambda g: g.allocated(self, dst, size))
            case host.View(dst, base, offset):
                self.view(dst, base, offset)
                self.guarded(lambda g: g.placed(self, i))
            case host.Kill(tensor):
                self.guarded(lambda g: g.dead(self, tensor))
            case host.CallKernel():
                with self.timed(i):
                    self.kernel(i)
                self.guarded(lambda g: g.verify(self, f"the kernel `{i.function}`"))
            case host.CallFunction():
                self.call_function(i)
            case host.CallPacked():
                with self.timed(i):
                    self.call_packed(i)
                self.guarded(lambda g: g.verify(self, f"`{i.function}`"))
            case host.If():
                self.branch(i)
            case _:
                raise UnsupportedHost(f"{type(i).__name__} in `{self.function.name}`")

    def guarded(self, emit: Callable[[Guards], None]) -> None:
        """Emit a check of a debug build."""
        if self.guards is not None:
            emit(self.guards)

    def fail_when(self, failed: str, message: str, _numbers: object = None) -> int:
        """Stop where a bit is set (an expression that has no value)."""
        where = f"{message} in `{literal(self.function.name)}`"
        info = CheckInfo(self.function.name, (where,))
        zero = int_value(0)
        self.fail_unless(self.b.emit(f"xor i1 {failed}, true"), info, 0, zero, zero)
        return len(self.checks)

    def fail_unless(
        self, ok: str, check: CheckInfo, axis: int | str, got: Value, expected: Value
    ) -> None:
        """Return the check's number unless `ok`, which is the same in every thread."""
        self.checks.append(check)
        number = len(self.checks)
        good, bad = self.b.label("ok"), self.b.label("failed")
        self.b.branch(ok, good, bad)
        self.b.place(bad)

        numbers = [("i64", str(axis)), ("i64", got.text or ""), ("i64", expected.text or "")]
        self.b.call("relaxlab_fail", "void", [("ptr", "%ctx"), ("i64", "%thread"), *numbers])
        self.b.raw(f"ret i64 {number}")
        self.b.place(good)

    def match_shape(self, i: host.MatchShape) -> None:
        held = self.regs[i.value]
        if i.dims is not None:
            info = check_info(self.function, i)
            dims = [held.scalar] if i.kind == "scalar" else self.dims(i.value)
            for axis, (dim, check) in enumerate(zip(dims, i.dims, strict=True)):
                assert dim is not None
                match check:
                    case host.BindDim(symbol):
                        bound = cast(self.b, dim, "int64")
                        bound.nonneg = bound.nonneg or i.kind != "scalar"
                        self.scope.values[symbol] = bound
                    case host.CheckDim(expr.IntImm() as size) if self.declared(i, axis) == size:
                        pass  # the caller checked constant dimensions of its arguments
                    case host.CheckDim(expected):
                        want, zero = self.scalar(expected), int_value(0)
                        if is_float(expected.dtype):
                            same = binary(self.b, expr.EQ, cast(self.b, dim, expected.dtype), want)
                            self.fail_unless(self.b.materialise(same), info, axis, zero, zero)
                            continue
                        want, got = (cast(self.b, v, "int64") for v in (want, dim))
                        ok = self.b.emit(f"icmp eq i64 {got.text}, {want.text}")
                        self.fail_unless(ok, info, axis, got, want)
                    case None:
                        pass
            if i.kind == "tensor" and held.dims is None:
                # The type of `dst` is a claim, and a later instruction may check the rest of it.
                held = replace(held, dims=[d for d in dims if d is not None])
        self.regs[i.dst] = held

    def declared(self, i: host.MatchShape, axis: int) -> expr.PrimExpr | None:
        """The dimension that an entry's signature declares, where a parameter is checked."""
        ty = self.given.get(i.value)
        if isinstance(ty, types.TensorType) and ty.shape is not None and axis < len(ty.shape):
            return ty.shape[axis]
        return None

    def storage(self, i: host.AllocStorage) -> str:
        """Planned memory; where each thread has its own, this thread's part of it."""
        size = self.storage_bytes(i.size)
        if self.guards is not None:
            self.guards.storages[i.dst] = size, i.per_thread
        if not i.per_thread:
            return self.planned(i, size)
        # Threads that write keep off each other's cache lines and the ones prefetched with them.
        padded = self.b.emit(f"add i64 {size}, {2 * BLOCK_HEADER}")
        whole, overflow = self.checked_product(
            Value("int64", padded), Value("int64", "%threads", nonneg=True)
        )
        total = self.b.emit(f"select i1 {overflow.text}, i64 {TOO_MUCH}, i64 {whole.text}")
        start = self.planned(i, total)
        offset = self.b.emit(f"mul i64 {padded}, %thread")
        return self.b.emit(f"getelementptr inbounds i8, ptr {start}, i64 {offset}", "p")

    def planned(self, i: host.AllocStorage, size: str) -> str:
        """Planned memory; in a debug build between zones."""
        return self.kept(i, size) if self.guards is None else self.guards.storage(self, i, size)

    def kept(self, i: host.AllocStorage, size: str) -> str:
        """Return memory that an entry function keeps between calls, grown when too small; in a
        function which others call it belongs to the frame."""
        if not self.is_entry:
            self.storages[i.dst] = self.allocate(size)
            return self.storages[i.dst]
        self.arenas.append(i)
        slot = 2 * (len(self.arenas) - 1)
        args = [("ptr", "%ctx"), ("i64", str(slot)), ("i64", size)]
        return self.require_memory(self.b.call("relaxlab_arena", "ptr", [*args, *_TEAM_ARGS]), size)

    def release_storages(self) -> None:
        """Free the frame's planned memory, which holds no result. (Memory planned inside a branch
        may hold its result: it stays until the whole call ends.)"""
        for i in self.function.instrs:
            if isinstance(i, host.AllocStorage) and i.dst in self.storages:
                args = [("ptr", "%ctx"), ("ptr", self.storages[i.dst]), *_TEAM_ARGS]
                self.b.call("relaxlab_release", "void", args)

    def allocate(self, size: str) -> str:
        """The address of a new block that the caller of the program owns."""
        args = [("ptr", "%ctx"), ("i64", size), *_TEAM_ARGS]
        return self.require_memory(self.b.call("relaxlab_alloc", "ptr", args), size)

    def require_memory(self, address: str, size: str) -> str:
        """The address, after stopping where an allocation of `size` bytes failed."""
        message = f"`{literal(self.function.name)}` asked for {{got}} bytes, more than there are"
        info = CheckInfo(self.function.name, (message,), memory=True)
        found = self.b.emit(f"icmp ne ptr {address}, null")
        # The C library may return null for zero bytes.
        nothing = self.b.emit(f"icmp eq i64 {size}, 0")
        ok = self.b.emit(f"or i1 {found}, {nothing}")
        self.fail_unless(ok, info, 0, Value("int64", size), int_value(0))
        return address

    def view(self, dst: int, base: int, offset: expr.PrimExpr) -> None:
        address = self.regs[base].address
        by = self.scalar(offset)
        if by.const != 0:
            address = self.b.emit(f"getelementptr inbounds i8, ptr {address}, i64 {by.text}", "p")
        self.regs[dst] = Reg(address)

    @contextmanager
    def timed(self, i: host.CallKernel | host.CallPacked) -> Generator[None]:
        """Emit marks before and after the code emitted inside, in a timed program."""
        if self.marks is None:
            yield
            return
        number = 2 * self.marks.number(self.function.name, i)
        thread = ("i64", "%thread")
        self.b.call("relaxlab_mark", "void", [("i64", str(number)), thread])
        yield
        self.b.call("relaxlab_mark", "void", [("i64", str(number + 1)), thread])

    def kernel(self, i: host.CallKernel) -> None:
        function = i.function
        args = [("ptr", self.regs[r].address) for r in i.buffers]
        values = [self.scalar(e) for e in i.scalars]
        args += [(v.ty, v.text or "") for v in values]
        # Each thread runs the whole kernel as a team of one: cheaper than a barrier for work of a
        # few hundred nanoseconds (NOTES, *Barriers*).
        args += [("i64", "0"), ("i64", "1")] if i.alone else _TEAM_ARGS
        failures = self.failures[function]
        if not failures:
            self.b.call(symbol_of(function), "void", args)
            return
        at = CONTEXT.index("kernel_failed")
        slot = self.b.emit(f"getelementptr inbounds i64, ptr %ctx, i64 {at}", "p")
        code = self.b.call(symbol_of(function), "i64", [*args, ("ptr", slot)])
        messages = (f"{m} in `{literal(function)}`" for m in failures)
        info = CheckInfo(self.function.name, ("", *messages))
        ok = self.b.emit(f"icmp eq i64 {code}, 0")
        got, expected = (Value("int64", self.context(word)) for word in ("got", "expected"))
        self.fail_unless(ok, info, code, got, expected)

    def call_function(self, i: host.CallFunction) -> None:
        if not isinstance(i.function, str):
            call_closure(self, i)
            return
        callee = self.program.functions[i.function]
        self.require_same(i.args, callee, [p.value for p in callee.params])
        self.require_same([i.dst], callee, [callee.result])
        count_in = sum(words_of(self.function.registers[r]) for a in i.args for r in host.leaves(a))
        count_out = sum(words_of(callee.registers[r]) for r in host.leaves(callee.result))
        given, returned = (
            self.b.alloca(max(1, count_in), "i64"),
            self.b.alloca(max(1, count_out), "i64"),
        )
        word = 0
        for arg in i.args:
            word = self.store_value(arg, given, word)
        args = [("ptr", "%ctx"), ("ptr", given), ("ptr", returned), ("ptr", self.stack)]
        code = self.b.call(symbol_of(callee.name), "i64", [*args, *_TEAM_ARGS])
        self.return_failure(code)
        self.load_value(i.dst, returned, 0)

    def return_failure(self, code: str) -> None:
        """Return the code of a called function unless it is 0."""
        good, bad = self.b.label("ok"), self.b.label("failed")
        self.b.branch(self.b.emit(f"icmp eq i64 {code}, 0"), good, bad)
        self.b.place(bad)
        self.b.raw(f"ret i64 {code}")
        self.b.place(good)

    def require_same(
        self, mine: Iterable[host.Value], other: host.HostFunction, theirs: Iterable[host.Value]
    ) -> None:
        """Raise UnsupportedHost if values are laid out in words differently on the two sides of a
        call or a branch."""
        if leaf_codes(self.function, mine) != leaf_codes(other, theirs):
            raise UnsupportedHost(
                f"`{self.function.name}` and `{other.name}` know different ranks or kinds of a "
                "value that one gets from the other"
            )

    def call_packed(self, i: host.CallPacked) -> None:
        """Thread 0 calls back into Python with the arguments as words; BLAS is called directly."""
        if i.function in FUNCTIONS:
            call_blas(self, i)
            return
        leaves = [r for a in i.args if isinstance(a, int | tuple) for r in host.leaves(a)]
        scalars = [a for a in i.args if isinstance(a, expr.PrimExpr)]
        out = [] if i.dst is None else list(host.leaves(i.dst))
        for ty in map(self.type_of, (*leaves, *out)):
            if isinstance(ty, types.FuncType | types.ObjectType) or (
                isinstance(ty, types.TensorType) and ty.dtype is None
            ):
                text = f"`{i.function}`, called in `{self.function.name}`, takes or returns {ty}"
                raise UnsupportedHost(text)
        count = sum(words_of(self.function.registers[r]) for r in (*leaves, *out)) + len(scalars)
        table = self.b.alloca(max(1, count), "i64")
        number = len(self.packed)
        self.packed.append(i)
        word = 0
        for arg in i.args:
            if isinstance(arg, expr.PrimExpr):
                self.write(table, word, self.pack_scalar(self.scalar(arg)))
                word += 1
            elif not isinstance(arg, str):
                word = self.store_value(arg, table, word)

        def call() -> str:
            callback = self.pointer(self.context("callback"))
            name = self.b.emit(f"call i64 {callback}(i64 {number}, ptr {table})")
            with self.b.when(self.b.emit(f"icmp eq i64 {name}, 0")):
                self.set_context("packed", table, "ptr")
            return name

        code = self.published(call)
        ok = self.b.emit(f"icmp eq i64 {code}, 0")
        info = CheckInfo(self.function.name, ("",), packed=i.function)
        self.fail_unless(ok, info, 0, int_value(0), int_value(0))
        if i.dst is not None:
            shared = self.pointer(self.context("packed"))
            self.load_value(i.dst, shared, word)
            barrier(self.scope, Team())

    def branch(self, i: host.If) -> None:
        b = self.b
        condition = self.regs[i.condition]
        if condition.scalar is not None:
            test = b.materialise(condition.scalar)
        else:
            byte = b.emit(f"load i8, ptr {condition.address}, align 1")
            test = b.emit(f"icmp ne i8 {byte}, 0")
        barrier(self.scope, Team())
        leaves = list(host.leaves(i.dst))
        count = sum(words_of(self.function.registers[r]) for r in leaves)
        merged = b.alloca(max(1, count), "i64")
        yes, no, done = b.label("then"), b.label("else"), b.label("endif")
        b.branch(test, yes, no)
        for label, instrs, value in (
            (yes, i.then_instrs, i.then_value),
            (no, i.else_instrs, i.else_value),
        ):
            b.place(label)
            # Symbols that one branch binds are unknown in the other and after both.
            saved = dict(self.scope.values)
            blocks = [] if self.guards is None else list(self.guards.blocks)
            self.instrs(instrs)
            # Both branches write the same words, whose number the code after them has compiled in.
            self.require_same([value], self.function, [i.dst])
            self.store_value(value, merged, 0)
            self.scope.values = saved
            if self.guards is not None:  # what a branch allocates is not there in the other
                self.guards.blocks = blocks
            b.jump(done)
        b.place(done)
        self.load_value(i.dst, merged, 0)
        self.guarded(lambda g: g.merged(i))


def _leaf_types(value: host.Value, ty: types.Type) -> Iterator[tuple[int, types.Type]]:
    """The registers of a parameter with the types that the signature gives them."""
    if isinstance(value, int):
        yield value, ty
    elif isinstance(ty, types.TupleType):
        for v, t in zip(value, ty.fields, strict=True):
            yield from _leaf_types(v, t)
