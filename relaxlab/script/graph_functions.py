"""Reading graph functions: signature, dataflow blocks, bindings, conditionals."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import is_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import Attrs, replace
from relaxlab.script.advice import unsupported
from relaxlab.script.annotations import own_symbol, type_of
from relaxlab.script.convert import attribute_value, is_number, scalar_of
from relaxlab.script.core import Arguments, Context, Failure, Unbound
from relaxlab.script.data_types import read_pattern
from relaxlab.script.definitions import decorator_of, node_header
from relaxlab.script.expressions import arguments, evaluate
from relaxlab.script.graph_calls import value_of
from relaxlab.script.macros import Macro, expanding, is_macro, macro_called, macro_here
from relaxlab.script.values import (
    POISON,
    Arg,
    Hidden,
    MatchCastValue,
    ModuleRef,
    Ref,
    SymbolDecl,
    TypeParam,
    Value,
    describe,
    is_dict,
    is_sequence,
)


class GraphReader:
    """Reads the body of one graph function."""

    def __init__(self, cx: Context) -> None:
        self.cx = cx
        self.attrs: dict[str, Any] = {}
        self.blocks: list[graph.BindingBlock] = []
        self.bindings: list[graph.Binding] = []
        self.outputs: Counter[str] | None = None  # assignments still to come, inside dataflow
        self.output_names: set[str] = set()
        self.announced: dict[str, tuple[ast.stmt, types.Type]] = {}

    # --- Bodies -----------------------------------------------------------------------------

    def body(self, stmts: Sequence[ast.stmt], node: ast.AST) -> graph.SeqExpr:
        """Statements that end with `return`."""
        cx = self.cx
        if not stmts or not _returns(stmts[-1]):
            self._statements(stmts)
            if not cx.diagnostics:
                last = stmts[-1] if stmts else node
                names = (n for n in ast.walk(last) if isinstance(n, ast.Name))
                bound = [n.id for n in names if isinstance(n.ctx, ast.Store)]
                cx.report(
                    cx.error(
                        last,
                        "E0108",
                        "the graph function does not return a value",
                        help=f"end it with `return {bound[-1] if bound else 'x'}`",
                    )
                )
            return graph.SeqExpr(self._finish(), graph.Tuple(()))
        self._statements(stmts[:-1])
        result: graph.Expr = graph.Tuple(())
        with cx.recover(stmts[-1]):
            result = self._returned(stmts[-1])
        return graph.SeqExpr(self._finish(), result, span=cx.span(node))

    def _returned(self, stmt: ast.stmt) -> graph.Expr:
        cx = self.cx
        if isinstance(stmt, ast.If):
            test = self._value(stmt.test)
            branches = [self._branch_body(b, stmt) for b in (stmt.body, stmt.orelse)]
            return graph.If(test, *branches, span=cx.span(stmt))
        if isinstance(stmt, ast.Match):
            value = self._value(stmt.subject)
            cases: list[graph.Case] = []
            for case in stmt.cases:
                name, fields = read_pattern(cx, case)
                cases.append(graph.Case(name, tuple(fields), self._case_body(fields, case)))
            return graph.Match(value, tuple(cases), span=cx.span(stmt))
        assert isinstance(stmt, ast.Return)
        if stmt.value is None:
            cx.fail(stmt, "E0108", "`return` needs a value in a graph function")
        return self._value(stmt.value)

    def _branch_body(self, stmts: list[ast.stmt], node: ast.AST) -> graph.SeqExpr:
        with self._nested(), self.cx.frame():
            return self.body(stmts, node)

    def _case_body(self, fields: list[graph.Var], case: ast.match_case) -> graph.SeqExpr:
        with self._nested(), self.cx.frame():
            self._define_fields(fields)
            return self.body(case.body, case.pattern)

    def _define_fields(self, fields: list[graph.Var]) -> None:
        for f in fields:
            if f.name != "_":
                self.cx.define(f.name, f)

    @contextmanager
    def _nested(self) -> Generator[None]:
        """Blocks of a branch, apart from those of the function."""
        saved = self.blocks, self.bindings
        self.blocks, self.bindings = [], []
        try:
            yield
        finally:
            self.blocks, self.bindings = saved

    def _finish(self) -> tuple[graph.BindingBlock, ...]:
        self._close_block()
        for stmt, _ in self.announced.values():
            self.cx.report(self.cx.error(stmt, "E0104", "an annotated name needs a value"))
        self.announced.clear()
        return tuple(self.blocks)

    def _close_block(self) -> None:
        if self.bindings:
            self.blocks.append(graph.BindingBlock(tuple(self.bindings)))
            self.bindings = []

    def _value(self, node: ast.expr, like: types.Type | None = None) -> graph.Expr:
        """A graph-level value; a bare number takes the annotated dtype."""
        value = evaluate(self.cx, node)
        dtype = like.dtype if isinstance(like, types.TensorType) else None
        return value_of(self.cx, Arg(value, node), dtype)

    def expanded(self, macro: Macro, c: Arguments) -> Value:
        """The value that a macro returns, after its bindings; none of these is an output."""
        cx = self.cx
        outer = self.outputs, self.output_names
        with expanding(cx, macro, c) as body:
            if self.outputs is not None:
                self.outputs, self.output_names = Counter(), set()
            try:
                last = body[-1]
                returns = isinstance(last, ast.Return) and last.value is not None
                self._statements(body[:-1] if returns else body)
                if not isinstance(last, ast.Return) or last.value is None:
                    return graph.Tuple((), span=cx.span(c.node))
                return evaluate(cx, last.value)
            finally:
                self.outputs, self.output_names = outer

    # --- Statements -------------------------------------------------------------------------

    def _statements(self, stmts: Sequence[ast.stmt]) -> None:
        for stmt in stmts:
            try:
                self._statement(stmt)
            except Failure as failure:
                self.cx.report(failure.diagnostic)
                self._poison(stmt)
            except RecursionError:
                self.cx.report(self.cx.error(stmt, "E0116", "this is nested too deeply to be read"))
                self._poison(stmt)

    def _poison(self, stmt: ast.stmt) -> None:
        if isinstance(stmt, ast.Assign):
            for target in stmt.targets:
                self.cx.poison(target)
        elif isinstance(stmt, ast.AnnAssign):
            self.cx.poison(stmt.target)
        elif isinstance(stmt, ast.Match):
            for case in stmt.cases:
                self._poison(case.body[-1])
        elif isinstance(stmt, ast.If):
            for inner in (*stmt.body[-1:], *stmt.orelse[-1:]):
                self._poison(inner)

    def _statement(self, stmt: ast.stmt) -> None:
        cx = self.cx
        match stmt:
            case ast.Assign(targets, value):
                if len(targets) != 1:
                    cx.fail(stmt, "E0104", "write one assignment per statement")
                self._assign(targets[0], value, None)
            case ast.AnnAssign(target, annotation, value):
                ty = type_of(cx, Arg(evaluate(cx, annotation), annotation))
                if value is not None:
                    self._assign(target, value, ty)
                elif isinstance(target, ast.Name):
                    self.announced[target.id] = stmt, ty  # of a local function that follows
                else:
                    cx.fail(stmt, "E0104", "only names are annotated")
            case ast.With():
                self._with(stmt)
            case ast.If():
                self._if(stmt)
            case ast.Match():
                self._match(stmt)
            case ast.Expr(value):
                self._expression(stmt, value)
            case ast.Return():
                cx.fail(stmt, "E0108", "`return` is the last statement of a graph function")
            case ast.Pass():
                pass
            case ast.For() | ast.While():
                cx.fail(
                    stmt,
                    "E0104",
                    "a graph function has no loops",
                    help="write loops in a @T.prim_func and call it with R.call_tir",
                )
            case ast.FunctionDef():
                self._local_function(stmt)
            case _:
                what, help = unsupported(stmt)
                if isinstance(stmt, ast.AugAssign):
                    value = ast.BinOp(stmt.target, stmt.op, stmt.value)
                    help = f"write `{ast.unparse(ast.Assign([stmt.target], value, lineno=1))}`"
                cx.fail(stmt, "E0104", f"{what} is not part of a graph function", help=help)

    def _local_function(self, stmt: ast.FunctionDef) -> None:
        """A function in a function, bound to a variable that it may call itself, or a macro."""
        cx = self.cx
        if is_macro(cx, stmt):
            cx.define(stmt.name, macro_here(cx, stmt))
            return
        deco = decorator_of(cx, stmt)
        if deco.kind != "function":
            cx.fail(node_header(stmt), "E0104", "only graph functions are local to one")
        if self.outputs is not None:
            self.outputs[stmt.name] -= 1
        _, ty = self.announced.pop(stmt.name, (None, None))
        var = self._variable(ast.copy_location(ast.Name(stmt.name, ast.Store()), stmt), ty)
        pure, private = deco.options.get("pure") is not False, bool(deco.options.get("private"))
        fn = read_function(cx, stmt, pure=pure, private=private)
        self._add(graph.VarBinding(fn, var, span=cx.span(stmt)))

    def _assign(self, target: ast.expr, node: ast.expr, ty: types.Type | None) -> None:
        cx = self.cx
        if isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, node, ty)
            return
        if not isinstance(target, ast.Name):
            cx.fail(
                target,
                "E0104",
                "only names are assigned in a graph function",
                help="tensors are never written to in place",
            )
        self._bind(target, evaluate(cx, node), node, ty)

    def _unpack(self, target: ast.Tuple | ast.List, node: ast.expr, ty: types.Type | None) -> None:
        cx = self.cx
        names = target.elts
        if ty is not None or not all(isinstance(n, ast.Name) for n in names):
            cx.fail(target, "E0104", "only plain names are unpacked into")
        value = evaluate(cx, node)
        if is_sequence(value):
            if len(value) != len(names):
                cx.fail(target, "E0113", f"{len(names)} names for {len(value)} values")
            for name, item in zip(names, value, strict=True):
                assert isinstance(name, ast.Name)
                self._bind(name, item, node, None)
            return
        whole = value_of(cx, Arg(value, node))
        if not isinstance(whole, graph.Var):
            whole = self._emit("lv", whole, None, node)
        for i, name in enumerate(names):
            assert isinstance(name, ast.Name)
            self._bind(name, graph.TupleGetItem(whole, i, span=cx.span(name)), node, None)

    def _bind(self, target: ast.Name, value: Value, node: ast.expr, ty: types.Type | None) -> None:
        cx, name = self.cx, target.id
        if self.outputs is not None:
            self.outputs[name] -= 1
        match value:
            case SymbolDecl(dtype):
                cx.declare_symbol(name, dtype, target, reuse=True)
            case ModuleRef() | TypeParam() | str() | dict():
                cx.define(name, value)
            case PrimExpr() if ty is None:
                cx.define(name, value)  # a name for an expression in dimensions
            case int() if ty is None and not isinstance(value, bool):
                cx.define(name, value)
            case MatchCastValue(inner, claimed):
                var = self._variable(target, ty)
                self._add(graph.MatchCast(inner, claimed, var, span=cx.span(node)))
            case _:
                if isinstance(ty, types.PrimType) and is_number(value):
                    value = graph.PrimValue(scalar_of(cx, value, node, ty.dtype))
                like = ty.dtype if isinstance(ty, types.TensorType) else None
                bound = value_of(cx, Arg(value, node), like)
                self._emit(target, bound, ty, node)

    def _variable(self, target: ast.Name | str, ty: types.Type | None) -> graph.Var:
        """The variable a binding defines: local to the dataflow block unless it is output."""
        cx = self.cx
        name = target if isinstance(target, str) else target.id
        span = None if isinstance(target, str) else cx.span(target)
        local = self.outputs is not None and not (
            name in self.output_names and self.outputs[name] == 0
        )
        var = (graph.DataflowVar if local else graph.Var)(name, ty, span=span)
        cx.define(name, var)
        return var

    def _emit(
        self, target: ast.Name | str, value: graph.Expr, ty: types.Type | None, node: ast.AST
    ) -> graph.Var:
        var = self._variable(target, ty)
        if isinstance(value, graph.Tuple):
            self.cx.tuple_vars.add(var)
        self._add(graph.VarBinding(value, var, span=self.cx.span(node)))
        return var

    def _add(self, binding: graph.VarBinding | graph.MatchCast) -> None:
        self.bindings.append(binding)
        self.cx.known.add(binding)

    def _expression(self, stmt: ast.Expr, node: ast.expr) -> None:
        cx = self.cx
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return  # a docstring
        if isinstance(node, ast.Call):
            path = _path(cx, node)
            if path == "func_attr":
                given = arguments(cx, node, "R.func_attr").bind()["attrs"]
                assert given is not None
                if not is_dict(given.value):
                    cx.fail(given.node, "E0106", "attributes are a dictionary")
                self.attrs.update(attribute_value(cx, given.value, given.node))
                return
            if path == "output":
                cx.fail(
                    stmt,
                    "E0107",
                    "R.output is the last statement of a dataflow block",
                )
        value = evaluate(cx, node)
        if isinstance(value, graph.Tuple) and macro_called(cx, node) is not None:
            return  # its bindings are there, and it returns nothing
        if not isinstance(value, graph.Expr):
            cx.fail(stmt, "E0104", f"{describe(value)} does nothing as a statement")
        self._emit("_", value, None, stmt)

    # --- Dataflow blocks --------------------------------------------------------------------

    def _with(self, stmt: ast.With) -> None:
        cx = self.cx
        node = stmt.items[0].context_expr
        is_call = isinstance(node, ast.Call) and _path(cx, node) == "dataflow"
        if len(stmt.items) != 1 or not is_call or stmt.items[0].optional_vars is not None:
            cx.fail(node, "E0104", "`with` opens R.dataflow() in a graph function")
        if self.outputs is not None:
            cx.fail(stmt, "E0104", "dataflow blocks are not nested")
        self._close_block()
        body, output = _split_output(cx, stmt)
        self.output_names = {n.id for n in output}
        self.outputs = Counter(_assigned(body))
        with cx.frame() as names:
            self._statements(body)
            missing = [n for n in output if n.id not in names]
        self.outputs = None
        for n in missing:
            cx.report(
                cx.error(
                    n,
                    "E0102",
                    f"{n.id!r} is not bound in this dataflow block, so it cannot be its output",
                    help=cx.suggest(n.id, names),
                )
            )
            cx.define(n.id, POISON)
        self.blocks.append(graph.DataflowBlock(tuple(self.bindings), span=cx.span(stmt)))
        self.bindings = []
        self._leave(names, {n.id for n in output}, has_output=bool(output))

    def _leave(self, names: dict[str, Value], outputs: set[str], *, has_output: bool) -> None:
        """Make the outputs visible after the block, and say of the others why they are not."""
        for name, value in names.items():
            if name in outputs or not isinstance(value, graph.DataflowVar):
                self.cx.define(name, value)
                continue
            try:
                self.cx.find(name)
            except Unbound:
                self.cx.define(name, Hidden(name, value.span, has_output))

    # --- Conditionals -----------------------------------------------------------------------

    def _if(self, stmt: ast.If) -> None:
        cx = self.cx
        if self.outputs is not None:
            cx.fail(
                stmt,
                "E0104",
                "a dataflow block has no conditionals",
                help="end the block before the `if`",
            )
        if not stmt.orelse:
            cx.fail(
                stmt,
                "E0118",
                "`if` needs an `else` in a graph function",
                help="both branches give the result a value",
            )
        test = self._value(stmt.test)
        then_name, then_seq, then_ty = self._branch(stmt.body)
        else_name, else_seq, _ = self._branch(stmt.orelse)
        if then_name.id != else_name.id:
            cx.fail(
                else_name,
                "E0118",
                f"the branches give values to different names: {then_name.id!r} and "
                f"{else_name.id!r}",
                related=(("the first branch ends with:", cx.span(then_name)),),
                help="end both branches with an assignment to the same name",
            )
        value = graph.If(test, then_seq, else_seq, span=cx.span(stmt))
        self._emit(then_name, value, then_ty, stmt)

    def _match(self, stmt: ast.Match) -> None:
        cx = self.cx
        if self.outputs is not None:
            cx.fail(stmt, "E0104", "a dataflow block has no conditionals",
                    help="end the block before the `match`")  # fmt: skip
        subject = self._value(stmt.subject)
        cases: list[graph.Case] = []
        result: ast.Name | None = None
        ty: types.Type | None = None
        for case in stmt.cases:
            constructor, fields = read_pattern(cx, case)
            with cx.frame():
                self._define_fields(fields)
                name, body, claimed = self._branch(case.body)
            if result is not None and name.id != result.id:
                cx.fail(
                    name, "E0118", f"the cases give values to different names: {result.id!r} and "
                    f"{name.id!r}", help="end all cases with an assignment to the same name",
                )  # fmt: skip
            result, ty = result or name, ty or claimed
            cases.append(graph.Case(constructor, tuple(fields), body, span=cx.span(case.pattern)))
        assert result is not None  # Python has no `match` without cases
        self._emit(result, graph.Match(subject, tuple(cases), span=cx.span(stmt)), ty, stmt)

    def _branch(self, stmts: list[ast.stmt]) -> tuple[ast.Name, graph.SeqExpr, types.Type | None]:
        """A branch: its last assignment names the result."""
        cx, last = self.cx, stmts[-1]
        ty: types.Type | None = None
        with self._nested(), cx.frame():
            self._statements(stmts[:-1])
            match last:
                case ast.Assign([ast.Name() as name], node):
                    result = self._value(node)
                case ast.AnnAssign(ast.Name() as name, annotation, ast.expr() as node):
                    ty = type_of(cx, Arg(evaluate(cx, annotation), annotation))
                    result = self._value(node, ty)
                case ast.If() | ast.Match():
                    self._statement(last)
                    bound = self.bindings.pop()
                    assert isinstance(bound, graph.VarBinding)
                    result, ty = bound.value, bound.var.ty
                    name = ast.copy_location(ast.Name(bound.var.name, ast.Store()), last)
                case _:
                    self._no_result(last)
            return name, graph.SeqExpr(self._finish(), result), ty

    def _no_result(self, last: ast.stmt) -> NoReturn:
        self.cx.fail(
            last,
            "E0118",
            "a branch of a graph function ends with an assignment to its result",
        )


def _returns(stmt: ast.stmt) -> bool:
    """True if the function ends here: a return, or an `if` or `match` whose branches return."""
    if isinstance(stmt, ast.If):
        return bool(stmt.orelse) and _returns(stmt.body[-1]) and _returns(stmt.orelse[-1])
    if isinstance(stmt, ast.Match):
        return all(_returns(case.body[-1]) for case in stmt.cases)
    return isinstance(stmt, ast.Return)


def _assigned(stmts: Sequence[ast.stmt]) -> list[str]:
    """Every assignment's target names, with repetitions."""
    names: list[str] = []
    for stmt in stmts:
        targets = stmt.targets if isinstance(stmt, ast.Assign) else []
        if isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
            targets = [stmt.target]
        if isinstance(stmt, ast.FunctionDef):
            names.append(stmt.name)
        for target in targets:
            names += [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
    return names


def _path(cx: Context, node: ast.Call) -> str:
    """The path of the `R` function that `node` calls; empty for anything else."""
    match node.func:
        case ast.Attribute(ast.Name() as base, name):
            try:
                found = cx.find(base.id)
            except Unbound:
                return ""
            return name if found == Ref("R") else ""
        case _:
            return ""


def _split_output(cx: Context, stmt: ast.With) -> tuple[list[ast.stmt], list[ast.Name]]:
    """The bindings of a dataflow block and the names that R.output lists."""
    last = stmt.body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(call, ast.Call) or _path(cx, call) != "output":
        return stmt.body, []
    names: list[ast.Name] = []
    for arg in call.args:
        if isinstance(arg, ast.Name):
            names.append(arg)
        else:
            cx.report(cx.error(arg, "E0106", "R.output takes the names of variables"))
    return stmt.body[:-1], names


# --- The function -------------------------------------------------------------------------------


def read_function(
    cx: Context, node: ast.FunctionDef, *, pure: bool, private: bool
) -> graph.Function:
    """The graph function that `node` defines."""
    reader = GraphReader(cx)
    with cx.function("R"):
        outer, cx.string_symbols = cx.string_symbols, True
        lengths, cx.lengths = cx.lengths, dict(cx.lengths)
        for p in getattr(node, "type_params", ()):  # def f[n](...) of newer Python
            cx.symbol(p.name, node)
        params = _params(cx, node)
        ret: types.Type | None = None
        if node.returns is not None:
            with cx.recover(node.returns):
                ret = type_of(cx, Arg(evaluate(cx, node.returns), node.returns))
        around, cx.expand = cx.expand, reader.expanded
        body = reader.body(node.body, node)
        cx.string_symbols, cx.lengths, cx.expand = outer, lengths, around
    span = cx.span(node)
    return graph.Function(tuple(params), body, ret, pure, private, Attrs(reader.attrs), span=span)


def _params(cx: Context, node: ast.FunctionDef) -> list[graph.Var]:
    args = node.args
    if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs or args.defaults:
        cx.fail(node, "E0104", "parameters are positional and have no defaults")
    params: list[graph.Var] = []
    for arg in args.args:
        params.append(graph.Var(arg.arg, None, span=cx.span(arg)))
        with cx.recover(arg):
            params[-1] = _param(cx, arg)
        if isinstance(params[-1].ty, types.LengthsType):
            cx.lengths[arg.arg] = params[-1].ty
        else:
            cx.lengths.pop(arg.arg, None)  # of a function around this one
    for arg, p in zip(args.args, params, strict=True):
        cx.define(arg.arg, p)
    return params


def _param(cx: Context, arg: ast.arg) -> graph.Var:
    if arg.annotation is None:
        cx.fail(
            arg,
            "E0109",
            f"parameter {arg.arg!r} has no annotation",
            help="a function of a module takes no `self`: leave it out"
            if arg.arg == "self"
            else f'write `{arg.arg}: R.Tensor((n, 4), "float32")`, or `R.Object` for any value',
        )
    value = evaluate(cx, arg.annotation)
    ty = type_of(cx, Arg(value, arg.annotation))
    if isinstance(value, Ref) and is_dtype(value.path):
        ty = own_symbol(cx, ty, arg.arg, arg)
    if isinstance(ty, types.LengthsType):
        named = types.Length(f"{arg.arg}[{types.DIMENSIONS[0]}]", span=cx.span(arg))
        ty = replace(ty, each=named)
    return graph.Var(arg.arg, ty, span=cx.span(arg))
