"""The frame of a host function whose code is emitted: its registers as words, its memory, and the
ways in which it fails. `host` emits the instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from relaxlab.codegen.artifact import CheckInfo
from relaxlab.codegen.check_messages import literal
from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.builder import Builder, Value, float_value, int_value, llvm_type
from relaxlab.codegen.llvm.context import CONTEXT, TOO_MUCH
from relaxlab.codegen.llvm.expressions import Scope, emit_expr
from relaxlab.codegen.llvm.team import Team, barrier
from relaxlab.ir import expr, host, types
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.errors import UserError

TEAM_ARGS = [("i64", "%thread"), ("i64", "%threads")]


class UnsupportedHost(UserError):
    """A host function needs the virtual machine (values of unknown type or rank)."""

    def __init__(self, message: str, function: str = "") -> None:
        super().__init__(message)
        self.function = function


def coarse(what: str, ty: types.Type) -> UnsupportedHost:
    """Return the error for a value whose type leaves its rank or dtype open."""
    if not isinstance(ty, types.TensorType | types.ShapeType | types.TupleType):
        return UnsupportedHost(f"{what} has type {ty}")
    return UnsupportedHost(
        f"{what} has type {ty}; native code needs ranks and dtypes: annotate the parameter, or "
        'name the dimensions with R.match_cast(x, R.Tensor(("n", "m"), "float32"))'
    )


def words_of(register: host.Register) -> int:
    """Words that the value of a register takes. Raises UnsupportedHost naming a tensor or shape of
    unknown rank or dtype."""
    match register.ty:
        case types.TensorType(_, str(), ndim) if ndim >= 0:
            return 1 + ndim
        case types.ShapeType(ndim=ndim) if ndim >= 0:
            return ndim
        case types.PrimType() | types.FuncType() | types.ObjectType():
            return 1
        case _:
            raise coarse(f"`{register.name}`", register.ty)


@dataclass(slots=True)
class Reg:
    """A register at run time: address and dimensions of a tensor, dimensions of a shape, or a
    scalar. `dims` None: the static type has them."""

    address: str = ""
    dims: list[Value] | None = None
    scalar: Value | None = None


@dataclass(slots=True)
class HostFrame:
    """The state of one host function that is emitted; `checks` and `arenas` are shared by the
    program. `checks` explains non-zero return values."""

    function: host.HostFunction
    declarations: dict[str, str]
    checks: list[CheckInfo]
    arenas: list[host.AllocStorage]
    is_entry: bool
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

    # -- memory --------------------------------------------------------------------------------

    def kept(self, i: host.AllocStorage, size: str) -> str:
        """Return memory that an entry function keeps between calls, grown when too small; in a
        function which others call it belongs to the frame."""
        if not self.is_entry:
            self.storages[i.dst] = self.allocate(size)
            return self.storages[i.dst]
        self.arenas.append(i)
        args = [("ptr", "%ctx"), ("i64", str(len(self.arenas) - 1)), ("i64", size)]
        return self.require_memory(self.b.call("relaxlab_arena", "ptr", [*args, *TEAM_ARGS]), size)

    def release_storages(self) -> None:
        """Free the frame's planned memory, which holds no result. (Memory planned inside a branch
        may hold its result: it stays until the whole call ends.)"""
        for i in self.function.instrs:
            if isinstance(i, host.AllocStorage) and i.dst in self.storages:
                args = [("ptr", "%ctx"), ("ptr", self.storages[i.dst]), *TEAM_ARGS]
                self.b.call("relaxlab_release", "void", args)

    def allocate(self, size: str) -> str:
        """The address of a new block that the caller of the program owns."""
        args = [("ptr", "%ctx"), ("i64", size), *TEAM_ARGS]
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

    # -- failures ------------------------------------------------------------------------------

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

    def return_failure(self, code: str) -> None:
        """Return the code of a called function unless it is 0."""
        good, bad = self.b.label("ok"), self.b.label("failed")
        self.b.branch(self.b.emit(f"icmp eq i64 {code}, 0"), good, bad)
        self.b.place(bad)
        self.b.raw(f"ret i64 {code}")
        self.b.place(good)


def _leaf_types(value: host.Value, ty: types.Type) -> Iterator[tuple[int, types.Type]]:
    """The registers of a parameter with the types that the signature gives them."""
    if isinstance(value, int):
        yield value, ty
    elif isinstance(ty, types.TupleType):
        for v, t in zip(value, ty.fields, strict=True):
            yield from _leaf_types(v, t)
