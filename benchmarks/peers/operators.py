"""Peers that run single operators, see `benchmarks/operators.py`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import relaxlab
from benchmarks.operators import Call, all_calls, tensors_of
from benchmarks.peers.kernels.base import median_s
from relaxlab.analysis.costs import function_cost
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import op_row
from relaxlab.runtime.large_pages import in_large_pages
from relaxlab.testing import torch_functions
from relaxlab.testing.op_check import CaseProgram, random_arguments, random_call

Run = Callable[[], Any]
SEED = 1
NARROW = {"int8", "float16"}
"""Dtypes for which PyTorch has no kernels of some operators: their errors are no faults."""


class Operators:
    """A peer. `about`: its description in the results. most_s: seconds of a call for which it takes
    no part. Subclasses override `run_of`."""

    about: Mapping[str, Any]
    most_s = 0.5  # references that are loops in Python take longer

    def __init__(self) -> None:
        self._calls = {call.name: call for call in all_calls()}
        self._runs: dict[str, Run] = {}

    def run_of(self, call: Call) -> Run | None:
        """A function that makes the call once and returns its results as arrays; None if the peer
        has no such operator."""
        raise NotImplementedError

    def prepare(self, case: str, file: str) -> dict[str, Any]:
        """Run a call for the first time, its first result to `file`. The answer has `bytes`, the
        size of operands and results, unless the peer takes no part."""
        call = self._calls[case]
        run = self.run_of(call)
        if run is None:
            return {}
        results = run()
        begin = time.perf_counter()
        run()
        if time.perf_counter() - begin > self.most_s:
            return {}
        results = results if isinstance(results, tuple | list) else (results,)
        np.save(file, np.asarray(results[0]))
        last: list[Any] = []

        def hold() -> None:  # on to the last result, whose memory serves the next but one
            last[:] = [run()]

        self._runs[case] = hold
        arrays = [*random_arguments(call.case, call.sizes, SEED), *map(np.asarray, results)]
        return {"bytes": sum(a.nbytes for a in arrays), "flops": self.flops_of(call)}

    def flops_of(self, call: Call) -> float | None:
        """Operations of the call, for the peer that knows; None otherwise."""
        del call

    def time(self, names: list[str], seconds: float) -> dict[str, float]:
        """Seconds that each of the prepared calls takes: the median of the repetitions that fit
        into `seconds`."""
        return {name: median_s(self._runs[name], seconds) for name in names if name in self._runs}

    def forget(self) -> dict[str, Any]:
        """Drop the calls and their arrays."""
        self._runs.clear()
        return {}


class RelaxlabOperators(Operators):
    """A program of one call, compiled once for all values of its extent `n`."""

    most_s = float("inf")

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads
        self._compiled: dict[str, Callable[..., Any]] = {}
        self.about = {"version": relaxlab.__version__}

    def run_of(self, call: Call) -> Run:
        if call.program not in self._compiled:
            program = CaseProgram(call.case, call.sizes, symbolic=True)
            module = Module.of({"main": program.function()})
            self._compiled[call.program] = relaxlab.compile(module, threads=self._threads)["main"]
        main = self._compiled[call.program]
        arrays = in_large_pages(random_arguments(call.case, call.sizes, SEED))
        sizes = tuple(call.sizes.values())
        return lambda: main(*arrays, sizes)

    def flops_of(self, call: Call) -> float | None:
        program = CaseProgram(call.case, call.sizes, symbolic=False)
        fn = program.function()
        cost = function_cost(Module.of({"main": fn}), fn)
        return None if cost is None else float(evaluate(cost.flops, {}))


class NumPyOperators(Operators):
    """The operators' references, except of networks, for which NumPy has no functions."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.about = {"version": np.__version__}

    def run_of(self, call: Call) -> Run | None:
        reference = op_row(call.op).reference
        if reference is None or call.op.startswith(("nn.", "grad.")):
            return None
        args = random_call(call.case, call.sizes, SEED)

        def run() -> Any:
            found = reference(*args, **call.attrs)
            if isinstance(found, tuple):
                return tuple(map(np.ascontiguousarray, found))
            return np.ascontiguousarray(found)

        return run


class PyTorchOperators(Operators):
    """PyTorch's own kernels, or those that it compiles; results are stored, where it would return
    views."""

    def __init__(self, threads: int, compiled: bool = False) -> None:
        """`compiled`: by `torch.compile(dynamic=True)`, one program for all sizes."""
        super().__init__()
        self._torch: Any = import_module("torch")
        self._compiled: dict[str, Callable[..., Any]] | None = {} if compiled else None
        self._torch.set_num_threads(threads)
        self._torch.set_grad_enabled(False)
        torch_functions.fill_table(self._torch)
        self.about = {"version": self._torch.__version__}

    def run_of(self, call: Call) -> Run | None:
        args = [self._tensor(a) for a in random_call(call.case, call.sizes, SEED)]
        fn = self._function(call)
        if fn is None:
            return None

        def stored(*args: Any) -> Any:
            found = fn(*args)
            if isinstance(found, tuple | list):
                return tuple(t.contiguous() for t in found)
            return found.contiguous()

        run = stored
        if self._compiled is not None:
            compile_ = partial(self._torch.compile, dynamic=True)
            run = self._compiled.setdefault(call.program, compile_(stored))
        try:
            return partial(run, *args) if run(*args) is not None else None
        except (NotImplementedError, RuntimeError):
            if self._compiled is None and NARROW.isdisjoint(t.dtype for t in tensors_of(call.args)):
                raise
            return None

    def _tensor(self, a: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(map(self._tensor, a))  # type: ignore[reportUnknownArgumentType]
        return self._torch.from_numpy(a) if isinstance(a, np.ndarray) else a

    def _function(self, call: Call) -> Callable[..., Any] | None:
        if call.torch:
            names = ", ".join("abcde"[: len(call.args)])
            return eval(f"lambda {names}: {call.torch}", {"torch": self._torch})  # noqa: S307
        fn = torch_functions.FUNCTIONS.get(call.op)
        return None if fn is None else lambda *args: fn(*args, **call.attrs)


class JAXOperators(Operators):
    """JAX: `jit`, specialised to the shapes of every call."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        self._jax: Any = import_module("jax")
        self._jax.config.update("jax_enable_x64", True)  # or indices become narrower
        self._functions: Any = import_module("benchmarks.peers.jax_functions")
        self._table = self._functions.table()
        self.about = {"version": self._jax.__version__}

    def run_of(self, call: Call) -> Run | None:
        fn = self._table.get(call.op)
        if fn is None:
            return None
        compiled = self._functions.compiled(fn, call.attrs)
        args = self._jax.tree.map(self._jax.numpy.asarray, random_call(call.case, call.sizes, SEED))
        try:
            self._jax.block_until_ready(compiled(*args))
        except (TypeError, ValueError, NotImplementedError):
            if NARROW.isdisjoint(t.dtype for t in tensors_of(call.args)):
                raise
            return None
        return lambda: self._jax.block_until_ready(compiled(*args))
