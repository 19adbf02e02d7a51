"""Printing graph functions."""

from __future__ import annotations

from relaxlab.analysis.deduce import signature_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.node import NO_ATTRS, walk
from relaxlab.ir.op_table import find_op
from relaxlab.ir.substitute import free_symbols
from relaxlab.script.constants import constant_text
from relaxlab.script.convert import is_symbolic
from relaxlab.script.members import OUT_TYPED, PACKED
from relaxlab.script.print_expr import scalar
from relaxlab.script.print_types import annotation, attribute, dims, sequence
from relaxlab.script.writer import Writer, plain, string


def function(w: Writer, name: str, f: graph.Function, path: str, *, local: bool = False) -> None:
    """Write `f` as a function of the script."""
    options = [*(["private=True"] if f.private else []), *([] if f.is_pure else ["pure=False"])]
    with w.node(path), w.names.scope():
        w.line(f"@R.function({', '.join(options)})" if options else "@R.function")
        symbols = [s for s in _new_symbols(w, f, local=local) if not _is_param_symbol(s, f)]
        for s in symbols:
            w.names.declare(s, s.name)
        for p in f.params:
            own = _own_symbol(p)
            w.names.declare(p, p.name)
            if own is not None:
                w.names.declare(own, own.name, same_as=w.names.of(p, p.name))
            if isinstance(p.ty, types.LengthsType) and p.ty.each is not None:
                at = types.DIMENSIONS[0]  # the name of the dimension that counts the sequences
                w.names.declare(p.ty.each, at, same_as=f"{w.names.of(p, p.name)}[{at}]")
        params = [_param(w, p, f"{path}.params[{i}]") for i, p in enumerate(f.params)]
        ret = ""
        if f.ret_ty is not None:
            ret = f" -> {annotation(w, f.ret_ty, path + '.ret_ty', quoted=True)}"
        _header(w, name, params, ret)
        with w.indented():
            attrs = w.shown(f.attrs)
            if attrs != NO_ATTRS:
                w.line(f"R.func_attr({attribute(w, attrs, path + '.attrs')})")
            for s in symbols:
                w.line(f"{w.names.of(s, s.name)} = T.{s.dtype}()")
            if w.in_module and not local and _calls_module(f):
                w.line(f"cls = {w.module_name}")
            _sequence(w, f.body, path + ".body", None)


def _new_symbols(w: Writer, f: graph.Function, *, local: bool) -> list[expr.Var]:
    """The symbols to declare in `f`: those of an enclosing function are visible already."""
    named = (s for s in free_symbols(f) if not isinstance(s, types.Length))
    return [s for s in named if not local or s not in w.names]


def _header(w: Writer, name: str, params: list[str], ret: str) -> None:
    line = f"def {name}({', '.join(params)}){ret}:"
    if len(plain(line)) <= 92:
        w.line(line)
        return
    w.line(f"def {name}(")
    for p in params:
        w.line(f"    {p},")
    w.line(f"){ret}:")


def _own_symbol(p: graph.Var) -> expr.Var | None:
    """The symbol that a scalar parameter is: `n: T.int64` may be used in shapes."""
    match p.ty:
        case types.PrimType(_, expr.Var(name) as symbol) if name == p.name:
            return symbol
        case _:
            return None


def _is_param_symbol(s: expr.Var, f: graph.Function) -> bool:
    return any(_own_symbol(p) is s for p in f.params)


def _param(w: Writer, p: graph.Var, path: str) -> str:
    name, own = w.names.of(p, p.name), _own_symbol(p)
    if own is not None:
        return w.mark(path, f"{name}: T.{own.dtype}")
    ty = types.ObjectType() if p.ty is None else p.ty
    return w.mark(path, f"{name}: {annotation(w, ty, path + '.ty', quoted=True)}")


def _calls_module(f: graph.Function) -> bool:
    """True if the text of a function mentions its module."""
    return any(
        isinstance(n, graph.GlobalVar | graph.Match) or n == graph.Op("adt.construct")
        for n in walk(f.body)
    )


