"""Building modules call by call: `BlockBuilder`, and the parts that it is made of.

    bb = rl.BlockBuilder()
    n = rl.expr.Var("n")
    x = rl.graph.Var("x", rl.types.TensorType((n, rl.expr.const(4)), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(rl.ops.add(x, x))
            z = bb.emit_output(rl.ops.exp(y))
        bb.emit_func_output(z)
    mod = bb.get()

The names follow Relax's builder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.fit_operator_call import as_claim
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.data import DATA_TYPES, DataDef, data_types
from relaxlab.ir.equal import structural_key
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import NO_ATTRS, Attrs, Node, children, replace, rewrite
from relaxlab.ir.span import Span
from relaxlab.ops import te
from relaxlab.ops.define import as_value


@methods_name_arguments
class ModuleBuilder:
    """A collection of functions; of structurally equal loop functions it holds one."""

    def __init__(self, module: Module | None = None) -> None:
        self._attrs = NO_ATTRS if module is None else module.attrs
        self._graph_functions: dict[str, BaseFunc] = {}
        self._loop_functions: dict[str, loops.PrimFunc] = {}
        self._by_identity: dict[int, tuple[loops.PrimFunc, str]] = {}
        self._by_structure: dict[str, str] = {}
        for name, func in module.items() if module is not None else ():
            if isinstance(func, loops.PrimFunc):
                self._keep(name, func)
            else:
                self._graph_functions[name] = func

    def module(self) -> Module:
        """The module built so far, graph functions first."""
        return Module.of({**self._graph_functions, **self._loop_functions}, self._attrs)

    def add_data_type(self, declared: DataDef) -> None:
        """Declare a data type. ValueError where the name is another one's."""
        known = dict(data_types(self.module()))
        if known.setdefault(declared.name, declared) is not declared:
            raise ValueError(f"the module has a data type {declared.name!r} already")
        self._attrs = self._attrs.with_(**{DATA_TYPES: tuple(known.values())})

    def add_graph_function(self, name: str, func: graph.Function) -> None:
        """Add `func`. ValueError when the name is taken."""
        if name in self.module():
            raise ValueError(f"the module has a function {name!r} already")
        self._graph_functions[name] = func

    def replace_function(self, name: str, func: BaseFunc) -> None:
        """Put `func` in the place of the function of that name. KeyError when there is none."""
        if name in self._loop_functions and isinstance(func, loops.PrimFunc):
            self._keep(name, func)
        elif name in self._graph_functions and not isinstance(func, loops.PrimFunc):
            self._graph_functions[name] = func
        else:
            raise KeyError(f"the module has no function {name!r} of this kind")

    def add_loop_function(self, hint: str, func: loops.PrimFunc) -> str:
        """The name of `func` in the module: `hint`, with a number where that is another's."""
        known = self._by_identity.get(id(func))
        if known is not None:
            return known[1]
        name = self._by_structure.get(structural_key(func)) or self.module().fresh_name(hint)
        self._keep(name, self._loop_functions.get(name, func))
        self._by_identity[id(func)] = (func, name)  # keeping `func` keeps its id its own
        return name

    def _keep(self, name: str, func: loops.PrimFunc) -> None:
        self._loop_functions[name] = func
        self._by_structure.setdefault(structural_key(func), name)


class BlockSequence:
    """Binding blocks being built, and the bindings of the one that is open."""

    def __init__(self, *, dataflow: bool) -> None:
        self.blocks: list[graph.BindingBlock] = []
        self.bindings: list[graph.Binding] = []
        self.dataflow = dataflow

    def turn(self, *, dataflow: bool) -> None:
        """Close the open block; the next is a dataflow block or a plain one."""
        if self.bindings:
            kind = graph.DataflowBlock if self.dataflow else graph.BindingBlock
            self.blocks.append(kind(tuple(self.bindings)))
        self.bindings, self.dataflow = [], dataflow


class _FunctionScope:
    """A function being built: its parameters, signature, names, and sequences, innermost last."""

    def __init__(
        self,
        name: str,
        params: Sequence[graph.Var],
        ret_ty: types.Type | None,
        *,
        dataflow: bool,
    ) -> None:
        self.name, self.params, self.ret_ty = name, tuple(params), ret_ty
        self.names = UniqueNames(p.name for p in params)
        self.sequences = [BlockSequence(dataflow=dataflow)]
        self.output: graph.Expr | None = None

    def signature(self) -> dict[str, graph.Function]:
        """The function as its own body sees it: callable once its result is annotated."""
        if not self.name or self.ret_ty is None:
            return {}
        return {
            self.name: graph.Function(self.params, graph.SeqExpr((), graph.Tuple(())), self.ret_ty)
        }


