"""Functions on ragged tensors, as functions on dense tensors that have their elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.ragged import (
    Product,
    Totals,
    combines_sequences,
    counted_shape,
    is_length,
    levels,
    mentions_ragged,
    name_of,
    row_dims,
    stored,
    stored_parameter,
    stored_shape,
    takes_first,
    tensors_in,
)
from relaxlab.analysis.subtype import coarsen
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.op_table import OpRow, find_op
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.types import (
    Each,
    Length,
    LengthsType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    is_part,
    is_ragged,
    lengths_in,
    outer_lengths,
)
from relaxlab.ops.define import builder
from relaxlab.passes.bindings import (
    TirCall,
    all_bindings,
    known_shape,
    leaf_type,
    map_blocks,
    use_counts,
    with_bindings,
)
from relaxlab.passes.effects import overwritten_vars
from relaxlab.passes.legalize_ops import specialize_scalars, spread_tuples
from relaxlab.passes.new_functions import NewFunctions
from relaxlab.passes.ragged_loops import NotPerSequence, RaggedLoops, other_symbols, product_sums
from relaxlab.passes.ragged_parts import count_parts
from relaxlab.passes.ragged_rows import join_rows
from relaxlab.tracing import remark

ONE = expr.const(1)
ATTENTION, SLICE = "nn.attention", "strided_slice"


def flatten_sequences(mod: Module) -> Module:
    """`mod` with dense tensors in the place of ragged ones.

    Operators that compute each row of the same rows of their operands work on the rows of all
    sequences, as those of one; attention becomes attention of sequences behind each other; all
    others become loops over the sequences, equal ones one loop function. Raises DiagnosticError
    (E0510) naming the operator for what mixes sequences.
    """
    made = NewFunctions[loops.PrimFunc](mod)
    ragged = {n: f for n, f in mod.graph_functions().items() if _has_ragged(f)}
    for name, fn in ragged.items():
        new = _Flattener(mod, name, fn, made).function()
        mod = mod.with_functions({name: new, **made.made})
    return mod


def first_rows(lengths: graph.Expr, bind: Callable[[graph.Expr, str], graph.Var]) -> graph.Var:
    """A new variable with the first row of each sequence and the number of all rows; `bind` gives
    a value a variable."""
    ends = bind(builder("cumsum")(lengths, axis=0, dtype="int64"), "ends")
    return bind(builder("concat")((np.zeros(1, "int64"), ends), axis=0), "starts")


def _has_ragged(fn: graph.Function) -> bool:
    """True for a function with a ragged tensor among its values."""
    bound = [b.var for b in all_bindings(fn) if isinstance(b, graph.VarBinding | graph.MatchCast)]
    return mentions_ragged(fn.ret_ty, *(v.ty for v in (*fn.params, *bound)))


@dataclass(slots=True)
class _Flattener:
    """A function while its bindings are rewritten. loop_functions: those that were made."""

    mod: Module
    name: str
    fn: graph.Function
    loop_functions: NewFunctions[loops.PrimFunc]
    lengths: dict[Length, graph.Var] = field(default_factory=dict[Length, graph.Var])
    totals: Totals = field(default_factory=Totals)
    new: dict[graph.Var, graph.Var] = field(default_factory=dict[graph.Var, graph.Var])
    """The variables with dense tensors, by those with ragged ones."""
    batch: dict[graph.Var, graph.Expr] = field(default_factory=dict[graph.Var, graph.Expr])
    """Variables with the rows of all sequences as those of one: (1, rows, ...)."""
    first: dict[Length, graph.Var] = field(default_factory=dict[Length, graph.Var])
    """Variables with the first row of each sequence, and the end."""
    whole: dict[graph.Var, graph.Var] = field(default_factory=dict[graph.Var, graph.Var])
    """Regular tensors, by the variables that are the first elements of these: loops read them where
    they are."""
    overwritten: set[graph.Var] = field(default_factory=set[graph.Var])
    """The variables whose memory is overwritten somewhere."""
    claims: list[graph.MatchCast] = field(default_factory=list[graph.MatchCast])
    """Parameters as tensors of the sizes that follow from lengths."""
    sums: dict[Product, graph.Var] = field(default_factory=dict[Product, graph.Var])
    """Variables with the sums of products of several lengths over the sequences before each."""
    bindings: list[graph.Binding] = field(default_factory=list[graph.Binding])
    kind: type[graph.Var] = graph.Var

    def function(self) -> graph.Function:
        fn = self.fn
        for p in fn.params:
            self.totals.define(p.ty)
            if isinstance(p.ty, LengthsType) and p.ty.each is not None:
                self.lengths[p.ty.each] = p
        self.overwritten = overwritten_vars(fn, self.mod)
        for p in fn.params:
            self.require_counted(p)
        params = tuple(map(self.parameter, fn.params))
        ret = None if fn.ret_ty is None else self.result_type(fn.ret_ty, params)
        made = replace(fn, params=params, body=self.sequence(fn.body), ret_ty=ret)
        made = self.without_unread_copies(made)
        body = replace(made.body, blocks=(*self.prelude(made), *made.body.blocks))
        made = replace(made, body=body)
        left = next((n for n in walk(made.body) if isinstance(n, Each)), None)
        if left is not None:
            raise self.error(
                f"{left}, a number for each sequence, is used outside of the shape of a tensor",
                made,
                "compute with the lengths themselves, which are a tensor, one for each sequence",
            )
        return made

    def result_type(self, ty: Type, params: Sequence[graph.Var]) -> Type:
        """The type of the function's result. Sums of products of lengths that its parameters do
        not determine are not known where it is called."""
        kept = stored(ty, self.totals)
        known = {s for p in params for s in symbols_in(p.ty)}
        unknown = {*self.totals.products().values()} - known
        return coarsen(kept, {*symbols_in(kept)} - unknown)

    def parameter(self, v: graph.Var) -> graph.Var:
        """The parameter with the dense tensor of `v`. Where it has any number of rows, that is
        compared with the one that follows from the lengths."""
        new, ty = self.variable(v), stored_parameter(v, self.totals)
        if not isinstance(ty, TensorType) or not isinstance(new.ty, TensorType):
            return new
        if ty.shape == new.ty.shape:
            return new
        given, sized = replace(new, ty=ty), graph.Var(v.name, new.ty)
        self.new[v] = sized
        self.claims.append(graph.MatchCast(given, new.ty, sized))
        return given

    def without_unread_copies(self, fn: graph.Function) -> graph.Function:
        """A function without copies of the first elements of tensors that loops read where they
        are."""
        copies, uses = {self.new.get(v) for v in self.whole}, use_counts(fn)

        def needed(b: graph.Binding) -> bool:
            return not isinstance(b, graph.VarBinding) or b.var not in copies or uses[b.var] > 0

        return map_blocks(fn, lambda k: with_bindings(k, [b for b in k.bindings if needed(b)]))

    def prelude(self, fn: graph.Function) -> list[graph.BindingBlock]:
        """Bindings that compute the sums of products of lengths that the function `fn` mentions,
        and bind those over all sequences to their symbols."""
        outer = self.bindings, self.kind
        self.bindings, self.kind = [], graph.Var
        of_claims = symbols_in(tuple(c.ty for c in self.claims))
        mentioned = {*walk(fn), *symbols_in(fn), *of_claims}
        for product, symbol in self.totals.products().items():
            if mentioned.isdisjoint((symbol, self.sums.get(product, symbol))):
                continue
            mine = [s for s in lengths_in(product) if isinstance(s, Length)]
            for s in mine:
                self.require_parameter(s)
            count, out = self.count(lengths_in(product)[0]), self.table(product).ty
            assert isinstance(out, TensorType)
            callee = self.loop_functions.name_of(product_sums(count, product), "prefix_sums")
            scalars = tuple(s for s in other_symbols(product) if s not in symbols_in(count))
            call = TirCall(callee, tuple(map(self.wide, mine)), scalars, (out,)).build()
            self.bindings.append(graph.VarBinding(call, self.table(product)))
            last = builder("strided_slice")(self.table(product), axes=[0], begin=[count],
                                            end=[count + 1])  # fmt: skip
            end = self.bind(last, f"{symbol.name}_tensor")
            shape = self.bind(graph.Call(graph.Op("tensor_to_shape"), (end,)), f"{symbol.name}_end")
            ty = ShapeType((symbol,))
            var = graph.Var(f"{symbol.name}_shape", ty)
            self.bindings.append(graph.MatchCast(shape, ty, var))
        self.bindings += self.claims
        made = [graph.BindingBlock(tuple(self.bindings))] if self.bindings else []
        self.bindings, self.kind = outer
        return made

    def table(self, product: Product) -> graph.Var:
        """The variable with the sums of a product of lengths: int64 (sequences + 1,)."""
        if isinstance(product[0], Length) and is_length(product):
            return self.starts(product[0])
        if product not in self.sums:
            ty = TensorType((self.count(lengths_in(product)[0]) + 1,), "int64")
            self.sums[product] = graph.Var(f"{name_of(product)}_starts", ty)
        return self.sums[product]

    def variable(self, v: graph.Var) -> graph.Var:
        """The variable with the dense tensors of `v`; `v` where it has no ragged ones."""
        ty = None if v.ty is None else stored(v.ty, self.totals)
        if ty is not v.ty:
            self.new[v] = replace(v, ty=ty)
        return self.new.get(v, v)

    def sequence(self, seq: graph.SeqExpr) -> graph.SeqExpr:
        blocks: list[graph.BindingBlock] = []
        for block in seq.blocks:
            dataflow = isinstance(block, graph.DataflowBlock)
            outer = self.bindings, self.kind, dict(self.batch), dict(self.first)
            self.bindings, self.kind = [], graph.DataflowVar if dataflow else graph.Var
            for b in block.bindings:
                self.binding(b)
            blocks.append(replace(block, bindings=tuple(self.bindings)))
            self.bindings, self.kind, self.batch, self.first = outer
        self.require_counted(seq.body)
        return replace(seq, blocks=tuple(blocks), body=self.moved(seq.body))

    def moved(self, e: Node) -> graph.Expr:
        """An expression with dense tensors, and its branches rewritten."""

        def visit(n: Node) -> Node:
            match n:
                case graph.Var():
                    return self.new.get(n, n)
                case graph.SeqExpr():
                    return self.sequence(n)
                case Type():
                    return stored(n, self.totals)
                case _:
                    return map_children(n, visit)

        return visit(e)  # type: ignore[return-value]

    def binding(self, b: graph.Binding) -> None:
        assert isinstance(b, graph.VarBinding | graph.MatchCast)
        value, var = b.value, b.var
        match value:
            case graph.Call(graph.Op(name)) if not value.ty_args and mentions_ragged(
                var.ty, *map(leaf_type, value.args)
            ):
                *reads, whole = spread_tuples(b, self.kind)
                for read in reads:
                    self.binding(read)
                row = find_op(name)
                assert row is not None and isinstance(whole.value, graph.Call)
                self.operator(row, whole.value, var)
            case graph.TupleGetItem(graph.Var() as source, index) if source in self.batch:
                fields = self.batch[source]
                assert isinstance(fields, graph.Tuple)
                self.batch[var] = fields.fields[index]
                self.bindings.append(replace(b, value=self.moved(value), var=self.variable(var)))
            case _:
                self.other_binding(b)

    def other_binding(self, b: graph.VarBinding | graph.MatchCast) -> None:
        """A binding of no operator on ragged tensors, with dense ones."""
        if isinstance(b.value, graph.Call):
            for arg in b.value.args:
                self.require_counted(arg)
        value, var = self.moved(b.value), self.variable(b.var)
        if isinstance(b, graph.MatchCast):
            self.require_counted(b.var)
            self.bindings.append(replace(b, value=value, var=var, ty=stored(b.ty, self.totals)))
            return
        sizes = {*self.totals.products().values()} & {*symbols_in(var.ty)}
        of_function = isinstance(value, graph.Call) and not isinstance(value.op, graph.Op)
        if of_function and sizes and var.ty is not None:  # which does not know these sizes
            known = {*symbols_in(var.ty)} - sizes
            result = self.kind(f"{var.name}_result", coarsen(var.ty, known))
            self.bindings.append(graph.VarBinding(value, result))
            self.bindings.append(graph.MatchCast(result, var.ty, var))
        else:
            self.bindings.append(replace(b, value=value, var=var))

    def bind(self, value: graph.Expr, hint: str) -> graph.Var:
        made = self.kind(hint, type_of(value, self.mod))
        self.bindings.append(graph.VarBinding(value, made))
        return made

    def error(self, message: str, at: object, suggestion: str | None = None) -> DiagnosticError:
        span = getattr(at, "span", None)
        text = f"in `{self.name}`: {message}"
        return DiagnosticError([Diagnostic("E0510", text, span, (), suggestion)])

    def require_counted(self, e: graph.Expr) -> None:
        """Raise DiagnosticError for a tensor that is another one for each sequence, without a
        dimension that counts these."""
        for v in walk(e):
            if isinstance(v, graph.Var) and any(map(is_part, tensors_in(v.ty))):
                raise self.error(
                    f"`{v.name}`, {v.ty}, is another tensor for each sequence, without a dimension "
                    "that counts these: it is an operand of operators and nothing else",
                    e, "give it such a dimension: R.broadcast_to(x, (b, …))",
                )  # fmt: skip

    # --- Operators ----------------------------------------------------------------------------

    def operator(self, row: OpRow, call: graph.Call, var: graph.Var) -> None:
        """The bindings that take the place of the call of an operator."""
        self.require_parameters(call, var)
        if row.name == SLICE and takes_first(call) and not mentions_ragged(leaf_type(call.args[0])):
            whole = self.moved(call.args[0])
            if isinstance(whole, graph.Var) and whole not in self.overwritten:
                self.whole[var] = whole
        subject = f"{self.name}.{var.name}: {row.name}"
        if row.name == ATTENTION and (value := self.attention(call, var)) is not None:
            remark("flatten_ragged", subject, "attention of sequences behind each other")
            self.bindings.append(graph.VarBinding(value, self.variable(var)))
            return
        tys = [t for t in map(leaf_type, call.args) if t is not None]
        if combines_sequences(call, tys):
            remark("flatten_ragged", subject, "combines the rows of all sequences")
            count = self.count(self.lengths_of(call, var)[0])
            rows = self.as_batch(call.args[0], count)
            assert rows is not None
            self.bindings.append(graph.VarBinding(replace(call, args=(rows,)), self.variable(var)))
            return
        kept = self.view(row, call, var) if outer_lengths(known_shape(var.ty)) else None
        if kept is not None:
            self.viewed(kept, subject, var)
            return
        try:
            ragged = self.loops_of(row, call, var)
            packed = not ragged.whole and ragged.works_on_rows()
            result = self.on_rows(call, var) if packed else None
            view = None if result is not None else self.view(row, call, var)
            func = ragged.func if result is not None or view is not None else ragged.build()
        except NotPerSequence as why:
            raise self.error(
                f"R.{row.name} cannot work on sequences of different lengths: {why}",
                call,
                'work on the rows of all sequences: R.match_cast(x, R.Tensor(("n", …)))',
            ) from None
        if result is not None:
            remark("flatten_ragged", subject, "works on the rows of all sequences")
            self.rows_result(result, var)
        elif view is not None:
            self.viewed(view, subject, var)
        else:
            remark("flatten_ragged", subject, "loops over the sequences")
            self.loops_result(func, row, call, ragged, var)

    def viewed(self, view: graph.Expr, subject: str, var: graph.Var) -> None:
        """Bind `var` to a view."""
        remark("flatten_ragged", subject, "is a view of the elements of all sequences")
        self.bindings.append(graph.VarBinding(view, self.variable(var)))

    def view(self, row: OpRow, call: graph.Call, var: graph.Var) -> graph.Expr | None:
        """The packed elements in their new shape, of an operator that keeps the elements of each
        sequence in their order, such as a reshape; None for others."""
        if "view" not in row.traits or not mentions_ragged(leaf_type(call.args[0])):
            return None
        if levels(leaf_type(call.args[0])) != levels(var.ty):
            return None
        kept = known_shape(stored(var.ty, self.totals)) if var.ty and is_ragged(var.ty) else None
        return None if kept is None else reshaped(self.moved(call.args[0]), kept)

    def require_parameters(self, call: graph.Call, var: graph.Var) -> None:
        """Raise DiagnosticError unless the lengths of a call's tensors are parameters."""
        for s in symbols_in(tuple(self.lengths_of(call, var))):
            if isinstance(s, Length):
                self.require_parameter(s, call)

    def require_parameter(self, s: Length, at: object = None) -> None:
        """Raise DiagnosticError unless lengths are a parameter."""
        if s not in self.lengths:
            raise self.error(
                f"{s} is the length of sequences whose lengths are no parameter", at,
                'make them a parameter: s: R.Lengths("b", "n")',
            )  # fmt: skip

    def lengths_of(self, call: graph.Call, var: graph.Var) -> list[Each]:
        """The lengths that the tensors of a call have, and the index that these follow from."""
        tensors = tensors_in(var.ty, *map(leaf_type, call.args))
        return list(dict.fromkeys(s for t in tensors for s in lengths_in(t.shape)))

    def loops_of(self, row: OpRow, call: graph.Call, var: graph.Var) -> RaggedLoops:
        """The loops of an operator on sequences of equal lengths."""
        tys = tuple(leaf_type(a) for a in call.args)
        if row.lower is None or var.ty is None or None in tys:
            raise NotPerSequence("it is not lowered to loops")
        func = row.lower(call, tys, var.ty)  # type: ignore[arg-type]
        given = [t for a in call.args for t in _tensors(a)]
        constants = {i: t.data for i, t in enumerate(given)
                     if isinstance(t, graph.Constant) and t.data.ndim == 0}  # fmt: skip
        func = specialize_scalars(func, constants)
        each = self.lengths_of(call, var)
        outer = outer_lengths(each)
        if outer is not None:
            if any(is_part(t) for t in tensors_in(var.ty, *tys)):
                raise NotPerSequence("an operand is another tensor for each sequence")
            func = join_rows(func, self.count(outer), outer, self.totals[outer,])
            each = list(dict.fromkeys(s for b in func.buffers for s in lengths_in(b.shape)))
        lengths = {s: self.index_function(s) for s in each if isinstance(s, Length)}
        inputs = [t for i, t in enumerate(given) if i not in constants]
        sources = map(self.read_where_it_is, inputs)
        shapes = (None if s is None else known_shape(s.ty) for s in sources)
        whole = {b: s for b, s in zip(func.buffers, shapes, strict=False) if s is not None}
        count = self.count(each[0])
        func = count_parts(func, count, whole)
        return RaggedLoops(func, len(inputs), count, lengths, self.totals, whole)

    def read_where_it_is(self, e: graph.Expr) -> graph.Var | None:
        """The regular tensor that a tensor's elements are the first ones of; None for others."""
        return self.whole.get(e) if isinstance(e, graph.Var) else None

    def index_function(self, s: Length) -> loops.Buffer:
        """The lengths as loop functions take them, with what is known of them."""
        ty = self.lengths[s].ty
        assert isinstance(ty, LengthsType)
        most = self.totals[s,] if ty.most is None else expr.const(ty.most)
        facts = (loops.Within(expr.const(ty.least), most + 1),)
        return loops.Buffer(self.lengths[s].name, (self.count(s),), "int64", facts=facts)

    def count(self, s: Each) -> expr.PrimExpr:
        """The number of the sequences that have these lengths, or this index."""
        found = self.totals.count(s)
        assert found is not None  # those of no parameter were refused
        return found

    def on_rows(self, call: graph.Call, var: graph.Var) -> graph.Expr | None:
        """The operator on the rows of all sequences as those of one; None where it does not take
        them so."""
        count = self.count(self.lengths_of(call, var)[0])
        args = tuple(self.as_batch(a, count) for a in call.args)
        if None in args:
            return None
        made = replace(call, args=args)
        wanted = [self.batch_type(t) for t in tensors_in(var.ty)]
        try:
            found = tensors_in(type_of(made, self.mod))
        except DiagnosticError:
            return None
        same = len(found) == len(wanted) and all(
            w is not None and f.shape == w.shape and f.dtype == w.dtype
            for f, w in zip(found, wanted, strict=True)
        )
        return made if same else None

    def batch_type(self, ty: TensorType) -> TensorType | None:
        """The type of the rows of all sequences as those of one; None for other elements."""
        if ty.shape is None or not lengths_in(ty.shape):
            return None
        return replace(ty, shape=self.as_one(ty.shape), ndim=-1)

    def as_one(self, shape: tuple[expr.PrimExpr, ...]) -> tuple[expr.PrimExpr, ...]:
        """The shape of the rows of all sequences as those of one: all dimensions are there, and the
        first of those that a row's number is made of counts them."""
        whole = counted_shape(shape, self.totals)
        rows, *rest = stored_shape(whole, self.totals)
        one = (rows, *(ONE,) * (row_dims(whole) - 1), *rest)
        return one if whole != shape else (ONE, *one)

    def as_batch(self, arg: graph.Expr, count: expr.PrimExpr) -> graph.Expr | None:
        """An argument with the rows of all sequences as those of one."""
        ty = leaf_type(arg)
        match arg:
            case graph.Tuple(fields):
                new = [self.as_batch(f, count) for f in fields]
                known = tuple(f for f in new if f is not None)
                return replace(arg, fields=known) if len(known) == len(new) else None
            case graph.ShapeExpr((first, *rest) as values) if first == count:
                if not lengths_in(values):
                    return replace(arg, values=(ONE, *rest))
                return replace(arg, values=self.as_one(values))
            case graph.ShapeExpr((first, *_) as values) if lengths_in(first):
                return replace(arg, values=self.as_one(values))
            case graph.Var() if arg in self.batch:
                return self.batch[arg]
            case graph.Var() if isinstance(ty, TensorType) and lengths_in(ty.shape):
                wanted = self.batch_type(ty)
                if wanted is None or wanted.shape is None:
                    return None
                self.batch[arg] = made = self.bind(reshaped(self.moved(arg), wanted.shape),
                                                   f"{arg.name}_rows")  # fmt: skip
                return made
            case _:
                return None if mentions_ragged(ty) else arg

    def rows_result(self, value: graph.Expr, var: graph.Var) -> None:
        """Bind `var` to the rows of a result that has them as those of one sequence."""
        made = self.bind(value, f"{var.name}_rows")
        if not isinstance(var.ty, TupleType):
            self.batch[var] = made
            self.bindings.append(graph.VarBinding(self.dense(made, var.ty), self.variable(var)))
            return
        parts = [self.bind(graph.TupleGetItem(made, i), f"{var.name}_{i}_rows")
                 for i in range(len(var.ty.fields))]  # fmt: skip
        self.batch[var] = graph.Tuple(tuple(parts))
        fields = tuple(self.bind(self.dense(p, t), f"{var.name}_{i}")
                       for i, (p, t) in enumerate(zip(parts, var.ty.fields, strict=True))
                       )  # fmt: skip
        self.bindings.append(graph.VarBinding(graph.Tuple(fields), self.variable(var)))

    def dense(self, rows: graph.Expr, ty: Type | None) -> graph.Expr:
        """Rows as those of one sequence, as the dense tensor of a ragged type."""
        assert ty is not None
        kept = stored(ty, self.totals)
        assert isinstance(kept, TensorType) and kept.shape is not None
        return reshaped(rows, kept.shape)

    def loops_result(
        self, func: loops.PrimFunc, row: OpRow, call: graph.Call, ragged: RaggedLoops,
        var: graph.Var,
    ) -> None:  # fmt: skip
        """Bind `var` to the results of loops over the sequences."""
        callee = self.loop_functions.name_of(func, f"ragged_{row.name.rpartition('.')[2]}")
        given = [t for a in call.args for t in _tensors(a)]
        tensors = [self.read_where_it_is(t) or self.moved(t) for t in given
                   if not isinstance(t, graph.Constant) or t.data.ndim]  # fmt: skip
        symbols = tuple(p for p in func.params if isinstance(p, expr.Var))
        outs = tuple(stored(t, self.totals) for t in tensors_in(var.ty))
        args = (*map(self.wide, ragged.lengths), *map(self.table, ragged.starts), *tensors)
        value = TirCall(callee, args, symbols, outs).build()
        if isinstance(var.ty, TupleType) and len(outs) == 1:
            only = self.kind(f"{var.name}_0", outs[0])
            self.bindings.append(graph.VarBinding(value, only))
            value = graph.Tuple((only,))
        self.bindings.append(graph.VarBinding(value, self.variable(var)))

    def starts(self, s: Length) -> graph.Var:
        """The first row of each sequence, and the number of all rows: int64 (sequences + 1,)."""
        if s not in self.first:
            self.first[s] = first_rows(self.lengths[s], self.bind)
        return self.first[s]

    def wide(self, s: Length) -> graph.Var:
        """The lengths as loop functions take them: int64 (sequences,)."""
        return self.bind(builder("astype")(self.lengths[s], dtype="int64"), self.lengths[s].name)

    def attention(self, call: graph.Call, var: graph.Var) -> graph.Expr | None:
        """Attention over the rows of each sequence; None where keys or queries are not ragged, or
        there is a bias."""
        tys = [leaf_type(a) for a in call.args]
        extents = [t.shape[1] for t in tys if isinstance(t, TensorType) and t.shape is not None]
        lengths = [e for e in extents if isinstance(e, Length)]
        if len(tys) != 3 or len(lengths) != 3 or any(map(is_part, tys)):
            return None
        if outer_lengths(self.lengths_of(call, var)) is not None:
            return None
        queries, keys, _ = lengths
        if queries is keys:
            rows = tuple(self.moved(a) for a in call.args)
            args = (*rows, self.lengths[queries])
            return graph.Call(graph.Op("nn.ragged_attention"), args, call.attrs, span=call.span)
        batch = tuple(self.as_batch(a, self.count(queries)) for a in call.args)
        longest = graph.Constant(np.array(0, "int32"))  # which nothing needs
        args = (*batch, self.starts(queries), longest, self.starts(keys), longest)
        value = graph.Call(graph.Op("nn.attention_var_len"), args, call.attrs, span=call.span)  # type: ignore[arg-type]
        made = self.bind(value, "attended")
        assert isinstance(made.ty, TensorType) and made.ty.shape is not None
        return reshaped(made, made.ty.shape[1:])


def _tensors(arg: graph.Expr) -> Iterable[graph.Expr]:
    """The tensors in an argument, in the order in which loop functions take them."""
    ty = leaf_type(arg)
    if isinstance(arg, graph.Tuple):
        return [t for f in arg.fields for t in _tensors(f)]
    return [arg] if isinstance(ty, TensorType) else []


def reshaped(x: graph.Expr, shape: tuple[expr.PrimExpr, ...]) -> graph.Call:
    """The tensor in another shape."""
    return graph.Call(graph.Op("reshape"), (x, graph.ShapeExpr(shape)))