def _sequence(w: Writer, seq: graph.SeqExpr, path: str, target: str | None) -> None:
    """Blocks and result of a body; the result is returned, or assigned to `target`."""
    for i, block in enumerate(seq.blocks):
        where = f"{path}.blocks[{i}]"
        if isinstance(block, graph.DataflowBlock):
            _dataflow(w, block, where)
        else:
            with w.node(where):
                _bindings(w, block, where)
    body = path + ".body"
    if isinstance(seq.body, graph.If):
        _if(w, seq.body, body, target)
    elif isinstance(seq.body, graph.Match):
        _match(w, seq.body, body, target)
    else:
        text = value(w, seq.body, body)
        w.line(f"return {text}" if target is None else f"{target} = {text}")


def _bindings(w: Writer, block: graph.BindingBlock, path: str) -> None:
    for i, b in enumerate(block.bindings):
        with w.node(f"{path}.bindings[{i}]"):
            binding(w, b, f"{path}.bindings[{i}]")


def _dataflow(w: Writer, block: graph.DataflowBlock, path: str) -> None:
    bound = [b.var for b in block.bindings if isinstance(b, graph.VarBinding | graph.MatchCast)]
    outputs = [v for v in bound if not isinstance(v, graph.DataflowVar)]
    with w.node(path):
        w.line("with R.dataflow():")
        for v in outputs:  # visible after the block, so not in the scope of names it opens
            w.names.declare(v, v.name)
        with w.indented():
            _bindings(w, block, path)
            w.line(f"R.output({', '.join(w.names.of(v, v.name) for v in outputs)})")


def binding(w: Writer, b: graph.Binding, path: str) -> None:
    """Write one binding."""
    assert isinstance(b, graph.VarBinding | graph.MatchCast)
    ty = ""
    if w.types and b.var.ty is not None:
        ty = f": {annotation(w, b.var.ty, path + '.var.ty')}"
    if isinstance(b.value, graph.If):
        _if(w, b.value, path + ".value", f"{w.names.of(b.var, b.var.name)}{ty}")
        return
    if isinstance(b.value, graph.Match):
        _match(w, b.value, path + ".value", f"{w.names.of(b.var, b.var.name)}{ty}")
        return
    if isinstance(b.value, graph.Function):
        name = w.names.of(b.var, b.var.name)
        if ty and not structural_equal(b.var.ty, signature_of(b.value)):
            w.line(f"{name}{ty}")
        function(w, name, b.value, path + ".value", local=True)
        return
    text = value(w, b.value, path + ".value")
    if isinstance(b, graph.MatchCast):
        text = f"R.match_cast({text}, {annotation(w, b.ty, path + '.ty')})"
    name = w.mark(path + ".var", w.names.of(b.var, b.var.name))
    w.line(f"{name}{ty} = {text}")


def _if(w: Writer, e: graph.If, path: str, target: str | None) -> None:
    w.line(f"if {value(w, e.condition, path + '.condition')}:")
    with w.indented():
        _sequence(w, e.true_branch, path + ".true_branch", target)
    w.line("else:")
    with w.indented():
        _sequence(w, e.false_branch, path + ".false_branch", target)


def _match(w: Writer, e: graph.Match, path: str, target: str | None) -> None:
    w.line(f"match {value(w, e.value, path + '.value')}:")
    with w.indented():
        for i, case in enumerate(e.cases):
            where = f"{path}.cases[{i}]"
            with w.node(where):
                fields = ", ".join(w.names.declare(v, v.name) for v in case.fields)
                w.line(f"case cls.{case.constructor}({fields}):")
                with w.indented():
                    _sequence(w, case.body, where + ".body", target)


