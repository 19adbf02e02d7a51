"""Runs in `.venv-reference`, with PyTorch and relaxlab in one process: each function of the cases
below returns what the test looks at; `python torch_answers.py` prints all of it as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import relaxlab as rl
from relaxlab.frontend.pytorch.values import as_array, from_sympy
from relaxlab.frontend.symbols import Symbols
from relaxlab.frontend.table import UnsupportedOperators


class Block(torch.nn.Module):
    """Rows of features of any number; a mask, a choice by data, and several kinds of results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("mask", torch.ones(16, 16).tril())

    def forward(self, x: Any, extra: Any, scale: float = 2.0, *, bias: Any = None) -> Any:
        batch, length, _ = x.shape
        y = self.linear(x) * scale + extra["bias"]
        seen = self.mask[:length, :length].bool()
        heads = y.view(batch, length, 2, 4).transpose(1, 2)
        z = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=seen)
        flat = z.transpose(1, 2).reshape(batch, length * 8)
        chosen = torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (y,))
        return {"flat": flat, "none": None, "length": length * 2, "same": x, "chosen": chosen}


def exported() -> tuple[Block, Any, Any]:
    torch.manual_seed(0)
    model = Block().eval()
    x, extra = torch.randn(2, 5, 8), {"bias": torch.randn(8)}
    dims = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", min=2, max=15)}
    shapes = {"x": dims, "extra": {"bias": None}, "scale": None}
    program = rl.from_torch(model, x, extra, 2.0, dynamic_shapes=shapes)
    return model, extra, program


def calling() -> dict[str, Any]:
    """One compilation, three sizes, both branches; forms of arguments and results."""
    model, extra, program = exported()
    compiled = program.compile()
    errors: list[float] = []
    for size, sign in (((2, 5, 8), 1.0), ((3, 15, 8), -1.0), ((7, 2, 8), 1.0)):
        x = torch.rand(*size) * sign
        with torch.no_grad():
            wanted = model(x, extra)
        got = compiled(x, extra, 2.0)
        assert list(got) == list(wanted) and got["none"] is None
        assert got["length"] == wanted["length"] and type(got["flat"]) is torch.Tensor
        assert got["same"].data_ptr() == x.data_ptr(), "no copy of what is returned as it came"
        errors += [float((got[k] - wanted[k]).abs().max()) for k in ("flat", "chosen")]
    turned = torch.rand(8, 5, 2).T
    with torch.no_grad():
        wanted = model(turned, extra)
    errors.append(float((compiled(turned, extra, 2.0)["flat"] - wanted["flat"]).abs().max()))
    array = np.ones((2, 5, 8), "float32")
    bias = extra["bias"].numpy()
    return {
        "errors": errors,
        "names": [p.name for p in program.module["main"].params],
        "bounds": dict(program.module["main"].attrs["tir_var_upper_bound"]),
        "shared": np.shares_memory(program.params["linear.weight"],
                                   model.linear.weight.detach().numpy()),
        "numpy": type(compiled(array, {"bias": bias}, 2.0)["flat"]).__name__,
        "too long": message(compiled, torch.ones(1, 16, 8), extra, 2.0),
        "too short": message(compiled, torch.ones(1, 1, 8), extra, 2.0),
        "another scale": message(compiled, torch.ones(1, 4, 8), extra, 3.0),
        "another structure": message(compiled, torch.ones(1, 4, 8)),
        "places": places(program),
    }  # fmt: skip


