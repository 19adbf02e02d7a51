"""The state of one parse: source, diagnostics, and the names that are visible."""

from __future__ import annotations

import ast
import builtins
import difflib
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from relaxlab.ir import expr, graph
from relaxlab.ir.data import DATA_TYPES, Constructor, DataDef
from relaxlab.ir.diagnostics import Diagnostic
from relaxlab.ir.errors import counted
from relaxlab.ir.loops import Range
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.node import NO_ATTRS, Attrs
from relaxlab.ir.span import Source, Span, lines_of
from relaxlab.script.known_types import KnownTypes
from relaxlab.script.members import MEMBERS
from relaxlab.script.values import (
    POISON,
    Arg,
    Foreign,
    Handle,
    Hidden,
    ModuleRef,
    Ref,
    TypeParam,
    Value,
)


class Failure(Exception):
    """Reading a statement stopped. `diagnostic` is None when the cause was reported before."""

    def __init__(self, diagnostic: Diagnostic | None) -> None:
        super().__init__(diagnostic)
        self.diagnostic = diagnostic


class Unbound(Exception):
    """The environment has no such name."""


class Symbol:
    """A symbolic dimension; `declared` once the script said `n = T.int64()`."""

    __slots__ = ("declared", "var")

    def __init__(self, var: expr.Var, declared: bool) -> None:
        self.var = var
        self.declared = declared


BUILTINS: dict[str, Callable[..., Any]] = {
    name: getattr(builtins, name) for name in ("float", "int", "bool", "len", "abs", "min", "max")
}


