"""The host program: what `lower_shapes` produces, the virtual machine steps through, and the
native code generator compiles.

A `HostFunction` is a list of instructions over registers. Tuples exist only in its signature: a
tuple value is a nested Python tuple of registers. Integers are symbols (`expr.Var`, int64) that
the shape matches at the top bind from the parameters; every size, offset and scalar argument is an
expression over them. A register's type is authoritative: an instruction that makes a tensor takes
its shape and dtype from there. Registers are assigned once (once per branch of an `If`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir import expr, loops, types
from relaxlab.ir.brief import Brief
from relaxlab.ir.data import DataDef
from relaxlab.ir.node import Node, rewrite
from relaxlab.ir.substitute import symbols_in

Value: TypeAlias = "int | tuple[Value, ...]"
"""A register, or a tuple of values."""

PackedArg: TypeAlias = "Value | expr.PrimExpr | str"
"""An argument of a packed call: registers, a scalar computed on the spot, or a string."""


def on_floats(e: expr.PrimExpr) -> expr.PrimExpr:
    """An integer expression computed in float64: nearly the same value, and no wrapping."""

    def leaf(e: Node) -> Node | None:
        if isinstance(e, expr.IntImm) and e.dtype == "int64":
            return expr.FloatImm(float(e.value), "float64")
        return expr.Cast("float64", e) if isinstance(e, expr.Var) else None

    return rewrite(e, leaf)


def leaves(value: Value) -> Iterator[int]:
    """The registers of a value, left to right."""
    if isinstance(value, int):
        yield value
    else:
        for item in value:
            yield from leaves(item)


@dataclass(frozen=True, slots=True)
class Register:
    """A register: the name of the graph variable it holds, and its type.

    TensorType: pointer to dense row-major data (and, when `shape` is None, its dimensions);
    ShapeType; PrimType; FuncType: a function of the program; ObjectType: anything else, a storage
    included.
    """

    name: str
    ty: types.Type


@dataclass(frozen=True, slots=True)
class HostParam:
    """A parameter; `value` nests registers the way `ty` nests tuples."""

    name: str
    ty: types.Type
    value: Value


@dataclass(frozen=True, slots=True)
class BindDim:
    """This dimension defines `symbol`."""

    symbol: expr.Var


@dataclass(frozen=True, slots=True)
class CheckDim:
    """This dimension must equal `expected`; `origin` is the place its symbols come from."""

    expected: expr.PrimExpr
    origin: str


@dataclass(frozen=True, slots=True)
class MatchShape:
    """Check `value` against a type, bind the symbols it defines, and name the result `dst`.

    The value is a tensor (dtype, rank and dimensions are checked), a shape (rank and dimensions) or
    a scalar (one dimension: its value). `dst` is the same object under its finer type; it may be
    the same register. `ndim` -1: any rank; `dims` None: any dimensions; a None in `dims`: unchecked
    (its equality is proved). `what` names the value: "parameter `x` of `main`".
    """

    value: int
    dst: int
    kind: str  # "tensor", "shape" or "scalar"
    what: str
    dtype: str | None = None
    ndim: int = -1
    dims: tuple[BindDim | CheckDim | None, ...] | None = None

    def rank_message(self, got: int) -> str:
        """The error text when the rank is wrong."""
        return f"{self.what} has {got} dimensions, expected {self.ndim}"

    def dtype_message(self, got: str) -> str:
        """The error text when the dtype is wrong."""
        return f"{self.what} has dtype {got}, expected {self.dtype}"

    def dim_message(self, axis: int, got: int, expected: int) -> str:
        """The error text when dimension `axis` is `got`."""
        assert self.dims is not None
        check = self.dims[axis]
        assert isinstance(check, CheckDim)
        scalar = self.kind == "scalar"
        name = f"the value of {self.what}" if scalar else f"dimension {axis} of {self.what}"
        text = f"{name} is {got}, expected {expected}"
        if not isinstance(check.expected, expr.IntImm):
            text = f"{name} is {got}, expected {check.expected} = {expected}"
        return f"{text} ({check.origin})" if check.origin else text


@dataclass(frozen=True, slots=True)
class ComputeScalar:
    """symbol = value"""

    symbol: expr.Var
    value: expr.PrimExpr


@dataclass(frozen=True, slots=True)
class Require:
    """Stop with `message` and `got` unless `condition` holds (a declared bound, for example)."""

    condition: expr.PrimExpr
    got: expr.PrimExpr
    message: str

    def text(self, got: int) -> str:
        """The error text."""
        return f"{self.message} (it is {got})"


@dataclass(frozen=True, slots=True)
class LoadConst:
    """dst = constants[index] of the host function"""

    dst: int
    index: int


@dataclass(frozen=True, slots=True)
class LoadFunction:
    """dst = the program's function of that name, as a value"""

    dst: int
    function: str