def message(fn: Any, *args: Any, **named: Any) -> str:
    try:
        fn(*args, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def places(program: Any) -> list[str]:
    """The lines of the source that the program's bindings come from."""
    spans = [b.span for block in program.module["main"].body.blocks for b in block.bindings]
    lines = dict.fromkeys((s.source.name, s.line) for s in spans if s is not None)
    texts = [next(s for s in spans if s is not None and s.line == n) for _, n in lines]
    assert all(name == __file__ for name, _ in lines), lines
    return [s.source.line(s.line).strip() for s in texts]


def refusals() -> dict[str, Any]:
    """All that cannot be imported, at once."""

    class Unsupported(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.linalg.matrix_exp(x) + torch.linalg.matrix_exp(x + 1)
            return y + torch.special.bessel_y0(x)

    class Scaled(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * x.sum().item()

    found = {
        "float of data": message(rl.from_torch, Scaled(), torch.eye(3)),
        "unsupported": message(rl.from_torch, Unsupported(), torch.eye(3)),
        "dropout": message(rl.from_torch, torch.nn.Dropout(), torch.eye(3)),
        "kind": message(rl.from_torch, 3),
        "twice": message(rl.from_torch, torch.export.export(torch.nn.ReLU(), (torch.eye(3),)), 1),
    }
    return found | {"is listed": isinstance(problem(Unsupported()), UnsupportedOperators)}


def problem(model: Any) -> Exception | None:
    try:
        rl.from_torch(model, torch.eye(3))
    except UnsupportedOperators as error:
        return error
    return None


def backend() -> dict[str, Any]:
    """`torch.compile`: one graph for all lengths, gradients, changed weights."""
    from torch._dynamo.utils import counters

    counters.clear()
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)
    model = torch.nn.Sequential(*layers).eval()

    def fn(x: Any) -> Any:
        q = model(x)[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), x.shape[1]

    compiled = torch.compile(fn, backend=rl.torch_backend, dynamic=True)
    errors: list[float] = []
    with torch.no_grad():
        for size in ((3, 5, 8), (2, 9, 8), (7, 20, 8)):
            x = torch.randn(*size)
            (got, length), (wanted, _) = compiled(x), fn(x)
            assert length == size[1]
            errors.append(float((got - wanted).abs().max()))
        graphs = counters["stats"]["unique_graphs"]
        layers[0].weight.mul_(2.0)
        errors.append(float((compiled(x)[0] - fn(x)[0]).abs().max()))

    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    at_once = torch.compile(encoder, backend=rl.torch_backend, dynamic=True)
    with torch.no_grad():  # where PyTorch calls one operator for a layer
        hidden = torch.tensor([[False, True, False], [False, False, True]])
        pair = [f(torch.ones(2, 3, 8), src_key_padding_mask=hidden) for f in (at_once, encoder)]
        errors.append(float((pair[0] - pair[1]).abs().max()))

    def scaled(x: Any) -> Any:
        return torch.softmax(x @ x.T / math.sqrt(x.shape[0]), -1) * (x.shape[0] / 3)

    by_size = torch.compile(scaled, backend=rl.torch_backend, dynamic=True)
    with torch.no_grad():
        for n in (3, 5, 9):
            y = torch.randn(n, 4)
            errors.append(float((by_size(y) - scaled(y)).abs().max()))
    gradients: list[Any] = []
    for f in (compiled, fn):
        model.zero_grad()
        f(x)[0].pow(2).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    pairs = zip(*gradients, strict=True)
    return {
        "errors": errors,
        "graphs": graphs,
        "gradients": max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs),
        "refused": message(
            torch.compile(torch.linalg.matrix_exp, backend=rl.torch_backend), torch.eye(3)
        ),
    }


def sizes() -> dict[str, Any]:
    """Expressions of sizes, and arrays of tensors."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv, Max, Mod

    n, m = sympy.symbols("n m", integer=True)
    symbols = Symbols()
    given = [2 * n + m**2, FloorDiv(n, 3), Mod(n, 4), Max(n, m), n * sympy.Rational(1, 2)]
    half = torch.arange(4, dtype=torch.bfloat16)
    return {
        "texts": [str(from_sympy(e, symbols)) for e in given],
        "unknown": message(from_sympy, sympy.sin(n), symbols),
        "bfloat16": as_array(half).astype("float32").tolist(),
        "shared": as_array(half).__array_interface__["data"][0] == half.data_ptr(),
        "sparse": message(as_array, torch.eye(2).to_sparse()),
    }


def results() -> dict[str, Any]:
    """Results of other kinds than the arguments: bfloat16 of float32, sizes, interpolation."""
    rows, x = torch.export.Dim("rows"), torch.arange(6.0).reshape(3, 2)

    def called(f: Any, x: Any) -> Any:
        class Model(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return f(x)

        return rl.from_torch(Model(), x, dynamic_shapes=({0: rows},)).compile()(x)

    half, again = called(lambda x: x.bfloat16() / 3, x), called(lambda x: x * 2, x.bfloat16())
    resize = partial(torch.nn.functional.interpolate, scale_factor=2, mode="bilinear")
    wide = called(lambda x: resize(x[None, None]), x)

    def counts(x: Any) -> Any:
        whole = (x.flatten() - 1).abs().long()
        shifted = torch.bitwise_right_shift(whole - 2, 1), torch.bitwise_left_shift(whole, 3)
        return torch.bincount(whole, minlength=8), torch.bincount(whole, x.flatten()), *shifted

    pairs = zip(called(counts, x), counts(x), strict=True)
    return {
        "half": str(half.dtype), "half is right": torch.equal(half, x.bfloat16() / 3),
        "again": str(again.dtype), "again is right": torch.equal(again, x.bfloat16() * 2),
        "size": called(lambda x: x.shape[0], x), "sizes": called(lambda x: [x.shape[0] + 1], x),
        "bools": called(lambda x: (x.shape[0] > 2, x.shape[0] * 2 == 7), x),
        "wide": list(wide.shape), "counts": all(torch.equal(a, b) for a, b in pairs),
    }  # fmt: skip


class Cache(torch.nn.Module):
    """Buffers of three dtypes and an argument, of its buffer's name, that calls change; what there
    was before; a layer that counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 9, 4))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("narrow", torch.zeros(4, dtype=torch.bfloat16), persistent=False)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, keys: Any, at: Any) -> Any:
        before = self.keys.clone(), keys.clone()
        self.keys[:, at] = self.norm(keys.mT).mT
        self.seen += keys.shape[1]
        self.narrow.add_(keys[0, 0].bfloat16())
        keys.mul_(2)
        return before, self.keys.sum(1), keys


