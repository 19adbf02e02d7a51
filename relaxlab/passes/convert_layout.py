"""Compute convolutions, and the operators between them, in another layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.ir.op_table import op_row
from relaxlab.ops.define import attr
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.shadows import Shadows, with_shadows
from relaxlab.tracing import may_apply, remark

RULE = "convert_layout"
DATA = "NCHW"
KERNELS = {"nn.conv2d": "OIHW", "nn.conv2d_transpose": "IOHW"}
"""The layouts that programs are written in: of data, and of weights by operator."""


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """`data`: the layout of data, such as NHWC. `kernel` and `transposed_kernel`: those of the
    weights of `nn.conv2d` and `nn.conv2d_transpose`; None leaves these convolutions. `converts`
    returns False for calls of them that are to stay as they are."""

    data: str = "NHWC"
    kernel: str | None = "OHWI"
    transposed_kernel: str | None = None
    converts: Callable[[graph.Call], bool] | None = None

    def kernel_of(self, op: str) -> str | None:
        """The layout of the weights of an operator."""
        return {"nn.conv2d": self.kernel, "nn.conv2d_transpose": self.transposed_kernel}[op]


@module_pass(RULE, LayoutOptions, needs=("normalize",))
def convert_layout(mod: Module, options: LayoutOptions) -> Module:
    """Convert convolutions in NCHW to the layout `data` (and their weights to theirs). Elementwise
    operators, pooling, `concat`, `split` and reductions that keep their dimensions follow; the
    rest reads values in their own layout. Signatures do not change; weights are transposed by
    calls that `lift_transform_params` can move out of the program.

    Raises ValueError for a layout that is no order of the letters NCHW (OIHW).
    """
    kernels = ((options.kernel_of(op), letters) for op, letters in KERNELS.items())
    for given, letters in ((options.data, DATA), *kernels):
        if given is not None and sorted(given) != sorted(letters):
            raise ValueError(
                f"{RULE}: {given!r} must have each of the letters {letters!r} once; layouts with "
                "blocks of channels (NCHW4c) are for data that comes in them: nn.conv2d takes them"
            )
    if options.data == DATA:
        return mod
    forth, back = _axes(DATA, options.data), _axes(options.data, DATA)

    def convert(e: graph.Expr, ty: types.TensorType) -> graph.Expr:
        missing = 4 - ty.ndim
        wide = e if not missing else _call("expand_dims", (e,), axis=tuple(range(missing)))
        return _call("permute_dims", (wide,), axes=forth)

    def restore(e: graph.Expr, ty: types.TensorType) -> graph.Expr:
        return _call("permute_dims", (e,), axes=back)

    rewrite = _Rewrite(options)
    return with_shadows(mod, convert, restore, f"_{options.data.lower()}", rewrite.binding)


def _axes(source: str, target: str) -> tuple[int, ...]:
    return tuple(source.index(c) for c in target)


def _call(op: str, args: tuple[graph.Expr, ...], **attrs: Any) -> graph.Call:
    return graph.Call(graph.Op(op), args, Attrs(attrs))


@dataclass(frozen=True, slots=True)
class _Rewrite:
    options: LayoutOptions

    def binding(self, name: str, b: graph.VarBinding, call: graph.Call, shadows: Shadows) -> bool:
        new = self.call(call, b.var.ty, shadows)
        assert isinstance(call.op, graph.Op)
        subject = f"{name}.{b.var.name}: {call.op.name}"
        if new is None or isinstance(new, str):
            if new:
                remark(RULE, subject, new, applied=False)
            return False
        done = may_apply(RULE, subject, f"in {self.options.data}")
        if done:
            shadows.bind(b, new)
        return done

    def call(
        self, call: graph.Call, out: types.Type | None, shadows: Shadows
    ) -> graph.Call | str | None:
        """Return the call in the other layout, a remark on why it stays, or None where that needs
        no remark."""
        assert isinstance(call.op, graph.Op)
        op = call.op.name
        if op in KERNELS:
            return self.conv(call, op, shadows)
        operands = [
            f for a in call.args for f in (a.fields if isinstance(a, graph.Tuple) else (a,))
        ]
        if not any(shadows.has(e) for e in operands):
            return None
        row = op_row(op)
        options = {p.name for p in row.params if p.kind == "attr"}
        stated = {"layout", "out_layout"} <= options  # pooling, resizing
        if stated and attr(call, "layout") == DATA and attr(call, "out_layout") is None:
            return self.given(call, shadows, layout=self.options.data)
        followed = all(shadows.has(e) or _is_small(e) for e in operands)
        if "elementwise" in row.traits and followed:
            return self.given(call, shadows)
        if op in ("concat", "split") and all(shadows.has(e) for e in operands):
            axis = attr(call, "axis")
            return self.given(call, shadows, axis=self.axis(axis)) if axis is not None else None
        if {"axis", "keepdims"} <= options and attr(call, "keepdims"):  # reductions
            axes: int | tuple[int, ...] | None = attr(call, "axis")
            if isinstance(axes, tuple):
                return self.given(call, shadows, axis=tuple(map(self.axis, axes)))
            if axes is not None:
                return self.given(call, shadows, axis=self.axis(axes))
        return f"reads `{next(_name(e) for e in operands if shadows.has(e))}` in {DATA}"

    def axis(self, axis: int) -> int:
        """Return the number of an axis in the other layout."""
        return self.options.data.index(DATA[axis])

    def conv(self, call: graph.Call, op: str, shadows: Shadows) -> graph.Call | str | None:
        wanted = self.options.kernel_of(op)
        chosen = self.options.converts is None or self.options.converts(call)
        if wanted is None or not chosen:
            return "it is to stay in its layout"
        layouts = [attr(call, k) for k in ("data_layout", "kernel_layout")]
        result = attr(call, "out_layout") or layouts[0]
        if layouts[0] == self.options.data:
            return None
        if layouts != [DATA, KERNELS[op]] or result != DATA:
            return f"it is written in {layouts[0]} and {layouts[1]}"
        data, kernel = call.args
        ty = leaf_type(data)
        assert isinstance(ty, types.TensorType)
        if ty.ndim != 4:
            return "the rank of the data is not known"
        turned = _call("permute_dims", (kernel,), axes=_axes(KERNELS[op], wanted))
        attrs = call.attrs.with_(
            data_layout=self.options.data, kernel_layout=wanted, out_layout=None
        )
        return replace(call, args=(shadows.of(data, ty), turned), attrs=attrs)

    def given(self, call: graph.Call, shadows: Shadows, **attrs: Any) -> graph.Call:
        """The call on shadows, with some attributes changed."""

        def visit(e: graph.Expr) -> graph.Expr:
            if isinstance(e, graph.Tuple):
                return replace(e, fields=tuple(map(visit, e.fields)))
            ty = leaf_type(e)
            if not isinstance(ty, types.TensorType) or ty.ndim == 0:
                return e
            return shadows.of(e, ty)

        args = tuple(map(visit, call.args))
        return replace(call, args=args, attrs=call.attrs.with_(**attrs))


def _is_small(e: graph.Expr) -> bool:
    """True if converting costs next to nothing: at most one dimension is not 1 (a bias)."""
    ty = leaf_type(e)
    if not isinstance(ty, types.TensorType):
        return True  # a scalar
    if ty.shape is None or ty.ndim > 4:
        return False
    return sum(not (isinstance(d, expr.IntImm) and d.value == 1) for d in ty.shape) <= 1


def _name(e: graph.Expr) -> str:
    return str(getattr(e, "name", "a constant"))