class Context:
    """One parse. `environment` gives the value of a Python name around the script, `read` the
    value of an expression (annotations hold expressions in strings)."""

    def __init__(
        self,
        source: Source,
        environment: Callable[[str], Value],
        read: Callable[[Context, ast.expr], Value],
        computable: bool = True,
    ) -> None:
        self.source = source
        self.environment = environment
        self.read = read
        self.diagnostics: list[Diagnostic] = []
        self.frames: list[dict[str, Value]] = [{}]
        self.symbols: dict[str, Symbol] = {}
        self.namespace = "R"  # of the function that is read
        self.in_shape = False  # whether the arguments of a shape are read
        self.depth = 0  # of nested expressions
        self.string_symbols = False  # whether a string may introduce a symbol here
        self.loops: dict[expr.Var, Range] = {}  # the ranges of enclosing loops
        self.pointers: dict[Handle, expr.Var] = {}  # parameters that are used as scalars
        self.thread_axes: dict[expr.Var, str] = {}  # of the variables of `T.env_thread`
        self.narrow: dict[expr.Var, str] = {}  # int64 variables whose names are of these dtypes
        self.widened: dict[expr.Var, expr.Var] = {}  # int64 symbols in the place of narrow ones
        self.narrow_symbols: set[expr.Var] = set()  # declared in a loop function: `n = T.int32()`
        self.lengths: dict[str, Any] = {}  # types of parameters that are lengths, of this function
        self.rows: Any = None  # the lengths of rows that the ragged type being read has
        self.tuple_vars: set[graph.Var] = set()  # variables bound to tuple displays
        self.known = KnownTypes()
        self.functions: dict[str, BaseFunc | None] = {}  # of the module; None: not read yet
        self.definitions: dict[str, ast.stmt] = {}  # of these functions
        self.data: dict[str, DataDef] = {}  # data types of the module
        self.constructors: dict[str, Constructor] = {}  # of all of them
        self.in_module = False
        self.computable = computable  # as `parse` has it
        self.checked = True  # unless a decorator says `check_well_formed=False`
        self.s_tir: bool | None = None  # of the module, for its loop functions
        self.macros = 0  # that are being expanded, one inside the other
        # Reads a macro that is called in the graph function that is read, for the value it returns.
        self.expand: Callable[[Any, Arguments], Value] | None = None
        self._lines = lines_of(source.text)

    def enter(self, source: Source) -> None:
        """Read nodes of `source` from here on."""
        self.source, self._lines = source, lines_of(source.text)

    def module_attrs(self) -> Attrs:
        """The attributes that the data types of the module are."""
        return Attrs({DATA_TYPES: tuple(self.data.values())}) if self.data else NO_ATTRS

    def module(self) -> Module:
        """The module as far as it is read."""
        functions = {k: f for k, f in self.functions.items() if f is not None}
        return Module.of(functions, self.module_attrs())

    # --- Positions and errors -------------------------------------------------------------

    def span(self, node: ast.AST) -> Span:
        """The source range of a syntax node."""
        line = getattr(node, "lineno", 1)
        end_line = getattr(node, "end_lineno", None) or line
        col = self._column(line, getattr(node, "col_offset", 0))
        end_col = self._column(end_line, getattr(node, "end_col_offset", None) or 0)
        return Span(self.source, line, col, end_line, end_col)

    def _column(self, line: int, offset: int) -> int:
        """The syntax tree counts bytes, spans count characters."""
        index = line - self.source.first_line
        if not 0 <= index < len(self._lines) or self._lines[index].isascii():
            return offset
        return len(self._lines[index].encode()[:offset].decode(errors="ignore"))

    def error(
        self,
        node: ast.AST | Span,
        code: str,
        message: str,
        *,
        help: str | None = None,
        notes: tuple[str, ...] = (),
        related: tuple[tuple[str, Span], ...] = (),
    ) -> Diagnostic:
        """A diagnostic at `node`; not reported yet."""
        span = node if isinstance(node, Span) else self.span(node)
        return Diagnostic(code, message, span, notes, help, related)

    def report(self, diagnostic: Diagnostic | None) -> None:
        """Keep a diagnostic and go on."""
        if diagnostic is not None and diagnostic not in self.diagnostics:
            self.diagnostics.append(diagnostic)

    def fail(self, node: ast.AST | Span, code: str, message: str, **extra: Any) -> NoReturn:
        """Stop reading this statement with an error."""
        raise Failure(self.error(node, code, message, **extra))

    @contextmanager
    def recover(self, node: ast.AST) -> Generator[None]:
        """Errors inside are reported; reading goes on after the block."""
        try:
            yield
        except Failure as failure:
            self.report(failure.diagnostic)
        except RecursionError:
            self.report(self.error(node, "E0116", "this is nested too deeply to be read"))

    # --- Names ----------------------------------------------------------------------------

    @contextmanager
    def frame(self) -> Generator[dict[str, Value]]:
        """A scope of names."""
        self.frames.append({})
        try:
            yield self.frames[-1]
        finally:
            self.frames.pop()

    @contextmanager
    def function(self, namespace: str) -> Generator[None]:
        """A function's own names and symbols; it is written in `R` or in `T`."""
        outer = self.symbols, self.namespace
        self.symbols, self.namespace = {}, namespace
        with self.frame():
            yield
        self.symbols, self.namespace = outer

    def define(self, name: str, value: Value) -> None:
        """Bind a name in the innermost scope."""
        self.frames[-1][name] = value

    def find(self, name: str) -> Value:
        """The value of a name. Raises Unbound."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        try:
            return self.environment(name)
        except Unbound:
            if name in BUILTINS:
                return Ref("builtins", name)
            raise

    def lookup(self, node: ast.Name) -> Value:
        """The value of a name in an expression."""
        try:
            value = self.find(node.id)
        except Unbound:
            self._fail_undefined(node)
        if value is POISON:
            raise Failure(None)
        if isinstance(value, TypeParam):
            return self.symbol(value.name, node) or self._fail_undefined(node)
        if isinstance(value, Foreign):
            self.fail_foreign(node, value)
        if isinstance(value, Hidden):
            self._fail_hidden(node, value)
        return value

    def fail_foreign(self, node: ast.expr, value: Foreign, help: str | None = None) -> NoReturn:
        """Stop at a Python object that has no meaning in a program."""
        self.fail(
            node,
            "E0112",
            f"{ast.unparse(node)!r} is a Python {value.kind}, which cannot be used in a program",
            help=help
            or "numbers, strings, tuples, lists, dictionaries, NumPy arrays, and programs defined "
            "before can be",
        )

    def _fail_undefined(self, node: ast.Name) -> NoReturn:
        names = sorted(self.visible())
        help = self.suggest(node.id, names)
        if node.id in self.functions:
            help = f"a function of the module is called by `cls.{node.id}(...)`"
        elif help is None and hasattr(builtins, node.id):
            help = f"`{node.id}` is Python's, and a program is read, not run"
            if node.id == "print":
                view = "run" if self.namespace == "R" else "loops"
                help += f"; relaxlab.explore.{view} shows the values"
        elif help is None and self.in_shape:
            help = f"declare the symbol, `{node.id} = T.int64()`, or write it in a string"
        listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
        notes = (f"visible here: {listed}",) if names and help is None else ()
        self.fail(node, "E0102", f"undefined name {node.id!r}", help=help, notes=notes)

    def _fail_hidden(self, node: ast.Name, hidden: Hidden) -> NoReturn:
        what = (
            f"add it: `R.output(..., {hidden.name})`"
            if hidden.has_output
            else f"end the dataflow block with `R.output({hidden.name})`"
        )
        related = () if hidden.span is None else (("it is bound here:", hidden.span),)
        for frame in self.frames:  # one report is enough
            if frame.get(node.id) is hidden:
                frame[node.id] = POISON
        self.fail(
            node,
            "E0107",
            f"{hidden.name!r} is visible only inside its dataflow block, which does not output it",
            help=what,
            related=related,
        )

    def visible(self) -> set[str]:
        """The names that the program defined in the enclosing scopes: not `R`, `cls`, `TypeVar`."""
        return {
            name
            for frame in self.frames
            for name, value in frame.items()
            if not name.startswith("_") and not isinstance(value, Ref | ModuleRef)
        }

    @staticmethod
    def suggest(name: str, candidates: Iterable[str]) -> str | None:
        """A did-you-mean, when some candidate is close."""
        close = difflib.get_close_matches(name, sorted(candidates), 1, 0.7)
        return f"did you mean {close[0]!r}?" if close else None

    def poison(self, target: ast.AST) -> None:
        """Define the names a failed statement would have defined."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.define(node.id, POISON)

    # --- Symbols --------------------------------------------------------------------------

    def symbol(self, name: str, node: ast.AST) -> expr.PrimExpr | None:
        """The symbolic dimension `name`, made on first use where strings may introduce one."""
        known = self.symbols.get(name)
        if known is not None:
            return known.var
        value = next((f[name] for f in reversed(self.frames) if name in f), None)
        if isinstance(value, graph.Var | expr.PrimExpr) or not self.string_symbols:
            return value if isinstance(value, expr.PrimExpr) else None
        var = expr.Var(name, "int64", span=self.span(node))
        self.symbols[name] = Symbol(var, declared=False)
        self.frames[-1].setdefault(name, var)
        return var

    @contextmanager
    def introducing_symbols(self) -> Generator[None]:
        """A block in which strings may introduce symbols."""
        outer, self.string_symbols = self.string_symbols, True
        try:
            yield
        finally:
            self.string_symbols = outer

    def declare_symbol(self, name: str, dtype: str, node: ast.AST, *, reuse: bool) -> expr.Var:
        """Return the symbol that `name = T.int64()` declares: the one of that name that a string
        introduced, and with `reuse` one that was declared before."""
        known = self.symbols.get(name)
        if known is not None and (reuse or not known.declared):
            if known.var.dtype != dtype:
                self.fail(
                    node,
                    "E0123",
                    f"symbol {name!r} is {known.var.dtype} and is declared as {dtype} here",
                    help=f"write `{name} = T.{known.var.dtype}()`",
                )
            known.declared = True
            self.define(name, known.var)
            return known.var
        enclosing = next((f[name] for f in reversed(self.frames) if name in f), None)
        if reuse and isinstance(enclosing, expr.Var) and enclosing.dtype == dtype:
            return enclosing
        var = expr.Var(name, dtype, span=self.span(node))
        self.symbols[name] = Symbol(var, declared=True)
        self.define(name, var)
        return var