@methods_name_arguments
class BlockBuilder:
    """Builds the functions of a module call by call; types are deduced as calls are emitted.

    `module` holds functions to begin with. Values that a call nests become bindings of their own.
    A dataflow block ends before a conditional and goes on after it; what later blocks read of a
    dataflow block is made its output when the function ends.
    """

    def __init__(self, module: Module | ModuleBuilder | None = None) -> None:
        given = isinstance(module, ModuleBuilder)
        self._module = module if given else ModuleBuilder(module)
        self._scopes: list[_FunctionScope] = []
        self._values: dict[graph.Var, graph.Expr] = {}
        self._span: Span | None = None

    def __repr__(self) -> str:
        return f"BlockBuilder({', '.join(self.get())})"

    def get(self) -> Module:
        """The module built so far."""
        return self._module.module()

    # --- Functions --------------------------------------------------------------------------------

    @contextmanager
    def function(
        self,
        name: str,
        params: Sequence[graph.Var] = (),
        attrs: Mapping[str, Any] = NO_ATTRS,
        *,
        ret_ty: types.Type | None = None,
        private: bool = False,
        is_pure: bool = True,
    ) -> Iterator[None]:
        """Build the function `name` of the module; `emit_func_output` gives its result.

        With `ret_ty`, its own body and functions built inside it may call it. Raises ValueError
        when the name is taken, or the function got no result.
        """
        if name in self.get():
            raise ValueError(f"the module has a function {name!r} already")
        depth = len(self._scopes)
        self.begin_function(name, params, ret_ty)
        try:
            yield
            built = self.end_function(attrs, private=private, is_pure=is_pure)
        finally:
            del self._scopes[depth:]
        self._module.add_graph_function(name, built)

    def begin_function(
        self,
        name: str = "",
        params: Sequence[graph.Var] = (),
        ret_ty: types.Type | None = None,
        *,
        dataflow: bool = False,
    ) -> None:
        """Begin a function, in a dataflow block if `dataflow`; for those who do not know all of it
        at the beginning. `end_function` ends it."""
        self._scopes.append(_FunctionScope(name, params, ret_ty, dataflow=dataflow))

    def end_function(
        self,
        attrs: Mapping[str, Any] = NO_ATTRS,
        *,
        private: bool = False,
        is_pure: bool = True,
    ) -> graph.Function:
        """The function that was begun last and ends here. ValueError without a result."""
        scope = self._scope
        if scope.output is None:
            raise ValueError(f"function {scope.name!r} has no result: call emit_func_output")
        body = _with_outputs(self._end_sequence(scope.output))
        ret_ty = scope.ret_ty or self.type_of(body.body)
        self._scopes.pop()
        return graph.Function(
            scope.params, body, ret_ty, is_pure, private, Attrs(dict(attrs)), span=self._span
        )

    @property
    def params(self) -> tuple[graph.Var, ...]:
        """The parameters of the function being built, so far."""
        return self._scope.params

    def add_param(self, param: graph.Var) -> graph.Var:
        """Add a parameter to the function being built; returns it under a name of its own."""
        scope = self._scope
        param = replace(param, name=scope.names(param.name))
        scope.params = (*scope.params, param)
        return param

    def emit_func_output(self, value: Any) -> None:
        """Let the function being built return `value`: an expression, or a tuple of them."""
        scope = self._scope
        if scope.output is not None:
            raise ValueError(f"function {scope.name!r} has a result already")
        scope.sequences[-1].turn(dataflow=False)
        scope.output = self._atom(as_value(value))

    def add_function(self, name: str, func: BaseFunc) -> graph.GlobalVar:
        """Add a function, and return a reference to it. A loop function that is there already,
        under whatever name, is not added again. ValueError for a graph function's taken name."""
        if isinstance(func, loops.PrimFunc):
            return graph.GlobalVar(self._module.add_loop_function(name, func))
        if not isinstance(func, graph.Function):
            raise TypeError(f"a function is expected, not {kind_of(func)}")
        self._module.add_graph_function(name, func)
        return graph.GlobalVar(name)

    def update_function(self, name: str, func: BaseFunc) -> None:
        """Replace the function of that name. Raises KeyError when there is none of its kind."""
        self._module.replace_function(name, func)

    # --- Blocks -----------------------------------------------------------------------------------

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """Emit into a dataflow block. ValueError inside another."""
        if self._sequence.dataflow:
            raise ValueError("dataflow blocks cannot be nested")
        self._sequence.turn(dataflow=True)
        yield
        self._sequence.turn(dataflow=False)

    def sequence(self, build: Callable[[], Any]) -> graph.SeqExpr:
        """The bindings that `build()` emits, as an expression whose value is what it returns: a
        branch, or the body of a local function."""
        scope = self._scope
        scope.sequences.append(BlockSequence(dataflow=self._sequence.dataflow))
        try:
            value = self._atom(as_value(build()))
            return self._end_sequence(value)
        finally:
            scope.sequences.pop()

    def emit_if(
        self, condition: Any, true: Callable[[], Any], false: Callable[[], Any], name: str = "if"
    ) -> graph.Var:
        """Bind what `true()` or `false()` emits and returns, by a bool scalar tensor."""
        condition = self._atom(as_value(condition))
        return self.emit(graph.If(condition, self.sequence(true), self.sequence(false)), name)

    def emit_match(
        self,
        value: Any,
        cases: Mapping[str, tuple[Sequence[tuple[str, types.Type]], Callable[..., Any]]],
        name: str = "match",
    ) -> graph.Var:
        """Bind what the case of a value's constructor emits and returns. `cases` gives for each
        constructor the names and types of its fields, and the function that takes these."""
        value = self._atom(as_value(value))
        made: list[graph.Case] = []
        for constructor, (fields, build) in cases.items():
            given = tuple(graph.Var(self._scope.names(n), ty) for n, ty in fields)
            body = self.sequence(partial(build, *given))
            made.append(graph.Case(constructor, given, body, span=self._span))
        return self.emit(graph.Match(value, tuple(made), span=self._span), name)

    @contextmanager
    def at(self, span: Span | None) -> Iterator[None]:
        """Give what is emitted the place in the user's source that it comes from."""
        outer, self._span = self._span, span
        try:
            yield
        finally:
            self._span = outer

    # --- Values -----------------------------------------------------------------------------------

    def emit(self, value: Any, name: str = "") -> graph.Var:
        """Bind a value and return its variable. DiagnosticError when it has no type."""
        return self._bind(as_value(value), name, output=False)

    def emit_output(self, value: Any, name: str = "") -> graph.Var:
        """Bind a value of a dataflow block that is to be visible after it."""
        return self._bind(as_value(value), name, output=True)

    def emit_fields(self, value: Any, name: str = "") -> tuple[graph.Var, ...]:
        """Bind a tuple, and each of its fields; the variables of these."""
        whole = self.emit(value, name)
        if not isinstance(whole.ty, types.TupleType):
            raise TypeError(f"a tuple is expected, not a value of type {whole.ty}")
        count = len(whole.ty.fields)
        return tuple(
            self.emit(graph.TupleGetItem(whole, i), f"{whole.name}_{i}") for i in range(count)
        )

    def flatten(self, value: graph.Expr) -> graph.Expr:
        """`value` with what it nests bound before it; the value itself is not bound."""
        match value:
            case graph.Call(_, args):
                changes: dict[str, Any] = {"args": tuple(self._atom(a) for a in args)}
            case graph.Tuple(fields):
                changes = {"fields": tuple(self._atom(f) for f in fields)}
            case graph.TupleGetItem(inner, _):
                changes = {"tuple_value": self._atom(inner)}
            case _:
                return value
        if value.span is None:
            changes["span"] = self._span
        return replace(value, **changes)

    def match_cast(self, value: Any, ty: types.Type, name: str = "") -> graph.Var:
        """Claim that a value has a type, which is checked at run time; symbols of `ty` that are new
        are bound."""
        value = self._atom(as_value(value))
        var = self._variable(name or _hint(value), ty, output=False)
        self._sequence.bindings.append(graph.MatchCast(value, ty, var, span=self._span))
        return var

    def require(self, condition: PrimExpr, name: str = "required") -> None:
        """Have calls of the function stop unless a condition on symbols holds; their message says
        that `name` needs it."""
        value, claim = as_claim(condition)
        self.match_cast(value, claim, name)

    def call_te(self, fn: Callable[..., Any], *args: Any, name: str = "", **options: Any) -> Any:
        """A call of the loop function that tensor expressions describe.

        `fn` gets the arguments with tensor expressions in the place of tensors, and `options`; it
        returns one of them or a tuple. Raises DiagnosticError where they read beside a tensor.
        """
        inputs: list[te.Tensor] = []
        values: list[graph.Expr] = []
        given = [self._te_argument(a, inputs, values) for a in args]
        result = fn(*given, **options)
        outputs = tuple(result) if isinstance(result, tuple | list) else (result,)
        func = te.create_prim_func([*inputs, *outputs])
        called = getattr(fn, "__name__", "").strip("_")
        hint = name or (called if called.isidentifier() else "te")  # "<lambda>" is none
        te.check(hint, func)
        callee = self.add_function(hint, func)
        symbols = tuple(p for p in func.params if isinstance(p, expr.Var))
        operands = (callee, graph.Tuple(tuple(values)))
        if symbols:
            operands = (*operands, graph.ShapeExpr(symbols))
        outs = tuple(types.TensorType(o.shape, o.dtype) for o in outputs)
        return graph.Call(graph.Op("call_tir"), operands, NO_ATTRS, outs)

    def emit_te(self, fn: Callable[..., Any], *args: Any, name: str = "", **options: Any) -> Any:
        """Bind what `call_te` returns: a variable, of a tuple where there are several results."""
        return self.emit(self.call_te(fn, *args, name=name, **options), name)

    def lookup_binding(self, var: graph.Expr) -> graph.Expr | None:
        """The value that a variable was bound to; None for parameters and claims."""
        return self._values.get(var) if isinstance(var, graph.Var) else None

    def type_of(self, value: graph.Expr, *, computable: bool = True) -> types.Type:
        """The type of an expression in the function being built. Raises DiagnosticError where it
        has none and, with `computable`, where its operators cannot compute what they are given."""
        known = {k: f for s in self._scopes for k, f in s.signature().items()}
        here = self.get()
        mod = Module.of({**dict(here.items()), **known}, here.attrs)
        return type_of(value, mod, computable=computable)

    # --- Inside -----------------------------------------------------------------------------------

    @property
    def _scope(self) -> _FunctionScope:
        if not self._scopes:
            raise ValueError("no function is being built: use `with bb.function(name, params)`")
        return self._scopes[-1]

    @property
    def _sequence(self) -> BlockSequence:
        return self._scope.sequences[-1]

    def _end_sequence(self, value: graph.Expr) -> graph.SeqExpr:
        sequence = self._sequence
        sequence.turn(dataflow=sequence.dataflow)
        return graph.SeqExpr(tuple(sequence.blocks), value, span=self._span)

    def _variable(self, hint: str, ty: types.Type, *, output: bool) -> graph.Var:
        inside = self._sequence.dataflow and not output
        return (graph.DataflowVar if inside else graph.Var)(self._scope.names(hint), ty)

    def _bind(self, value: graph.Expr, name: str, *, output: bool) -> graph.Var:
        value = self.flatten(value)
        sequence = self._sequence
        splits = sequence.dataflow and isinstance(value, graph.If | graph.Match)
        if splits:
            sequence.turn(dataflow=False)
        var = self._variable(name or _hint(value), self.type_of(value), output=output)
        sequence.bindings.append(graph.VarBinding(value, var, span=self._span))
        self._values[var] = value
        if splits:
            sequence.turn(dataflow=True)
        return var

    def _atom(self, value: graph.Expr) -> graph.Expr:
        match value:
            case graph.Tuple():
                return self.flatten(value)
            case graph.Call() | graph.TupleGetItem() | graph.If() | graph.Match():
                return self.emit(value)
            case _:
                return value

    def _te_argument(self, arg: Any, inputs: list[te.Tensor], values: list[graph.Expr]) -> Any:
        if isinstance(arg, list | tuple):
            return tuple(self._te_argument(a, inputs, values) for a in arg)
        if isinstance(arg, graph.ShapeExpr):
            return arg.values
        if not isinstance(arg, graph.Expr | np.ndarray):
            return arg
        value = self._atom(as_value(arg))
        ty = self.type_of(value)
        if not isinstance(ty, types.TensorType) or ty.shape is None or ty.dtype is None:
            raise TypeError(f"tensor expressions read tensors of a known shape and dtype, not {ty}")
        values.append(value)
        inputs.append(te.placeholder(ty.shape, ty.dtype, f"A{len(inputs)}"))
        return inputs[-1]