def changes() -> bool:
    """Buffers and arguments are those of the model after each call, of tensors in any order and of
    arrays."""
    torch.manual_seed(0)
    model, reference = Cache(), Cache()
    length = torch.export.Dim("length", max=9)
    example = torch.randn(2, 3, 4), torch.arange(3)
    program = rl.from_torch(model, *example, dynamic_shapes=({1: length}, {0: length}))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), reference.buffers(), strict=True))
    exe = program.compile()
    for n in (3, 1, 5, 2):
        x = torch.randn(n, 2, 4).transpose(0, 1) if n > 1 else torch.randn(2, 1, 4)
        at, y = torch.randperm(9)[:n], x.clone()
        got = exe(x.numpy(), at.numpy()) if n == 5 else exe(x, at)
        with torch.no_grad():
            wanted = reference(y, at)
        pairs = [*zip(*map(pytree.tree_leaves, (got, wanted)), strict=True), (x, y)]
        pairs += list(zip(model.buffers(), reference.buffers(), strict=True))
        for ours, theirs in pairs:
            if not torch.allclose(torch.as_tensor(ours), theirs, 1e-4, 1e-5):
                return False
    return True


def floats_of_sizes() -> dict[str, bool]:
    """True for each function that computes what PyTorch does, for three other sizes, too."""
    rows = torch.export.Dim("rows", min=2, max=100)
    cases: dict[str, Any] = {
        "mul": lambda x: x * x.shape[0],
        "div": lambda x: x * (x.shape[0] / 3),
        "sqrt": lambda x: torch.softmax(x @ x.T / math.sqrt(x.shape[0]), -1),
        "pow": lambda x: x * x.shape[0] ** -0.5,
        "float": lambda x: x + float(x.shape[0]) * 0.1,
        "min": lambda x: x.clamp(max=min(x.shape[0] / 10, 0.5)),
        "full": lambda x: torch.full((2,), 1 / x.shape[0], dtype=torch.float64),
        "whole": lambda x: x.int() * (x.shape[0] / 2),
        "round": lambda x: x * round(x.shape[0] / 2),
        "ceil": lambda x: torch.ones(math.ceil(x.shape[0] / 2)),
        "floor": lambda x: torch.ones(math.floor(x.shape[0] * 0.7)),
        "result": lambda x: (x, x.shape[0] / 3),
        "alone": lambda x: x.shape[0] / 3,
    }

    class Model(torch.nn.Module):
        def __init__(self, f: Any) -> None:
            super().__init__()
            self.f, self.linear = f, torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.f(self.linear(x))

    def same(model: Model) -> bool:
        program = rl.from_torch(model, torch.randn(3, 4), dynamic_shapes=({0: rows},)).compile()
        for size in (3, 2, 5, 99):
            x = torch.randn(size, 4)
            torch.testing.assert_close(program(x), model(x))
        return True

    with torch.no_grad():
        return {name: same(Model(f)) for name, f in cases.items()}