_TORCH_PARAMETERS = {"dim": "axis", "dims": "axes"}


class Arguments:
    """The evaluated arguments of one call."""

    def __init__(
        self, cx: Context, node: ast.Call, name: str, args: list[Arg], kwargs: dict[str, Arg]
    ) -> None:
        self.cx = cx
        self.node = node
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.member = ""  # whose parameters are meant when it is not `name`

    def bind(self, optional: Mapping[str, bool] | None = None) -> dict[str, Arg | None]:
        """Arguments by parameter name. `optional` says of each parameter whether it may be left
        out; without it the parameters are those of the member."""
        if optional is None:
            optional = MEMBERS[self.member or self.name].optional
        plain = list(optional)
        if len(self.args) > len(plain):
            takes = counted(len(plain), "argument")
            self.wrong(f"takes {takes}, got {len(self.args)}", self.args[len(plain)].node)
        bound: dict[str, Arg | None] = dict.fromkeys(plain)
        bound.update(zip(plain, self.args, strict=False))
        for key, arg in self.kwargs.items():
            if key not in bound:
                self.wrong(
                    f"has no parameter {key!r}; it takes {', '.join(plain) or 'none'}",
                    arg.node,
                    self.cx.suggest(_TORCH_PARAMETERS.get(key, key), plain),
                )
            if bound[key] is not None:
                self.wrong(f"got {key!r} twice", arg.node)
            bound[key] = arg
        for name, may_be_absent in optional.items():
            if not may_be_absent and bound[name] is None:
                self.wrong(f"is missing its argument {name!r}", self.node)
        return bound

    def wrong(self, message: str, node: ast.AST, help: str | None = None) -> NoReturn:
        """Stop: the arguments do not fit."""
        self.cx.fail(node, "E0105", f"{self.name} {message}", help=help)

    def no_keywords(self) -> list[Arg]:
        """The positional arguments; there must be no others."""
        for key, arg in self.kwargs.items():
            self.wrong(f"has no parameter {key!r}", arg.node)
        return self.args
