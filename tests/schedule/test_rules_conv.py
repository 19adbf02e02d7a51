"""Convolutions in register tiles, compiled, against NumPy: layouts, strides, groups, odd sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir.expr import Call, const
from relaxlab.ir.loops import Block, BlockRealize, Buffer, For
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.op_table import op_row
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.schedule.rules.contraction import CHANNELS
from relaxlab.testing.op_check import CaseProgram, OpCase, T, compare, concrete_call

Shape = tuple[int, ...]

CASES: list[tuple[Shape, Shape, Mapping[str, Any]]] = [
    ((2, 21, 5), (32, 5, 3), {"data_layout": "NWC", "padding": 1}),
    ((1, 22, 16), (48, 16, 3), {"data_layout": "NWC", "padding": 1, "strides": 2}),
    ((1, 9, 4), (16, 4, 4), {"data_layout": "NWC", "dilation": 2}),
    ((2, 5, 9, 8), (32, 5, 3, 3), {"padding": 1}),
    ((1, 3, 17, 11), (16, 3, 5, 2), {"strides": (2, 3), "padding": (2, 1)}),
    ((1, 7, 6, 4), (3, 2, 4, 32), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
    ((2, 6, 9, 37), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    ((1, 4, 3, 33), (6, 2, 2, 3), {"groups": 2}),
    ((1, 5, 12, 40), (7, 5, 3, 3), {"padding": 1}),
    ((2, 6, 12, 17), (21, 6, 1, 1), {"strides": (2, 3), "padding": (1, 0)}),
    ((1, 2, 3, 4, 18), (16, 2, 2, 3, 1), {"padding": (1, 0, 1)}),
]


class Convolution(nn.Module):
    def __init__(self, shape: Shape, attrs: Mapping[str, Any]) -> None:
        self.weight, self.attrs = nn.Parameter(shape), attrs

    def main(self, x: nn.Tensor) -> nn.Tensor:
        name = f"nn.conv{len(self.weight.shape) - 2}d"
        return x.op(name, x.builder.weight(self.weight), **self.attrs).op("nn.relu")

    def given(self, x: nn.Tensor, w: nn.Tensor) -> nn.Tensor:
        """The same of a kernel that is no weight."""
        return x.op(f"nn.conv{len(self.weight.shape) - 2}d", w, **self.attrs)


def rules_of(module: Module) -> dict[str, str]:
    trace = cpu_pipeline().run(module)
    remarks = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    return {w.subject: w.reason.rpartition(" ")[2] for w in remarks if w.applied}


@pytest.mark.parametrize(("shape", "kernel", "attrs"), CASES)
def test_convolutions(shape, kernel, attrs):
    """Batch and extents are symbols; one kernel for all sizes."""
    rng = np.random.default_rng(23)
    symbols = ["b", *(f"e{d}" for d in range(1, len(shape)))]
    channels = attrs.get("data_layout", "NCHW").index("C")
    dims = [shape[d] if d == channels else name for d, name in enumerate(symbols)]
    spec, w_spec = nn.spec.Tensor(tuple(dims)), nn.spec.Tensor(kernel)
    module, _ = Convolution(kernel, attrs).export(
        {"main": {"x": spec}, "given": {"x": spec, "w": w_spec}}
    )
    rules = {name: rule for name, rule in rules_of(module).items() if "conv" in name}
    assert set(rules.values()) == {"contraction"}, rules
    exe = rl.compile(module, use_cache=False)
    reference = op_row(f"nn.conv{len(kernel) - 2}d").reference
    assert reference is not None
    w = rng.normal(size=kernel).astype(np.float32)
    weights = exe["transform_params"]((w,)) if "transform_params" in exe else (w,)
    for larger in (0, 1, 8):
        size = tuple(n if d == channels else n + larger for d, n in enumerate(shape))
        x = rng.normal(size=size).astype(np.float32)
        want = reference(x, w, **attrs)
        got = exe["main"](x, *weights)
        np.testing.assert_allclose(got, np.maximum(want, 0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(exe["given"](x, w, *weights), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("checks", ["default", "all"])
@pytest.mark.parametrize(
    ("size", "kernel", "attrs"),
    [(7, 7, {"padding": 3}), (14, 3, {"padding": 1}), (20, 5, {"padding": 2, "strides": 2}),
     (19, 3, {"padding": 2, "dilation": 2}), (33, 3, {"padding": (0, 2, 1, 1)})],
)  # fmt: skip
def test_a_channel_pads_its_own_image(
    size: int, kernel: int, attrs: Mapping[str, Any], checks: Literal["default", "all"]
) -> None:
    """Depthwise: no padded copy of all images is stored, and lanes past the end of a row read
    what was stored."""
    channels, rng = 9, np.random.default_rng(31)
    layer = Convolution((channels, 1, kernel, kernel), {**attrs, "groups": channels})
    spec = {"x": nn.spec.Tensor(("b", channels, size, size))}
    module, _ = layer.export({"main": spec})
    ((kernel_func,),) = (
        rl.trace(module).find("schedule_kernels").after.loop_functions().values(),
    )  # fmt: skip
    buffers = [b for n in walk(kernel_func) if isinstance(n, Block) for b in n.alloc_buffers]
    assert buffers and {b.scope for b in buffers} == {"local"}
    x = rng.standard_normal((3, channels, size, size), "float32")
    w = rng.standard_normal((channels, 1, kernel, kernel), "float32")
    found = rl.compile(module, checks=checks)["main"](x, w)
    reference = op_row("nn.conv2d").reference
    want = np.maximum(reference(x, w, **layer.attrs), 0)
    np.testing.assert_allclose(found, want, 1e-4, 1e-4)


def test_sums_over_images_of_symbolic_sizes_have_no_guards() -> None:
    """Depthwise: rows past the end of a private image read its last window, and columns its room;
    only what is stored in the result depends on the size of the image. There are versions for small
    images, and for those of one vector of columns."""
    module, _ = Convolution((8, 1, 3, 3), {"padding": 1, "groups": 8}).export(
        {"main": {"x": nn.spec.Tensor((2, 8, "h", "w"))}}
    )
    (kernel,) = rl.trace(module).find("schedule_kernels").after.loop_functions().values()
    sums = [n for n in walk(kernel) if isinstance(n, BlockRealize) and "_update" in n.block.name]
    assert len(sums) == 4 and {n.predicate for n in sums} == {const(True)}
    reference, rng = op_row("nn.conv2d").reference, np.random.default_rng(34)
    assert reference is not None
    w = rng.standard_normal((8, 1, 3, 3), "float32")
    exe = rl.compile(module)
    for size in ((1, 1), (8, 32), (9, 33), (56, 56), (3, 131)):
        x = rng.standard_normal((2, 8, *size), "float32")
        want = np.maximum(reference(x, w, padding=1, groups=8), 0)
        np.testing.assert_allclose(exe["main"](x, w), want, 1e-4, 1e-4)


@pytest.mark.parametrize("images", [2, 4, 8])
@pytest.mark.parametrize("groups", [4, 32])
def test_tiles_of_groups_are_rows_of_one_image(
    images: int, groups: int, rng: np.random.Generator
) -> None:
    """Rows that share vectors of a window, not other images, however many are known."""
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(({images}, 32, "h", "w"), "float32"),
         f: R.Tensor((32, {32 // groups}, 3, 3), "float32")):
    with R.dataflow():
        y = R.nn.conv2d(x, f, padding=1, groups={groups})
        R.output(y)
    return y
""")
    (kernel,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    private = [b for n in walk(kernel.body) if isinstance(n, Block) for b in n.alloc_buffers]
    sums = {tuple(map(str, b.shape[:1])) for b in private if b.name.startswith("T_conv2d")}
    assert sums == {("1",)}
    main = rl.compile(mod, threads=1)["main"]
    for h, w in ((1, 1), (7, 9), (17, 33)):
        x = rng.standard_normal((images, 32, h, w), np.float32)
        f = rng.standard_normal((32, 32 // groups, 3, 3), np.float32)
        np.testing.assert_allclose(main(x, f), rl.interpret(mod, "main", x, f), 1e-4, 1e-4)


def test_padded_rows_have_zeros_for_whole_tiles() -> None:
    """No sum of a symbolic number of columns loads under a mask, and eight channels of a group read
    a tile one after the other."""
    module, _ = Convolution((32, 8, 3, 3), {"padding": 1, "groups": 2}).export(
        {"main": {"x": nn.spec.Tensor((1, 16, "h", "w"))}}
    )
    (kernel,) = rl.trace(module).find("schedule_kernels").after.loop_functions().values()
    updates = [n for n in walk(kernel) if isinstance(n, Block) and "_update" in n.name]
    assert len(updates) == 2  # one of them for few columns
    assert not any(isinstance(n, Call) for update in updates for n in walk(update.body))
    assert any(isinstance(n, For) and n.extent == const(CHANNELS) for n in walk(kernel))
    reference, rng = op_row("nn.conv2d").reference, np.random.default_rng(35)
    assert reference is not None
    w = rng.standard_normal((32, 8, 3, 3), "float32")
    exe = rl.compile(module)
    for size in ((1, 1), (7, 33), (20, 64)):
        x = rng.standard_normal((1, 16, *size), "float32")
        want = np.maximum(reference(x, w, padding=1, groups=2), 0)
        np.testing.assert_allclose(exe["main"](x, w), want, 1e-4, 1e-4)


def test_symbolic_channels_of_groups_are_no_divisor_to_test() -> None:
    text = """
@R.function
def main(x: R.Tensor((2, 4, 5, 20), "float32"), w: R.Tensor(("o", 2, 3, 3), "float32")):
    return R.nn.conv2d(x, w, padding=1, groups=2)
"""
    exe, rng = rl.compile(rl.parse(text)), np.random.default_rng(35)
    assert "failed" not in exe.llvm("conv2d")
    reference = op_row("nn.conv2d").reference
    assert reference is not None
    x = rng.standard_normal((2, 4, 5, 20), "float32")
    for outputs in (2, 6):
        w = rng.standard_normal((outputs, 2, 3, 3), "float32")
        want = reference(x, w, padding=1, groups=2)
        np.testing.assert_allclose(exe["main"](x, w), want, 1e-4, 1e-4)


@pytest.mark.parametrize("channels, first", [(64, "i_k_j_0"), (512, "j_0_i_k")])
def test_panels_of_large_weights_are_read_once(channels: int, first: str) -> None:
    """The loop over panels of output channels (`j`) is around those over images and their rows
    where all panels together do not fit the second-level cache."""
    layer = Convolution((channels, channels, 3, 3), {"padding": 1})
    spec = {"x": nn.spec.Tensor(("b", channels, 7, 7))}
    module, _ = layer.export({"main": spec})
    functions = rl.trace(module).find("schedule_kernels").after.loop_functions()
    loops = [n for f in functions.values() for n in walk(f) if isinstance(n, For)]
    assert f"{first}_fused" in {loop.loop_var.name for loop in loops}


def channels_in(channels: str, size: int) -> Module:
    """A convolution of an image with this number of channels."""
    return rl.parse(f"""
@R.function
def main(x: R.Tensor((2, {channels}, 9, 37), "float32"),
         w: R.Tensor((48, {channels}, {size}, {size}), "float32")):
    return R.nn.conv2d(x, w, padding={size // 2})
""")


@pytest.mark.parametrize("size, same", [(1, True), (3, False)])
def test_few_symbolic_channels_store_neighbours(size: int, same: bool) -> None:
    """A 1 x 1 convolution has one schedule for few and many channels: its columns are the places of
    the image."""

    def tiles_of(channels: str) -> list[tuple[str, ...]]:
        """The shapes of the private buffers of all versions of the convolution."""
        kernels = rl.trace(channels_in(channels, size)).result.loop_functions().items()
        conv = next(func for name, func in kernels if "conv" in name)
        blocks = (n for n in walk(conv.body) if isinstance(n, Block))
        made = (b for block in blocks for b in block.alloc_buffers if b.scope == "local")
        return [tuple(str(d) for d in b.shape) for b in made]

    few, many = tiles_of("2"), tiles_of("70")
    assert (few == many) == same
    assert tiles_of('"c"') == (few if same else [*few, *many])
    exe = rl.compile(channels_in('"c"', size), use_cache=False)
    reference = op_row("nn.conv2d").reference
    assert reference is not None
    rng = np.random.default_rng(5)
    for c in (1, 7, 8, 63, 64):
        x = rng.normal(size=(2, c, 9, 37)).astype(np.float32)
        w = rng.normal(size=(48, c, size, size)).astype(np.float32)
        want = reference(x, w, padding=size // 2)
        np.testing.assert_allclose(exe["main"](x, w), want, rtol=1e-4, atol=1e-3)


def test_weights_are_packed_in_the_order_in_which_data_is_read():
    """Channels last: positions of the window outside, channels inside, then 16 outputs."""
    spec = nn.spec.Tensor(("b", "t", 8))
    layer = Convolution((32, 8, 3), {"data_layout": "NWC"})
    module, _ = layer.export({"main": {"x": spec}})
    options = {"target": rl.Target("cpu", "x86_64-unknown-linux-gnu", "x86-64-v4",
                                   frozenset({"avx512f", "avx512vl"}))}  # fmt: skip
    pipeline = cpu_pipeline(**options)
    found = [f for f in pipeline.run(module).result.loop_functions().items() if "conv" in f[0]]
    ((_, func),) = found
    shapes = [p.shape for p in func.params if isinstance(p, Buffer)]
    assert [[str(d) for d in s] for s in shapes][1] == ["2", "3", "8", "16"]


TRANSPOSED = [
    OpCase("nn.conv1d_transpose", (T("n", 5, 9), T(5, 7, 4)), {"strides": 2, "padding": 1}),
    OpCase("nn.conv1d_transpose", (T("n", 4, "e"), T(4, 6, 5)), {"strides": 3, "dilation": 2}),
    # Every other place of the result has no terms; kernels end within a phase.
    OpCase("nn.conv1d_transpose", (T("n", 4, "e"), T(4, 6, 5)),
           {"strides": 4, "dilation": 6, "output_padding": 3, "padding": 2}),
    OpCase("nn.conv2d_transpose", (T("n", 6, 8, "e"), T(6, 9, 2, 2)), {"strides": 2}),
    OpCase("nn.conv2d_transpose", (T("n", "e", 5, 4), T(4, 3, 3, 2)),
           {"strides": (2, 1), "groups": 2, "data_layout": "NHWC"}),
    # More of each phase than have code of their own, and a kernel of unknown size.
    OpCase("nn.conv2d_transpose", (T("n", 3, 4, "e"), T(3, 5, 5, 4)), {"strides": (2, 3)}),
    OpCase("nn.conv1d_transpose", (T("n", 4, "e"), T(4, 9, "k")),
           {"strides": 3, "dilation": 2, "padding": (1, 2), "groups": 2}),
    OpCase("nn.conv1d_transpose", (T("n", 5, 9, dtype="int8"), T(5, 7, 4, dtype="int8")),
           {"strides": 2}),
]  # fmt: skip
INTEGERS = [
    OpCase("nn.conv2d", (T("n", 3, 9, "e", dtype=dtype), T(17, 3, 3, 3, dtype=dtype)),
           {"padding": 1})
    for dtype in ("int8", "uint8", "int32", "float64")
]  # fmt: skip


@pytest.mark.parametrize("case", [*TRANSPOSED, *INTEGERS], ids=str)
def test_transposed_and_integer_convolutions(case: OpCase) -> None:
    """Sums of products in register tiles, whatever the dtype, and of each phase of a stride."""
    used = {d for t in case.args for d in t.shape}
    symbols = {name: n for name, n in (("n", 2), ("e", 11), ("k", 5)) if name in used}
    program = CaseProgram(case, symbols, symbolic=True)
    module = Module.of({"main": program.function()})
    assert set(rules_of(module).values()) == {"contraction"}
    main = rl.compile(module, use_cache=False)["main"]
    for larger in (0, 1, 40):
        env = {name: size + larger for name, size in symbols.items()}
        arrays, (want,) = concrete_call(case, env, seed=larger)
        compare(main(*arrays, tuple(env.values())), want, str(env))


@pytest.mark.parametrize(
    ("size", "stride", "dilation"), [(3, 2, 1), (5, 4, 6), (1, 3, 1), (4, 2, 1)]
)
def test_infinity_stays_where_a_transposed_convolution_puts_it(
    size: int, stride: int, dilation: int
) -> None:
    """Phases of a kernel that ends within a stride have a term less, not one times zero."""
    options = {"strides": stride, "dilation": dilation}
    case = OpCase("nn.conv1d_transpose", (T("n", 4, "e"), T(4, 6, size)), options)
    program = CaseProgram(case, {"n": 2, "e": 9}, symbolic=True)
    main = rl.compile(Module.of({"main": program.function()}), use_cache=False)["main"]
    (x, w), _ = concrete_call(case, {"n": 2, "e": 9}, seed=1)
    x[0, 1, 4], x[1, 0, 0] = np.inf, np.nan
    assert program.row.reference is not None
    want = program.row.reference(x, w, **options)
    assert np.isfinite(want).any() and not np.isfinite(want).all()
    compare(main(x, w, (2, 9)), want, str(case))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_kernel_without_elements_is_not_read(stride: int) -> None:
    """The interpreter refuses what is read outside of a tensor."""
    case = OpCase("nn.conv1d_transpose", (T(1, 3, "e"), T(3, 2, "k")), {"strides": stride})
    program = CaseProgram(case, {"e": 6, "k": 0}, symbolic=True)
    lowered = legalize_ops(normalize(Module.of({"main": program.function()})))
    for k in (0, 1, 2, 5):
        arrays, (want,) = concrete_call(case, {"e": 6, "k": k}, seed=k)
        compare(rl.interpret(lowered, "main", *arrays, (6, k)), want, str(k))