def value(w: Writer, e: graph.Expr, path: str) -> str:
    """A graph expression as script text."""
    match e:
        case graph.Var(name):
            text = w.names.of(e, name)
        case graph.GlobalVar(name):
            text = f"cls.{name}" if w.in_module else f"I.GlobalVar({string(name)})"
        case graph.ExternFunc(name):
            text = f"R.ExternFunc({string(name)})"
        case graph.Constant(data):
            text = f"R.const({constant_text(data)})"
        case graph.Tuple(()):  # a bare () is a shape where one is expected
            text = "R.tuple()"
        case graph.Tuple(fields):
            items = [value(w, f, f"{path}.fields[{i}]") for i, f in enumerate(fields)]
            text = f"({sequence(items)})"
        case graph.TupleGetItem(inner, index):
            text = f"{value(w, inner, path + '.tuple_value')}[{index}]"
        case graph.ShapeExpr(values):
            text = f"R.shape([{', '.join(dims(w, values, path + '.values', False))}])"
        case graph.PrimValue(inner):
            text = f"R.prim_value({scalar(w, inner, path + '.value')})"
        case graph.StringImm(inner):
            text = f"R.str({string(inner)})"
        case graph.DataTypeImm(inner):
            text = f"R.dtype({string(inner)})"
        case graph.Op(name):
            text = f"R.{name}"
        case graph.Call():
            text = _call(w, e, path)
        case _:
            raise TypeError(
                f"the script has no spelling for {type(e).__name__} inside an expression; "
                "normalise the function first"
            )
    return w.mark(path, text)


def _types(w: Writer, tys: tuple[types.Type, ...], path: str, brackets: str) -> str:
    texts = [annotation(w, t, f"{path}[{i}]") for i, t in enumerate(tys)]
    return texts[0] if len(texts) == 1 else f"{brackets[0]}{', '.join(texts)}{brackets[1]}"


def _call(w: Writer, e: graph.Call, path: str) -> str:
    args = [value(w, a, f"{path}.args[{i}]") for i, a in enumerate(e.args)]
    tys = f"{path}.ty_args"
    match e.op:
        case graph.Op("adt.construct"):
            return f"cls.{e.attrs['constructor']}({', '.join(args)})"
        case graph.Op(name) if name in OUT_TYPED:
            return _call_tir(w, name, e, args, path)
        case graph.Op(name) if name in PACKED:
            head = f"R.{name}"
            args = [_callee_name(e.args[0], args[0]), *args[1:]]
        case graph.Op(name):
            head = f"R.{name}"
            args = _op_args(name, args)
        case graph.ExternFunc(name):
            head = "R.call_packed"
            args = [string(name), *args]
        case _:
            head = value(w, e.op, path + ".op")
    args += [f"{k}={attribute(w, v, f'{path}.attrs[{k!r}]')}" for k, v in e.attrs.items()]
    if e.ty_args:
        args.append(f"ty_args={_types(w, e.ty_args, tys, '()')}")
    return f"{head}({', '.join(args)})"


def _callee_name(callee: graph.Expr, text: str) -> str:
    return string(callee.name) if isinstance(callee, graph.ExternFunc) else text


def _call_tir(w: Writer, name: str, e: graph.Call, args: list[str], path: str) -> str:
    """A cross-level call; extra symbols stand after the tensors, as in current TVM releases."""
    extra: list[str] = []
    last_field = e.args[1].fields[-1:] if isinstance(e.args[1], graph.Tuple) else ()
    ambiguous = any(is_symbolic(f) for f in last_field)
    match e.args[1:]:
        case (graph.Tuple(fields), graph.ShapeExpr(symbols)) if symbols and not ambiguous:
            items = [value(w, f, f"{path}.args[1].fields[{i}]") for i, f in enumerate(fields)]
            items += dims(w, symbols, f"{path}.args[2].values", False)
            tensors = w.mark(f"{path}.args[1]", f"({sequence(items)})")
        case _:
            tensors = args[1]
            extra = [f"tir_vars={text}" for text in args[2:] or ["R.shape([])"] * ambiguous]
    parts = [_callee_name(e.args[0], args[0]), tensors]
    parts += [f"{k}={attribute(w, v, f'{path}.attrs[{k!r}]')}" for k, v in e.attrs.items()]
    parts.append(f"out_ty={_types(w, e.ty_args, f'{path}.ty_args', '[]')}")
    return f"R.{name}({', '.join(parts + extra)})"


def _op_args(name: str, args: list[str]) -> list[str]:
    """Arguments by position, or by name after a parameter that is an attribute."""
    row = find_op(name)
    if row is None:
        return args
    values = [(i, p) for i, p in enumerate(row.params) if p.kind == "value"]
    texts: list[str] = []
    for count, text in enumerate(args):
        named = count < len(values) and values[count][0] != count
        texts.append(f"{values[count][1].name}={text}" if named else text)
    return texts