def conditions_on_sizes() -> dict[str, Any]:
    """Programs that are right for some sizes alone: each is called with sizes of both kinds."""
    auto, rows = torch.export.Dim.AUTO, torch.export.Dim("half", min=2, max=8)
    two = torch.randn(4, 3), torch.randn(3, 3)
    cases: dict[str, Any] = {
        "even": (lambda x: x * 2 if x.shape[0] % 2 == 0 else x, two[:1], ({0: auto},), 6, 5),
        "other": (lambda x: x * 2 if x.shape[0] != 6 else x, two[:1], ({0: auto},), 5, 6),
        "both": (lambda x: x + 1 if x.shape[0] > 2 and x.shape[0] * 3 < 30 else x,
                 two[:1], ({0: auto},), 9, 10),
        "longer": (lambda x, y: x.sum() if x.shape[0] > y.shape[0] else y.sum(),
                   two, ({0: auto}, {0: auto}), 4, 3),
        "claimed": (lambda x: (torch._check(x.shape[0] % 3 != 2), x.sum())[1],
                    two[:1], ({0: auto},), 6, 5),
        "derived": (lambda x: x.reshape(-1, 6), two[:1], ({0: 2 * rows},), 6, 5),
        "alone": (lambda x: x[1:] + x[:-1], two[:1], ({0: auto},), 2, 1),
        "of data": (lambda x, n: x.narrow(0, 0, n[0].item()),
                    (two[0], torch.tensor([2])), ({0: auto}, None), 5, 2),
    }  # fmt: skip

    class Model(torch.nn.Module):
        def __init__(self, f: Any) -> None:
            super().__init__()
            self.f = f

        def forward(self, *args: Any) -> Any:
            return self.f(*args)

    found: dict[str, Any] = {}
    for name, (f, args, shapes, good, bad) in cases.items():
        rest = (torch.tensor([3]),) if name == "of data" else two[1:] if len(args) > 1 else ()
        program = rl.from_torch(Model(f), *args, dynamic_shapes=(shapes,)).compile()
        x = torch.randn(good, 3)
        torch.testing.assert_close(program(x, *rest), f(x, *rest))
        found[name] = message(program, torch.randn(bad, 3), *rest)
    return found


def sizes_of_one() -> list[str]:
    """Requirements of a program whose sizes PyTorch compares in order to lay out memory alone."""
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    program = rl.from_torch(model, *torch.randn(3, 2, 5, 8), dynamic_shapes=(dims,) * 3)
    exe = program.compile()
    for batch, length in ((2, 5), (1, 4), (3, 1), (1, 1)):
        x = torch.randn(3, batch, length, 8)
        torch.testing.assert_close(exe(*x)[0], model(*x)[0])
    return [line for line in program.script().splitlines() if "T.Select(" in line]


def slices_by_data() -> bool:
    """True if slices whose ends are read of tensors are what PyTorch makes them."""

    class Model(torch.nn.Module):
        def forward(self, x: Any, n: Any) -> Any:
            a, b = n.tolist()
            return x[:a], x[a:].sum(0), x[:b] * 2, x[-1:], x[a::2].sum(0)

    x, shapes = torch.randn(4, 3), ({0: torch.export.Dim.AUTO}, None)
    program = rl.from_torch(Model(), x, torch.tensor([1, 3]), dynamic_shapes=shapes).compile()
    for size, ends in ((4, [1, 3]), (7, [0, 9]), (2, [5, 1]), (9, [4, 0])):
        given = torch.randn(size, 3), torch.tensor(ends)
        for got, want in zip(program(*given), Model()(*given), strict=True):
            torch.testing.assert_close(got, want)
    return True


def control_flow() -> bool:
    """True if `torch.while_loop` gives what PyTorch does, with a condition that is one value."""

    class Model(torch.nn.Module):
        def forward(self, x: Any, n: Any) -> Any:
            zero = torch.zeros((), dtype=torch.long)
            step = (lambda i, y: i < n), (lambda i, y: (i + 1, y * 1.5 + 1))
            return torch.while_loop(*step, (zero, x))[1]

    x, shapes = torch.randn(3, 2), ({0: torch.export.Dim.AUTO}, None)
    program = rl.from_torch(Model(), x, torch.tensor(3), dynamic_shapes=shapes).compile()
    for n in (0, 4):
        torch.testing.assert_close(program(x, torch.tensor(n)), Model()(x, torch.tensor(n)))
    return True


def too_few_elements() -> list[str]:
    """The kinds of results of `masked_scatter` by the number of places and of elements: those of
    PyTorch, or an error where it has one."""

    class Model(torch.nn.Module):
        def forward(self, x: Any, mask: Any, source: Any) -> Any:
            return x.masked_scatter(mask, source)

    x, source, found = torch.zeros(2, 3), torch.arange(3.0) + 1, []
    program = rl.from_torch(Model(), x, x > 0, source).compile()
    for places in range(7):
        mask = (torch.arange(6) < places).reshape(2, 3)
        try:
            expected = Model()(x, mask, source)
        except RuntimeError:
            expected = None
        try:
            result = program(x, mask, source)
        except Exception as error:
            found.append(f"{type(error).__name__}, {expected is None}")
        else:
            found.append(f"result, {expected is not None and bool((result == expected).all())}")
    return found


