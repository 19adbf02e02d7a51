"""PyTorch: its own kernels (eager), or `torch.compile`, once for all shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.cases import Array, Case
from benchmarks.kernels.kind import EPS
from benchmarks.peers.kernels.base import Fetch, Kernels


class PyTorchKernels(Kernels):
    """compiled: through `torch.compile(dynamic=True)`."""

    def __init__(self, threads: int, *, compiled: bool = False) -> None:
        super().__init__()
        torch.set_num_threads(threads)
        self._compiled = compiled
        self._programs: dict[tuple[str, bool], Callable[..., Any]] = {}
        self.about = {"version": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}

    @torch.inference_mode()
    def prepare(self, case: Mapping[str, Any], file: str | None = None) -> dict[str, Any]:
        return super().prepare(case, file)

    @torch.inference_mode()
    def time(self, names: Sequence[str], seconds: float) -> dict[str, float]:
        return super().time(names, seconds)

    def make(self, case: Case, arrays: Sequence[Array]) -> tuple[Callable[[], Any], Fetch]:
        held = [torch.from_numpy(a) for a in arrays]
        if case.kind == "attention":  # in the layout that its kernel reads fastest
            held = [x.transpose(1, 2).contiguous() for x in held]
        if case.planned:
            return self._into(case, held)
        ways = [self._plain(case, held)]
        if case.kind == "gemm" and not self._compiled:
            a, b = held
            out = torch.empty(a.shape[0], b.shape[1])
            ways.append((lambda: torch.mm(a, b, out=out), lambda: out.numpy()))
            if case.constant:
                packed = b.t().contiguous()
                ways.append(_way(lambda: functional.linear(a, packed)))
        return min(ways, key=lambda way: _try(way[0]))

    def _program(self, kind: str, into: bool) -> Callable[..., Any]:
        """One compilation for all shapes; mistaken for constants are no sizes."""
        key = kind, into
        if key not in self._programs:
            function = FUNCTIONS[kind]

            def write(out: Tensor, *x: Tensor) -> None:
                out.copy_(function(*x))

            chosen = write if into else function
            self._programs[key] = torch.compile(chosen, dynamic=True) if self._compiled else chosen
        return self._programs[key]

    def _plain(self, case: Case, held: Sequence[Tensor]) -> tuple[Callable[[], Any], Fetch]:
        program = self._program(case.kind, False)
        fetch = (lambda y: y.transpose(1, 2)) if case.kind == "attention" else None
        return _way(lambda: program(*held), fetch)

    def _into(self, case: Case, held: Sequence[Tensor]) -> tuple[Callable[[], Any], Fetch]:
        out = torch.empty(FUNCTIONS[case.kind](*held).shape)
        program = self._program(case.kind, True)
        return lambda: program(out, *held), lambda: out.numpy()


def _way(
    run: Callable[[], Tensor], change: Callable[[Tensor], Tensor] | None = None
) -> tuple[Callable[[], Any], Fetch]:
    """Return a call that holds on to the last result, so that its memory serves the next but
    one."""
    last: list[Tensor] = []

    def keep() -> None:
        last[:] = [run()]

    return keep, lambda: (change(last[0]) if change else last[0]).numpy()


def _try(run: Callable[[], Any]) -> float:
    """Seconds of the fastest of a few runs."""
    times: list[float] = []
    for _ in range(4):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, EPS)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Here (batch, heads, length, features)."""
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
    )


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "gemm": lambda a, b: a @ b,
    "matmul+bias+gelu": lambda a, bias, b: functional.gelu(a @ b + bias),
    "attention": attention,
    "softmax": lambda x: functional.softmax(x, -1),
    "layer norm": lambda x, w, b: functional.layer_norm(x, w.shape, w, b, EPS),
    "rms norm": rms_norm,
    "rms norm(a@b + x)": lambda x, a, b, w: rms_norm(a @ b + x, w),
    "gelu(x)*x + 1": lambda x: functional.gelu(x) * x + 1,
    "row sum": lambda x: x.sum(-1),
    "row max": lambda x: x.amax(-1),
}
