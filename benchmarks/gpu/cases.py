"""The kernels that are compared on a GPU: programs, arguments, PyTorch's functions, and work."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from relaxlab import nn
from relaxlab.ir.module import Module
from relaxlab.nn import loop_functions
from relaxlab.script import parse

# Times are predicted without peers, on machines that have no PyTorch.
if TYPE_CHECKING or find_spec("torch"):
    import torch
    import torch.nn.functional as F
    from torch.nn.attention.bias import causal_lower_right

FLOAT, BRAIN, HALF, BYTE = "float32", "bfloat16", "float16", "uint8"
SIZE = {FLOAT: 4, BRAIN: 2, HALF: 2, BYTE: 1}


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel. `arguments` are (shape in the program, shape, dtype) of the tensors `x`, `y`, `z`
    that `body` computes with, or the program that it makes; `peer` does so in PyTorch, with what
    `for_peer` makes of the tensors before. `bytes` are read or written at least, `operations` are
    multiplications and additions of products. `tolerance` bounds the error's norm in relation to
    the result's."""

    name: str
    group: str
    arguments: Sequence[tuple[str, tuple[int, ...], str]]
    body: str | Callable[[], Module]
    peer: Callable[..., Any]
    bytes: int = 0
    operations: int = 0
    tolerance: float = 1e-5
    for_peer: Callable[..., Sequence[Any]] = lambda *tensors: tensors

    def module(self) -> Module:
        """The program, with symbols where the shapes have them."""
        if not isinstance(self.body, str):
            return self.body()
        params = [
            f'{name}: R.Tensor({shape}, "{dtype}")'
            for name, (shape, _, dtype) in zip("xyz", self.arguments, strict=False)
        ]
        text = f"@R.function\ndef main({', '.join(params)}):\n    with R.dataflow():\n"
        return parse(f"{text}        r = {self.body}\n        R.output(r)\n    return r\n")

    def sizes(self) -> dict[str, int]:
        """The values of the program's symbols."""
        return {
            symbol: n
            for text, shape, _ in self.arguments
            for symbol, n in zip(ast.literal_eval(text), shape, strict=True)
            if isinstance(symbol, str)
        }

    def tensors(self, seed: int) -> list[torch.Tensor]:
        """Random arguments on the GPU: normal floats, bytes of any value."""
        generator = torch.Generator("cuda").manual_seed(seed)

        def drawn(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
            kind = getattr(torch, dtype)
            if dtype == BYTE:
                return torch.randint(256, shape, generator=generator, device="cuda", dtype=kind)
            return torch.randn(shape, generator=generator, device="cuda").to(kind)

        return [drawn(shape, dtype) for _, shape, dtype in self.arguments]


def cases() -> Iterator[Case]:
    """All, memory-bound ones first."""
    yield from _elementwise()
    yield from _rows()
    yield from _reductions()
    yield from _vectors()
    yield from _four_bits()
    yield from _products()
    yield from _attention()


def _bytes(*tensors: tuple[tuple[int, ...], str]) -> int:
    total = 0
    for shape, dtype in tensors:
        size = SIZE[dtype]
        for n in shape:
            size *= n
        total += size
    return total


def _elementwise() -> Iterator[Case]:
    wide = (8192, 8192)
    for dtype in (FLOAT, BRAIN):
        row = ('("n", 8192)', wide, dtype)
        tolerance = 1e-5 if dtype == FLOAT else 1e-2
        short = {FLOAT: "f32", BRAIN: "bf16"}[dtype]
        yield Case(
            f"add {short}",
            "elementwise",
            (row, row),
            "R.add(x, y)",
            lambda x, y: torch.add(x, y),
            3 * _bytes((wide, dtype)),
            tolerance=tolerance,
        )
        yield Case(
            f"gelu(x)*y {short}",
            "elementwise",
            (row, row),
            "R.multiply(R.nn.gelu(x), y)",
            lambda x, y: F.gelu(x) * y,
            3 * _bytes((wide, dtype)),
            tolerance=tolerance,
        )
        bias = ("(8192,)", (8192,), dtype)
        yield Case(
            f"relu(x+bias) {short}",
            "elementwise",
            (row, bias),
            "R.nn.relu(R.add(x, y))",
            lambda x, b: F.relu(x + b),
            2 * _bytes((wide, dtype)),
            tolerance=tolerance,
        )
        yield Case(
            f"transpose {short}",
            "elementwise",
            (row,),
            "R.permute_dims(x)",
            lambda x: x.T.contiguous(),
            2 * _bytes((wide, dtype)),
        )
    odd = (8191, 8189)
    ragged = ('("n", "m")', odd, FLOAT)
    yield Case(
        "add f32 odd, symbolic",
        "elementwise",
        (ragged, ragged),
        "R.add(x, y)",
        lambda x, y: torch.add(x, y),
        3 * _bytes((odd, FLOAT)),
    )
    yield Case(
        "cast f32 bf16",
        "elementwise",
        (('("n", 8192)', wide, FLOAT),),
        'R.astype(x, "bfloat16")',
        lambda x: x.bfloat16(),
        _bytes((wide, FLOAT), (wide, BRAIN)),
        tolerance=1e-2,
    )


def _rows() -> Iterator[Case]:
    for dtype, rows, width in (
        (FLOAT, 8192, 4096),
        (FLOAT, 65536, 512),
        (FLOAT, 4096, 32000),
        (BRAIN, 16384, 4096),
        (FLOAT, 8191, 4095),
    ):
        shape = (rows, width)
        x = (f'("n", {width})', shape, dtype)
        w = (f"({width},)", (width,), dtype)
        label = f"{'f32' if dtype == FLOAT else 'bf16'} {rows}x{width}"
        tolerance, moved = (1e-5 if dtype == FLOAT else 1e-2), 2 * _bytes((shape, dtype))
        yield Case(
            f"softmax {label}",
            "rows",
            (x,),
            "R.nn.softmax(x)",
            lambda x: torch.softmax(x, -1),
            moved,
            tolerance=tolerance,
        )
        if width < 32000:
            yield Case(
                f"rms_norm {label}",
                "rows",
                (x, w),
                "R.nn.rms_norm(x, y, axes=-1)",
                lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-5),
                moved,
                tolerance=tolerance,
            )
            yield Case(
                f"layer_norm {label}",
                "rows",
                (x, w, w),
                "R.nn.layer_norm(x, y, z, axes=-1)",
                lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
                moved,
                tolerance=tolerance,
            )


