"""Translation of low-level functions to LLVM.

Every variable is a slot on the stack, which LLVM turns into registers.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.llvm import lowlevel
from relaxlab.codegen.llvm.builder import Builder, float_value


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a value: LLVM's name of it and its bytes in memory. Of an address, what is there:
    a record, an array's elements, or records in a row."""

    llvm: str
    size: int
    record: type[lowlevel.Record] | None = None
    element: Kind | None = None
    rows: type[lowlevel.Record] | None = None


_LLVM = {
    "Word": "i64", "Int": "i32", "Byte": "i8", "Flag": "i1", "Single": "float",
    "Double": "double", "Address": "ptr", "Function": "ptr", "None": "void",
}  # fmt: skip
_KINDS = {name: Kind(llvm, lowlevel.SIZES.get(name, 8)) for name, llvm in _LLVM.items()}
WORD, ADDRESS, FLAG = _KINDS["Word"], _KINDS["Address"], _KINDS["Flag"]
NUMBERS = {"float32": _KINDS["Single"], "float64": _KINDS["Double"]}
"""The kinds of floating-point dtypes."""
_CONVERSIONS = {
    ("i64", "i32"): "trunc", ("i64", "i8"): "trunc", ("i32", "i64"): "sext", ("i8", "i64"): "zext",
    ("i1", "i64"): "zext", ("ptr", "i64"): "ptrtoint", ("i64", "ptr"): "inttoptr",
    ("double", "float"): "fptrunc", ("float", "double"): "fpext",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "udiv", ast.Mod: "urem",
    ast.LShift: "shl", ast.RShift: "lshr", ast.BitAnd: "and", ast.BitOr: "or",
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("eq", "eq"), ast.NotEq: ("ne", "ne"), ast.Lt: ("slt", "ult"),
    ast.LtE: ("sle", "ule"), ast.Gt: ("sgt", "ugt"), ast.GtE: ("sge", "uge"),
}  # fmt: skip
"""For words and for addresses."""


def low_level_text(
    function: Callable[..., Any],
    declarations: dict[str, str],
    symbol: str = "",
    given: Mapping[str, Any] | None = None,
) -> str:
    """Return the LLVM text of a low-level function; its callees are added to `declarations`.

    symbol: another name than its own. given: values of names that it reads from outside, before
    those of its module: integers, `Kind`s, and for C functions that it calls their symbols.

    Raises CodegenError for what the language does not have, with the line.
    """
    if function.__name__ not in _definitions(function.__module__):
        raise CodegenError(f"`{function.__qualname__}` is no function of its module")
    translation = _Translation(function, given or {}, declarations)
    return translation.text(symbol or lowlevel.SYMBOLS[function])