@dataclass(frozen=True, slots=True)
class MakeClosure:
    """dst = the function in register `function` with its last arguments given"""

    dst: int
    function: int
    args: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class MakeShape:
    """dst = the shape value `dims`"""

    dst: int
    dims: tuple[expr.PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class MakeScalar:
    """dst = the scalar `value`"""

    dst: int
    value: expr.PrimExpr


@dataclass(frozen=True, slots=True)
class AllocStorage:
    """dst = `size` bytes, aligned to 64, that live until the function returns. With `per_thread`
    each thread of the team has its own."""

    dst: int
    size: expr.PrimExpr
    per_thread: bool = False


@dataclass(frozen=True, slots=True)
class Alloc:
    """dst = a new tensor. One that `escapes` may be returned: the caller owns it."""

    dst: int
    escapes: bool


@dataclass(frozen=True, slots=True)
class View:
    """dst = the tensor `offset` bytes into `base`, a storage or another tensor (no copy)."""

    dst: int
    base: int
    offset: expr.PrimExpr


@dataclass(frozen=True, slots=True)
class Kill:
    """The tensor's memory is read no more before something else is written there. Nothing happens,
    except where such reads are looked for: in the virtual machine and in debug builds, which fill
    the memory with poison."""

    tensor: int


@dataclass(frozen=True, slots=True)
class CallKernel:
    """Run the loop function `function` on tensors, its outputs among them.

    `scalars` are the values of `kernel_symbols` of the function, in that order. `alone`: every
    thread runs all of it, writing only memory of its own; else the team shares the work, with a
    barrier at its end.
    """

    function: str
    buffers: tuple[int, ...]
    scalars: tuple[expr.PrimExpr, ...]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class CallPacked:
    """dst = function(*args), a function registered outside the program.

    `relaxlab.operator` is one that is always there: it runs an operator that has no loops
    (`unique`, `print`) by its NumPy reference; its first two arguments are the operator's name and
    its attributes as JSON.
    `dst` None: the result is dropped; in destination-passing calls the outputs are the last args.
    `overwrites`: the tensors among the arguments that it updates in place.
    """

    function: str
    args: tuple[PackedArg, ...]
    dst: Value | None
    overwrites: tuple[int, ...] = ()

    def place(self, function: HostFunction) -> str:
        """Return the name of the computed value for messages, in the function with the call."""
        if self.dst is None and self.function == "relaxlab.operator":
            return f"the effects of `{function.name}`"
        if self.dst is None:
            return f"the outputs of `{self.function}` in `{function.name}`"
        first = next(leaves(self.dst), None)
        name = self.function if first is None else function.registers[first].name
        return f"`{name}` in `{function.name}`"


@dataclass(frozen=True, slots=True)
class CallFunction:
    """dst = function(*args), a graph function by name or a register holding one."""

    function: str | int
    args: tuple[Value, ...]
    dst: Value


@dataclass(frozen=True, slots=True)
class Pack:
    """dst = a tuple object, where a value of unknown type is wanted."""

    dst: int
    value: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Unpack:
    """dst = the fields of the tuple object `value`; an error naming `what` if it is not one."""

    dst: tuple[Value, ...]
    value: int
    what: str


@dataclass(frozen=True, slots=True)
class If:
    """Run one list of instructions; then `dst` = that list's result. `condition`: a bool scalar,
    or a tensor with no dimensions that holds one."""

    condition: int
    then_instrs: tuple[Instr, ...]
    then_value: Value
    else_instrs: tuple[Instr, ...]
    else_value: Value
    dst: Value


Instr: TypeAlias = (
    MatchShape | ComputeScalar | Require | LoadConst | LoadFunction | MakeClosure | MakeShape
    | MakeScalar | AllocStorage | Alloc | View | Kill | CallKernel | CallPacked | CallFunction
    | Pack | Unpack | If
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class HostFunction(Brief):
    """A graph function as instructions.

    `symbols` are all integers the function uses, parameters' first. `written` are the parameter
    registers that kernels update in place: they must be writable arrays. `captures` are ranges
    (first, last + 1) of `instrs` whose kernels a GPU may capture and replay. `num_input` of the
    parameters, the first, are no weights; None: all.
    """

    name: str
    params: tuple[HostParam, ...]
    registers: tuple[Register, ...]
    symbols: tuple[expr.Var, ...]
    constants: tuple[np.ndarray[Any, Any], ...]
    instrs: tuple[Instr, ...]
    result: Value
    result_type: types.Type
    written: frozenset[int] = frozenset()
    private: bool = False
    captures: tuple[tuple[int, int], ...] = ()
    num_input: int | None = None

    def storages(self) -> tuple[AllocStorage, ...]:
        """All storages, those in branches included."""
        return tuple(i for i in walk_instrs(self.instrs) if isinstance(i, AllocStorage))


@dataclass(frozen=True, slots=True, repr=False)
class HostProgram(Brief):
    """Host functions, the loop functions they call, and the data types of their values, by name."""

    functions: dict[str, HostFunction]
    kernels: dict[str, loops.PrimFunc]
    data: Mapping[str, DataDef] = field(default_factory=dict[str, DataDef])


def walk_instrs(instrs: tuple[Instr, ...]) -> Iterator[Instr]:
    """All instructions, those of branches after their `If`."""
    for i in instrs:
        yield i
        if isinstance(i, If):
            yield from walk_instrs(i.then_instrs)
            yield from walk_instrs(i.else_instrs)


def in_order(func: loops.PrimFunc, buffers: Iterable[Any], scalars: Iterable[Any]) -> list[Any]:
    """Return arguments of a loop function, those for its buffers and those for its scalar
    parameters, in the order of its parameters; too few or too many stay so."""
    arrays, numbers = list(buffers)[::-1], list(scalars)[::-1]
    lists = (numbers if isinstance(p, expr.Var) else arrays for p in func.params)
    return [*(of.pop() for of in lists if of), *arrays[::-1], *numbers[::-1]]


def kernel_arguments(
    func: loops.PrimFunc, buffers: Iterable[Any], symbols: Sequence[Any]
) -> list[Any]:
    """Return the arguments of a loop function, in the order of its parameters, of what a
    `CallKernel` gives it: its buffers and the values of its `kernel_symbols`."""
    count = sum(isinstance(p, expr.Var) for p in func.params)
    return in_order(func, buffers, symbols[len(symbols) - count :])


@lru_cache(maxsize=1024)
def kernel_symbols(func: loops.PrimFunc) -> tuple[expr.Var, ...]:
    """The integers a loop function is given besides its buffers: the symbols of its buffers'
    declarations in order of first mention, then its scalar parameters."""
    scalars = [p for p in func.params if isinstance(p, expr.Var)]
    found = [s for b in func.buffers for s in symbols_in(b) if s not in scalars]
    return (*dict.fromkeys(found), *scalars)