def _reductions() -> Iterator[Case]:
    shape = (16384, 8192)
    x = ('("n", 8192)', shape, FLOAT)
    for axis in (0, 1, None):
        text, dim = ("", None) if axis is None else (f", axis={axis}", axis)
        name = "all" if axis is None else f"axis {axis}"
        yield Case(
            f"sum f32 {name}",
            "reductions",
            (x,),
            f"R.sum(x{text})",
            lambda x, dim=dim: x.sum() if dim is None else x.sum(dim),
            _bytes((shape, FLOAT)),
            tolerance=1e-4,
        )
    yield Case(
        "max f32 axis 1",
        "reductions",
        (x,),
        "R.max(x, axis=1)",
        lambda x: x.amax(1),
        _bytes((shape, FLOAT)),
    )


def _vectors() -> Iterator[Case]:
    for n, k in ((14336, 4096), (4096, 14336), (128256, 4096)):
        for dtype in (BRAIN, FLOAT):
            label = f"{'f32' if dtype == FLOAT else 'bf16'} 1x{k} by {k}x{n}"
            yield Case(
                f"decode {label}",
                "decode",
                ((f"(1, {k})", (1, k), dtype), (f"({n}, {k})", (n, k), dtype)),
                "R.matmul(x, R.permute_dims(y))",
                lambda x, w: x @ w.T,
                _bytes(((n, k), dtype)),
                tolerance=1e-4 if dtype == FLOAT else 1e-2,
            )