@cache
def _definitions(module: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def _fields(record: type[lowlevel.Record]) -> dict[str, tuple[int, Kind]]:
    """The byte at which each field starts, and its kind."""
    names = vars(sys.modules[record.__module__])
    return {
        field: (at, _kind(ast.parse(text, mode="eval").body, names))
        for field, (at, text) in lowlevel.layout_of(record).items()
    }


def _size_of(record: type[lowlevel.Record]) -> int:
    """The bytes from one record to the next."""
    fields = _fields(record).values()
    end, alignment = max(at + k.size for at, k in fields), max(k.size for _, k in fields)
    return -(-end // alignment) * alignment


def _kind(node: ast.expr, names: Mapping[str, Any]) -> Kind:
    """The kind that an annotation names."""
    match node:
        case ast.Constant(None):
            return _KINDS["None"]
        case ast.Subscript(ast.Name("Array"), element):
            return Kind("ptr", 8, element=_kind(element, names))
        case ast.Subscript(ast.Name("Table"), ast.Name(record)):
            return Kind("ptr", 8, rows=names[record])
        case ast.Name(name):
            value = names.get(name)
            if isinstance(value, Kind):
                return value
            if isinstance(value, type) and issubclass(value, lowlevel.Record):
                return Kind("ptr", 8, record=value)
            return _KINDS[name]
        case _:
            raise CodegenError(f"`{ast.unparse(node)}` is no type of low-level functions")


@dataclass(frozen=True, slots=True)
class _Value:
    text: str
    kind: Kind


class _Translation:
    """The translation of one function. variables: the slot of each, and the kind of its first
    value. loops: where `continue` and `break` go, of each loop around."""

    def __init__(
        self, function: Callable[..., Any], given: Mapping[str, Any], declarations: dict[str, str]
    ) -> None:
        self.function, self.given = function, given
        self.node = _definitions(function.__module__)[function.__name__]
        self.names, self.b = {**function.__globals__, **given}, Builder(declarations)
        self.variables: dict[str, tuple[str, Kind]] = {}
        self.params, self.result = self.signature(self.node, self.names)
        self.loops: list[tuple[str, str]] = []

    def signature(
        self, node: ast.FunctionDef, names: Mapping[str, Any]
    ) -> tuple[list[tuple[str, Kind]], Kind]:
        params = list[tuple[str, Kind]]()
        for a in node.args.args:
            if a.annotation is None:
                raise self.refuse(node, f"the parameter `{a.arg}` has no type")
            params.append((a.arg, _kind(a.annotation, names)))
        return params, _kind(node.returns or ast.Constant(None), names)

    def text(self, symbol: str) -> str:
        for name, kind in self.params:
            self.assign_name(name, _Value(f"%{name}", kind))
        self.block(self.node.body[1:] if ast.get_docstring(self.node) else self.node.body)
        # What control cannot reach needs an end, too.
        self.b.raw("ret void" if self.result.llvm == "void" else "unreachable")
        head = ", ".join(f"{kind.llvm} %{name}" for name, kind in self.params)
        body = "\n".join(["entry:", *self.b.allocas, *self.b.lines])
        how = "alwaysinline" if self.function in lowlevel.INLINED else "#0"
        return f"define {self.result.llvm} @{symbol}({head}) {how} {{\n{body}\n}}\n"

    def refuse(self, node: ast.stmt | ast.expr, reason: str) -> CodegenError:
        return CodegenError(f"in `{self.node.name}`, line {node.lineno}: {reason}")

    # -- statements ----------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> None:
        for s in statements:
            self.statement(s)

    def statement(self, s: ast.stmt) -> None:
        match s:
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                for target, value in zip(targets, values, strict=True):
                    self.assign(target, value)
            case ast.Assign([target], value):
                self.assign(target, value)
            case ast.AugAssign(ast.Name(name) as target, op, value):
                self.assign(target, ast.BinOp(ast.Name(name), op, value, lineno=s.lineno))
            case ast.Expr(ast.Call() as call):
                self.call(call)
            case ast.If(test, body, orelse):
                self.if_(test, body, orelse)
            case ast.While(test, body, []):
                self.while_(test, body)
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [count]), body, []):
                self.for_(name, count, body)
            case ast.Break() | ast.Continue():
                self.b.jump(self.loops[-1][isinstance(s, ast.Break)])
                self.b.place(self.b.label("after"))
            case ast.Return(value):
                self.return_(value)
            case _:
                raise self.refuse(s, f"`{ast.unparse(s)}` is no statement of low-level functions")

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assign_name(target.id, self.value(value))
            return
        address, kind = self.place(target)
        text = self.converted(self.value(value), kind)
        if kind is FLAG:
            self.b.raw(f"store i8 {self.b.emit(f'zext i1 {text} to i8')}, ptr {address}")
        else:
            self.b.raw(f"store {kind.llvm} {text}, ptr {address}, align {kind.size}")

    def assign_name(self, name: str, value: _Value) -> None:
        if name not in self.variables:
            slot = self.b.alloca(1, value.kind.llvm, value.kind.size)
            self.variables[name] = slot, value.kind
        slot, kind = self.variables[name]
        self.b.raw(f"store {kind.llvm} {self.converted(value, kind)}, ptr {slot}")

    def if_(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        then, other, done = (self.b.label(hint) for hint in ("then", "else", "endif"))
        self.branch(test, then, other)
        for label, statements in ((then, body), (other, orelse)):
            self.b.place(label)
            self.block(statements)
            self.b.jump(done)
        self.b.place(done)

    def while_(self, test: ast.expr, body: list[ast.stmt]) -> None:
        head, inside, done = (self.b.label(hint) for hint in ("while", "body", "done"))
        self.b.jump(head)
        self.b.place(head)
        self.branch(test, inside, done)
        self.b.place(inside)
        self.loops.append((head, done))
        self.block(body)
        self.loops.pop()
        self.b.jump(head)
        self.b.place(done)

    def for_(self, name: str, count: ast.expr, body: list[ast.stmt]) -> None:
        head, inside, step, done = (self.b.label(hint) for hint in ("for", "body", "step", "done"))
        end = self.converted(self.value(count), WORD)
        self.assign_name(name, _Value("0", WORD))
        slot, _ = self.variables[name]
        self.b.jump(head)
        self.b.place(head)
        at = self.b.emit(f"load i64, ptr {slot}")
        self.b.branch(self.b.emit(f"icmp slt i64 {at}, {end}"), inside, done)
        self.b.place(inside)
        self.loops.append((step, done))
        self.block(body)
        self.loops.pop()
        self.b.jump(step)
        self.b.place(step)
        at = self.b.emit(f"load i64, ptr {slot}")
        more = self.b.emit(f"add i64 {at}, 1")
        self.b.raw(f"store i64 {more}, ptr {slot}")
        self.b.jump(head)
        self.b.place(done)

    def return_(self, value: ast.expr | None) -> None:
        if value is None:
            self.b.raw("ret void")
        else:
            text = self.converted(self.value(value), self.result)
            self.b.raw(f"ret {self.result.llvm} {text}")
        self.b.place(self.b.label("after"))

    # -- conditions ----------------------------------------------------------------------------

    def branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Go to `yes` if the condition holds, else to `no`."""
        match test:
            case ast.BoolOp(op, [*firsts, last]):
                for first in firsts:
                    more = self.b.label("more")
                    ends = (more, no) if isinstance(op, ast.And) else (yes, more)
                    self.branch(first, *ends)
                    self.b.place(more)
                self.branch(last, yes, no)
            case ast.UnaryOp(ast.Not(), operand):
                self.branch(operand, no, yes)
            case ast.Compare(left, ops, rights) if len(ops) > 1:
                pairs = zip([left, *rights], ops, rights, strict=False)
                parts = [ast.Compare(a, [op], [b], lineno=test.lineno) for a, op, b in pairs]
                self.branch(ast.BoolOp(ast.And(), [*parts]), yes, no)
            case _:
                self.b.branch(self.converted(self.value(test), FLAG), yes, no)

    # -- expressions ---------------------------------------------------------------------------

    def value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(bool(number)):
                return _Value(str(number).lower(), FLAG)
            case ast.Constant(int(number)):
                return _Value(str(number), WORD)
            case ast.Constant(float(number)):
                return _Value(float_value(number, "float64").text or "", _KINDS["Double"])
            case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
                return _Value(str(-number), WORD)
            case ast.Name(name):
                return self.name(node, name)
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                return self.arithmetic(self.value(left), op, self.value(right))
            case ast.Compare(left, [op], [right]) if type(op) in _COMPARISONS:
                return self.compare(self.value(left), op, self.value(right))
            case ast.BoolOp() | ast.UnaryOp(ast.Not()) | ast.Compare():
                return self.chosen(node, ast.Constant(True), ast.Constant(False))
            case ast.IfExp(test, yes, no):
                return self.chosen(test, yes, no)
            case ast.Subscript(table, index) if (rows := self.value(table)).kind.rows is not None:
                return self.row(rows, index)
            case ast.Attribute() | ast.Subscript():
                return self.load(*self.place(node))
            case ast.Call():
                return self.call(node)
            case _:
                text = ast.unparse(node)
                raise self.refuse(node, f"`{text}` is no expression of low-level functions")

    def name(self, node: ast.expr, name: str) -> _Value:
        if name in self.variables:
            slot, kind = self.variables[name]
            return _Value(self.b.emit(f"load {kind.llvm}, ptr {slot}"), kind)
        value = self.names.get(name, self)
        if value is None:
            return _Value("null", ADDRESS)
        if isinstance(value, int):
            return _Value(str(value), WORD)
        if inspect.isfunction(value):
            return _Value(f"@{lowlevel.SYMBOLS[value]}", ADDRESS)
        raise self.refuse(node, f"`{name}` is neither a variable nor an integer")

    def load(self, address: str, kind: Kind) -> _Value:
        if kind is FLAG:
            byte = self.b.emit(f"load i8, ptr {address}")
            return _Value(self.b.emit(f"trunc i8 {byte} to i1"), kind)
        return _Value(self.b.emit(f"load {kind.llvm}, ptr {address}, align {kind.size}"), kind)

    def row(self, table: _Value, index: ast.expr) -> _Value:
        """The address of a record in a row of them."""
        record = table.kind.rows
        assert record is not None
        return _Value(self.stepped(table, index, _size_of(record)), Kind("ptr", 8, record))

    def stepped(self, start: _Value, index: ast.expr, size: int) -> str:
        """The address `index` times `size` bytes after another."""
        at = self.b.emit(f"mul i64 {self.converted(self.value(index), WORD)}, {size}")
        return self.b.emit(f"getelementptr i8, ptr {start.text}, i64 {at}", "p")

    def arithmetic(self, left: _Value, op: ast.operator, right: _Value) -> _Value:
        if left.kind.llvm == "ptr" and isinstance(op, ast.Add | ast.Sub):
            count = self.converted(right, WORD)
            if isinstance(op, ast.Sub):
                count = self.b.emit(f"sub i64 0, {count}")
            return _Value(self.b.emit(f"getelementptr i8, ptr {left.text}, i64 {count}"), ADDRESS)
        one, other = self.converted(left, WORD), self.converted(right, WORD)
        return _Value(self.b.emit(f"{_ARITHMETIC[type(op)]} i64 {one}, {other}"), WORD)

    def compare(self, left: _Value, op: ast.cmpop, right: _Value) -> _Value:
        kind = ADDRESS if "ptr" in (left.kind.llvm, right.kind.llvm) else WORD
        how = _COMPARISONS[type(op)][kind is ADDRESS]
        one, other = self.converted(left, kind), self.converted(right, kind)
        return _Value(self.b.emit(f"icmp {how} {kind.llvm} {one}, {other}"), FLAG)

    def chosen(self, test: ast.expr, yes: ast.expr, no: ast.expr) -> _Value:
        """The value of one of two expressions; the other is not evaluated."""
        then, other, done = (self.b.label(hint) for hint in ("yes", "no", "chosen"))
        self.branch(test, then, other)
        slot, kind = "", WORD
        for label, node in ((then, yes), (other, no)):
            self.b.place(label)
            value = self.value(node)
            if not slot:
                slot, kind = self.b.alloca(1, value.kind.llvm, value.kind.size), value.kind
            self.b.raw(f"store {kind.llvm} {self.converted(value, kind)}, ptr {slot}")
            self.b.jump(done)
        self.b.place(done)
        return _Value(self.b.emit(f"load {kind.llvm}, ptr {slot}"), kind)

    def place(self, node: ast.expr) -> tuple[str, Kind]:
        """The address of a field or an element, and the kind of what is there."""
        match node:
            case ast.Attribute(base, field):
                owner = self.value(base)
                if owner.kind.record is None or field not in _fields(owner.kind.record):
                    raise self.refuse(node, f"`{ast.unparse(base)}` has no field `{field}`")
                at, kind = _fields(owner.kind.record)[field]
                return self.b.emit(f"getelementptr i8, ptr {owner.text}, i64 {at}", "p"), kind
            case ast.Subscript(base, index):
                array = self.value(base)
                element = array.kind.element
                if element is None:
                    raise self.refuse(node, f"`{ast.unparse(base)}` is no array")
                return self.stepped(array, index, element.size), element
            case _:
                raise self.refuse(node, f"`{ast.unparse(node)}` is no place in memory")

    def converted(self, value: _Value, kind: Kind) -> str:
        have, want = value.kind.llvm, kind.llvm
        if have == want:
            return value.text
        if want == "i1":
            return self.b.emit(f"icmp ne {have} {value.text}, {'null' if have == 'ptr' else '0'}")
        if have == "i64" and want in ("i32", "i8") and value.text.lstrip("-").isdigit():
            return value.text
        if (have, want) not in _CONVERSIONS:
            raise CodegenError(f"in `{self.node.name}`: {have} does not convert to {want}")
        return self.b.emit(f"{_CONVERSIONS[have, want]} {have} {value.text} to {want}")

    # -- calls ---------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> _Value:
        match node:
            case ast.Call(
                ast.Name("any" | "all" as which),
                [ast.GeneratorExp(condition, [ast.comprehension(index, numbers, [])])],
            ):
                return self.quantified(which == "any", condition, index, numbers)
            case ast.Call(ast.Name("address_of"), [field]):
                return _Value(self.place(field)[0], ADDRESS)
            case ast.Call(ast.Name("stack"), [count]):
                words = self.converted(self.value(count), WORD)
                text = self.b.emit(f"alloca i64, i64 {words}, align 8")
                return _Value(text, Kind("ptr", 8, element=WORD))
            case ast.Call(ast.Name("invoke"), [function, *given]):
                args = [self.value(a) for a in given]
                listed = ", ".join(f"{a.kind.llvm} {a.text}" for a in args)
                return _Value(self.b.emit(f"call i64 {self.value(function).text}({listed})"), WORD)
            case ast.Call(ast.Subscript() | ast.Name("Address") as kind, [address]):
                return self.cast(_kind(kind, self.names), address)
            case ast.Call(ast.Name(name), args):
                target = self.names.get(name)
                if isinstance(target, type):
                    return self.cast(_kind(ast.Name(name), self.names), args[0])
                if isinstance(target, str) or inspect.isfunction(target):
                    return self.call_function(node, name, target)
            case _:
                pass
        raise self.refuse(node, f"`{ast.unparse(node)}` calls no low-level function")

    def quantified(
        self, any_: bool, condition: ast.expr, index: ast.expr, numbers: ast.expr
    ) -> _Value:
        """True if the condition holds for any index, or for all."""
        found = self.b.name("found")
        self.assign_name(found, _Value(str(not any_).lower(), FLAG))
        decided = condition if any_ else ast.UnaryOp(ast.Not(), condition)
        note = ast.Assign([ast.Name(found)], ast.Constant(any_))
        self.statement(ast.For(index, numbers, [ast.If(decided, [note, ast.Break()], [])], []))
        return self.name(ast.Name(found), found)

    def cast(self, kind: Kind, value: ast.expr) -> _Value:
        return _Value(self.converted(self.value(value), kind), kind)

    def call_function(self, node: ast.Call, name: str, target: Any) -> _Value:
        # A symbol that was given stands for the function of the module that has its signature.
        declared = self.function.__globals__[name] if isinstance(target, str) else target
        symbol = target if isinstance(target, str) else _symbol(target)
        definition = _definitions(declared.__module__)[declared.__name__]
        params, result = self.signature(definition, {**declared.__globals__, **self.given})
        if len(params) != len(node.args):
            raise self.refuse(node, f"`{name}` takes {len(params)} arguments")
        args = [
            (kind.llvm, self.converted(self.value(a), kind))
            for (_, kind), a in zip(params, node.args, strict=True)
        ]
        return _Value(self.b.call(symbol, result.llvm, args), result)


def _symbol(function: Callable[..., Any]) -> str:
    return lowlevel.EXTERNALS.get(function) or lowlevel.SYMBOLS[function]
