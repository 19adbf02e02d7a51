"""Rows of primitives that contain jaxprs: calls, conditionals and loops; and random keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab.frontend.emitter import Emitter, shape_of
from relaxlab.frontend.jaxpr.rows import inlined, results, row, takes_jax
from relaxlab.frontend.jaxpr.walk import evaluate, jax_types
from relaxlab.frontend.known import Known, tensor
from relaxlab.frontend.loops import counted_loop
from relaxlab.frontend.packages import package
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph

MOST_UNROLLED = 8
"""The iterations of the longest scan that is written out: its steps become few kernels."""


@row("jit", "remat2", "custom_jvp_call", "custom_vjp_call", "composite")
@inlined
def call(b: Emitter, *operands: Any, **params: Any) -> Any:
    """The body in the place of the call; gradients were taken while JAX traced."""
    inner = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
    if inner is None:
        raise Refused("a call without a jaxpr")
    return evaluate(b, inner, operands)


def _result(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _parts(b: Emitter, value: Any, count: int) -> Any:
    return (value,) if count == 1 else b.fields(value)


@row("cond")
@inlined
def cond(b: Emitter, index: Any, *operands: Any, branches: Sequence[Any], **_: Any) -> Any:
    """The branch of that number, the last one for greater ones, the first for smaller ones."""
    if isinstance(index, Known) and not isinstance(index.number, expr.PrimExpr):
        chosen = branches[min(max(int(index.number), 0), len(branches) - 1)]
        return evaluate(b, chosen, operands)
    which, count = tensor(b, index), len(b.out)
    operands = tuple(tensor(b, o) for o in operands)

    def branch(number: int) -> Callable[[], Any]:
        return lambda: _result(
            [tensor(b, v) for v in evaluate(b, branches[number], operands)]
        )

    def chosen_from(number: int) -> Any:
        if number == len(branches) - 1:
            return branch(number)()
        return b.cond(b.less_equal(which, number), branch(number), lambda: chosen_from(number + 1))

    return _parts(b, chosen_from(0), count)


@row("while")
@inlined
def while_(
    b: Emitter, *operands: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int,
    body_nconsts: int, **_: Any,
) -> Any:  # fmt: skip
    """A loop; under `vmap` one whose rows end at their own times, and keep their values then."""
    constants = [tensor(b, o) for o in operands[: cond_nconsts + body_nconsts]]
    carried = [tensor(b, o) for o in operands[cond_nconsts + body_nconsts :]]
    count, rows = len(carried), len(cond_jaxpr.out_avals[0].shape)

    def goes_on(values: Sequence[graph.Expr]) -> Any:
        given = (*values[count : count + cond_nconsts], *values[:count])
        return tensor(b, evaluate(b, cond_jaxpr, given)[0])

    def condition(*values: graph.Expr) -> Any:
        on = goes_on(values)
        return b.cast(b.max(b.cast(on, "uint8")), "bool") if rows else on

    def body(*values: graph.Expr) -> list[Any]:
        given = (*values[count + cond_nconsts :], *values[:count])
        made = [tensor(b, v) for v in evaluate(b, body_jaxpr, given)]
        if not rows:
            return made
        on = goes_on(values)
        pairs = zip(made, values[:count], strict=True)
        return [b.where(_before(b, on, len(shape_of(new))), new, old) for new, old in pairs]

    return b.while_loop(condition, body, carried, constants)


def _before(b: Emitter, x: graph.Expr, ndim: int) -> graph.Expr:
    """A tensor with dimensions of extent 1 behind its own, `ndim` in all."""
    more = tuple(range(len(shape_of(x)), ndim))
    return b.expand_dims(x, axis=more) if more else x


@row("scan")
@inlined
def scan(
    b: Emitter, *operands: Any, jaxpr: Any, length: Any, num_carry: int, num_consts: int,
    reverse: bool, **_: Any,
) -> Any:  # fmt: skip
    """A loop over the first dimension; what each step yields is written into its place."""
    constants, carried = operands[:num_consts], operands[num_consts : num_consts + num_carry]
    xs = [tensor(b, x) for x in operands[num_consts + num_carry :]]
    extent = expr.as_expr(length)
    if isinstance(extent, expr.IntImm) and extent.value <= MOST_UNROLLED:
        return _unrolled(b, jaxpr, constants, carried, xs, extent.value, reverse)
    constants = [tensor(b, c) for c in constants]
    start = [tensor(b, c) for c in carried]
    stacked = [b.zeros(t.shape, dtype=t.dtype) for t in results(b)[num_carry:]]

    def body(i: expr.PrimExpr, *values: graph.Expr) -> list[Any]:
        at = extent - 1 - i if reverse else i
        carry, ys = values[:num_carry], values[num_carry : num_carry + len(stacked)]
        rest = values[num_carry + len(stacked) :]
        steps = [_at(b, x, at) for x in rest[: len(xs)]]
        given = (*rest[len(xs) :], *carry, *steps)
        made = [tensor(b, v) for v in evaluate(b, jaxpr, given)]
        written = [
            b.slice_scatter(whole, b.expand_dims(y, axis=0), at, at + 1, 1, axis=0)
            for whole, y in zip(ys, made[num_carry:], strict=True)
        ]
        return [*made[:num_carry], *written]

    return counted_loop(b, extent, body, (*start, *stacked), (*xs, *constants),
                        updated=range(num_carry, num_carry + len(stacked)))  # fmt: skip


def _at(b: Emitter, x: graph.Expr, at: expr.PrimExpr) -> graph.Expr:
    """Row `at` of a tensor."""
    one = b.strided_slice(x, [0], [at], [at + 1], [1], assume_inbound=True)
    return b.reshape(one, shape_of(x)[1:])


def _unrolled(
    b: Emitter, jaxpr: Any, constants: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any],
    length: int, reverse: bool,
) -> Any:  # fmt: skip
    rows: list[Sequence[Any]] = []
    for i in reversed(range(length)) if reverse else range(length):
        steps = [_at(b, x, expr.const(i)) for x in xs]
        made = evaluate(b, jaxpr, (*constants, *carry, *steps))
        carry = made[: len(carry)]
        rows.append([tensor(b, y) for y in made[len(carry) :]])
    rows = rows[::-1] if reverse else rows
    stated = results(b)[len(carry) :]
    if not rows:
        return (*carry, *(b.zeros(t.shape, dtype=t.dtype) for t in stated))
    stacked = (b.stack([r[k] for r in rows], axis=0) for k in range(len(stated)))
    return (*carry, *stacked)


# --- Random keys ------------------------------------------------------------------------------


def _expanded(b: Emitter, fn: Callable[..., Any], operands: Sequence[Any], rank: int) -> Any:
    """Return the result of a function of the numbers of one key, for keys in `rank` dimensions."""
    jax = package("jax")
    for _ in range(rank):
        fn = jax.vmap(fn)
    (value,) = evaluate(b, jax.make_jaxpr(fn)(*jax_types(operands)), operands)
    return tensor(b, value)


def _threefry() -> Any:
    return package("jax.extend.random").threefry_prng_impl


@row("random_seed")
def random_seed(b: Emitter, seed: graph.Expr, *, impl: Any) -> Any:
    _check(impl)
    return _expanded(b, _threefry().seed, [seed], len(shape_of(seed)))


def _check(impl: Any) -> None:
    if impl is not None and str(getattr(impl, "name", impl)) not in ("threefry2x32", "fry"):
        raise Refused(f"random numbers of {impl}, where there are those of threefry2x32")


@row("random_wrap", "random_unwrap", "random_clone")
def random_wrap(b: Emitter, key: graph.Expr, impl: Any = None, **_: Any) -> graph.Expr:
    """A key is the numbers that it is made of."""
    _check(impl)
    return key


@row("random_bits")
@takes_jax
def random_bits(b: Emitter, key: graph.Expr, *, bit_width: int, shape: Any) -> Any:
    rank = len(shape_of(key)) - 1
    bits = _threefry().random_bits
    return _expanded(b, lambda k: bits(k, bit_width, tuple(shape)), [key], rank)


@row("random_split")
@takes_jax
def random_split(b: Emitter, key: graph.Expr, *, shape: Any) -> Any:
    split = _threefry().split
    return _expanded(b, lambda k: split(k, tuple(shape)), [key], len(shape_of(key)) - 1)


@row("random_fold_in")
def random_fold_in(b: Emitter, key: graph.Expr, data: graph.Expr) -> Any:
    return _expanded(b, _threefry().fold_in, [key, data], len(shape_of(key)) - 1)