def _four_bits() -> Iterator[Case]:
    """Rows by matrices of four bits, with a scale for each 32 weights (Q4_0)."""
    for rows, n, k in ((1, 14336, 4096), (1, 4096, 14336), (4, 14336, 4096), (16, 14336, 4096)):
        scales, bytes_ = (n, k // 32), (n, k // 32, 16)
        for activations in ("float32", "q8", "q16") if rows == 1 else ("q8", "q16", "bfloat16"):
            yield Case(
                f"decode q4 {activations} {rows}x{k} by {k}x{n}",
                "decode",
                (
                    (f"({rows}, {k})", (rows, k), FLOAT),
                    (str(scales), scales, HALF),
                    (str(bytes_), bytes_, BYTE),
                ),
                partial(_quantised_linear, rows, n, k, activations),
                _multiply_packed,
                _bytes((scales, HALF), (bytes_, BYTE), ((rows, n + k), FLOAT)),
                tolerance={"float32": 1e-5, "q16": 1e-4}.get(activations, 2e-2),
                for_peer=_packed,
            )


def _quantised_linear(rows: int, n: int, k: int, activations: nn.Activations) -> Module:
    class Decode(nn.Module):
        def __init__(self) -> None:
            precision = nn.Precision(one=activations, several=activations)
            self.linear = nn.Linear(k, n, format="Q4_0", precision=precision)

        def main(self, x: nn.Tensor) -> nn.Tensor:
            return self.linear(x)

    return Decode().export({"main": {"x": nn.spec.Tensor((rows, k), FLOAT)}})[0]


def _packed(x: torch.Tensor, scales: torch.Tensor, codes: torch.Tensor) -> Sequence[Any]:
    """The arguments of PyTorch's product by weights of four bits, in bfloat16; of doubles the row,
    and the matrix decoded."""
    codes = codes.to(torch.uint8)
    integers = torch.cat([codes & 15, codes >> 4], -1)
    if x.dtype == torch.double:
        return x, ((integers.double() - 8) * scales[..., None]).flatten(1)
    pairs = integers.flatten(1).reshape(scales.shape[0], -1, 2)
    packed = torch._convert_weight_to_int4pack((pairs[..., 0] << 4) | pairs[..., 1], 8)
    both = torch.stack([scales, torch.zeros_like(scales)], -1).transpose(0, 1).bfloat16()
    return x.bfloat16(), packed, both.contiguous()


def _multiply_packed(x: torch.Tensor, w: torch.Tensor, scales: Any = None) -> torch.Tensor:
    return x @ w.T if scales is None else torch._weight_int4pack_mm(x, w, 32, scales)


def _products() -> Iterator[Case]:
    for label, m, n, k, dtype in (
        ("1024", 1024, 1024, 1024, BRAIN),
        ("4096", 4096, 4096, 4096, BRAIN),
        ("8192", 8192, 8192, 8192, BRAIN),
        ("8192", 8192, 8192, 8192, HALF),
        ("8191x8193x8190", 8191, 8193, 8190, BRAIN),
        ("16x4096x14336", 16, 4096, 14336, BRAIN),
        ("64x4096x14336", 64, 4096, 14336, BRAIN),
        ("128x14336x4096", 128, 14336, 4096, BRAIN),
        ("4096", 4096, 4096, 4096, FLOAT),
    ):
        kind = {BRAIN: "bf16", HALF: "f16", FLOAT: "f32"}[dtype]
        moved = _bytes(((m, k), dtype), ((n, k), dtype), ((m, n), dtype))
        yield Case(
            f"matmul {kind} {label}",
            "products",
            ((f'("m", {k})', (m, k), dtype), (f"({k}, {n})", (k, n), dtype)),
            "R.matmul(x, y)",
            lambda x, y: torch.matmul(x, y),
            moved,
            2 * m * n * k,
            1e-4 if dtype == FLOAT else 1e-2,
        )
    m, n, k = 4096, 14336, 4096
    yield Case(
        "gelu(x@w.T+b) bf16 4096x14336x4096",
        "products",
        ((f'("m", {k})', (m, k), BRAIN), (f"({n}, {k})", (n, k), BRAIN), (f"({n},)", (n,), BRAIN)),
        "R.nn.gelu(R.add(R.matmul(x, R.permute_dims(y)), z))",
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        _bytes(((m, k), BRAIN), ((n, k), BRAIN), ((m, n), BRAIN)),
        2 * m * n * k,
        1e-2,
    )


def _attention() -> Iterator[Case]:
    for length, causal in ((4096, False), (4096, True)):
        heads, size = 32, 128
        shape = (4, length, heads, size)
        x = ('(4, "s", 32, 128)', shape, BRAIN)
        mask = ', causal_mask="TopLeft"' if causal else ""
        work = 4 * 4 * heads * length * length * size // (2 if causal else 1)
        yield Case(
            f"attention bf16 4x{length}x32x128{' causal' if causal else ''}",
            "attention",
            (x, x, x),
            f"R.nn.attention(x, y, z{mask})",
            lambda q, k, v, causal=causal: F.scaled_dot_product_attention(
                *(t.transpose(1, 2) for t in (q, k, v)), is_causal=causal
            ).transpose(1, 2),
            4 * _bytes((shape, BRAIN)),
            work,
            2e-2,
        )
    yield from _cached_attention()


def _cached_attention() -> Iterator[Case]:
    """The last 1024 positions are new, as of a prompt and of the last part of a longer one; or 8,
    as of words that are guessed and then checked together."""
    heads, kv_heads, size = 32, 8, 128
    for new, length in ((1024, 1024), (1024, 4096), (8, 4096), (8, 16384)):
        queries, keys, values = (
            (1, new, heads, size),
            (1, kv_heads, length // 16, size, 16),
            (1, kv_heads, length, size),
        )
        yield Case(
            f"attention kv f16 {new} of {length} 32x128 by 8",
            "attention",
            (
                ('(1, "s", 32, 128)', queries, HALF),
                ('(1, 8, "n", 128, 16)', keys, HALF),
                ('(1, 8, "c", 128)', values, HALF),
            ),
            _attend_to_cache,
            lambda q, k, v, mask: F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, enable_gqa=True
            ).transpose(1, 2),
            _bytes((queries, HALF), (queries, FLOAT), (keys, HALF), (values, HALF)),
            4 * heads * size * new * (length - new // 2),
            1e-3,
            _rows_of_cache,
        )


def _attend_to_cache() -> Module:
    """Attention of the newest positions of a full cache."""
    attend = loop_functions.cached_attention(32, 0, 32, (8, 128), HALF, nn.Scores(128**-0.5), HALF)

    class Attend(nn.Module):
        def main(self, x: nn.Tensor, y: nn.Tensor, z: nn.Tensor) -> nn.Tensor:
            past = z.shape[2] - x.shape[1]
            return x.builder.call_loops("attention", attend, [x, y, z], [past])[0]

    spec = nn.spec.Tensor
    module, _ = Attend().export({"main": {
        "x": spec((1, "s", 32, 128), HALF), "y": spec((1, 8, "n", 128, 16), HALF),
        "z": spec((1, 8, "c", 128), HALF),
    }})  # fmt: skip
    return module


def _rows_of_cache(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Sequence[Any]:
    """The arguments of PyTorch's attention, whose keys are rows, and its mask."""
    rows = keys.transpose(3, 4).flatten(2, 3).contiguous()
    return q.transpose(1, 2), rows, values, causal_lower_right(q.shape[1], values.shape[2])