def complex_numbers() -> dict[str, Any]:
    """A program of complex arguments, weights and results at two lengths."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turn", torch.polar(torch.ones(6), torch.arange(6.0)))

        def forward(self, x: Any, y: Any) -> Any:
            z = torch.fft.fft(x, dim=1, norm="ortho") * self.turn / (2 + y.abs().sum(-1))[:, None]
            spectrum = torch.fft.rfft(y, dim=1)
            back = torch.fft.irfft(spectrum * 2j, n=5, dim=1)
            return z.conj() + 1 - 1j * z, back, torch.cat([spectrum.real, spectrum.imag]).sum(0)

    n = torch.export.Dim("n")
    x, y = torch.randn(5, 6, dtype=torch.complex64), torch.randn(5, 6)
    program = rl.from_torch(Model(), x, y, dynamic_shapes=({0: n}, {0: n})).compile()
    errors: list[float] = []
    for size in (5, 8):
        x, y = torch.randn(size, 6, dtype=torch.complex64), torch.randn(size, 6)
        found = program(x, y)
        errors += [float((a - b).abs().max()) for a, b in zip(found, Model()(x, y), strict=True)]
    return {"errors": errors, "dtype": str(found[0].dtype)}


def recurrent_layers() -> dict[str, list[float]]:
    """The errors of layers that were exported with one length and batch, at others."""

    class Model(torch.nn.Module):
        def __init__(self, layer: torch.nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    nn = torch.nn
    layers = {
        "both ways": nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True),
        "projected": nn.LSTM(4, 6, proj_size=3), "gru": nn.GRU(4, 6),
        "gru, both ways": nn.GRU(4, 6, 2, batch_first=True, bidirectional=True),
        "rnn": nn.RNN(4, 6, nonlinearity="relu", bias=False),
    }  # fmt: skip
    found: dict[str, list[float]] = {}
    for name, layer in layers.items():
        model, dims = Model(layer).eval(), {0: torch.export.Dim("a"), 1: torch.export.Dim("b")}
        program = rl.from_torch(model, torch.randn(3, 5, 4), dynamic_shapes=(dims,)).compile()
        found[name] = []
        for size in ((7, 2), (1, 19)):
            x = torch.randn(*size, 4)
            pairs = zip(*map(pytree.tree_leaves, (program(x), model(x))), strict=True)
            found[name] += [float((a - b).abs().max()) for a, b in pairs]
    return found


def samples() -> dict[str, str]:
    """A slice of PyTorch's own samples: the operators of networks, and some of each family."""
    from relaxlab.testing.torch_samples import run

    wanted = (
        "abs add addmm amax arange argsort baddbmm bitwise_and cat clamp cummax cummin cumsum "
        "diagonal expand eq index_reduce.mean masked_scatter nn.functional.adaptive_max_pool2d "
        "nn.functional.bilinear nn.functional.embedding_bag scatter_reduce.mean searchsorted "
        "div.trunc_rounding exp expm1 flip gather index_add index_put index_select logsumexp "
        "masked_fill max.reduction_with_dim mean nn.functional.avg_pool2d nn.functional.conv2d "
        "nn.functional.embedding nn.functional.gelu nn.functional.group_norm "
        "nn.functional.layer_norm nn.functional.pad.reflect "
        "nn.functional.scaled_dot_product_attention permute pow prod roll scatter_add select "
        "slice_scatter softmax sort split squeeze std topk tril unbind var where "
        "linalg.cholesky linalg.solve linalg.inv linalg.det linalg.slogdet linalg.qr linalg.lu "
        "linalg.eigh linalg.svd linalg.pinv linalg.solve_triangular fft.fft2 fft.irfft stft "
        "view_as_complex polar angle unique mode nanmedian masked.median round.decimals_3 "
        "native_batch_norm nn.functional.instance_norm"
    ).split()
    return {o.op: o.reason for o in run(wanted, 1, compiled=False)}


def page() -> str:
    """The text of the script that the programs of docs/from-pytorch.md print."""
    if "relaxlab" not in torch._dynamo.list_backends():  # installed before it had an entry point
        torch._dynamo.register_backend(rl.torch_backend, name="relaxlab")
    file = Path(__file__).parents[2] / "docs" / "from-pytorch.md"
    blocks = re.findall(r"^```python\n(.*?)^```", file.read_text("utf-8"), re.M | re.S)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n".join(blocks), str(file), "exec"), {})
    return printed.getvalue()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        cases = (calling, refusals, backend, sizes, results, floats_of_sizes, samples, page,
                 conditions_on_sizes, control_flow, changes, sizes_of_one, slices_by_data,
                 too_few_elements, complex_numbers, recurrent_layers)
        json.dump({case.__name__: case() for case in cases}, file)