def _hint(value: graph.Expr) -> str:
    """A name for a value: that of its operator or function."""
    match value:
        case graph.Call(graph.Op("call_tir"), (graph.GlobalVar(name), *_)):
            return name
        case graph.Call(graph.Op(name) | graph.GlobalVar(name)):
            return name.rpartition(".")[2]
        case graph.Var(name):
            return name
        case _:
            return "value"


def _with_outputs(body: graph.SeqExpr) -> graph.SeqExpr:
    """`body` with the dataflow variables that are read outside of their blocks made outputs."""
    stack: list[tuple[Node, Node | None]] = [(body, None)]
    uses: list[tuple[graph.DataflowVar, Node | None]] = []
    home: dict[graph.DataflowVar, Node | None] = {}
    while stack:
        n, block = stack.pop()
        if isinstance(n, graph.DataflowVar):
            uses.append((n, block))
            continue
        if isinstance(n, graph.DataflowBlock):
            block = n
            home |= {b.var: n for b in n.bindings if isinstance(b.var, graph.DataflowVar)}
        stack += [(c, block) for c in children(n)]
    read = {v for v, block in uses if home.get(v) is not block}
    outputs = {v: graph.Var(v.name, v.ty) for v in read}
    if not outputs:
        return body
    return rewrite(body, lambda n: outputs.get(n) if isinstance(n, graph.DataflowVar) else None)
