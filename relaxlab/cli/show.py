"""`relaxlab show`: a script, the types of its values, and what the passes do to it."""

from __future__ import annotations

import argparse

import relaxlab.script
from relaxlab.cli.options import UsageError
from relaxlab.cli.scripts import read_script
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.passes.base import Pipeline
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.predict.predict import predict
from relaxlab.schedule.compiled import schedule_of
from relaxlab.tracing import Trace


def run(options: argparse.Namespace) -> int:
    """Print what `FILE.py[:NAME]` defines."""
    try:
        module, name = read_script(options.file)
        if options.size and not options.gpu:
            raise UsageError("--size gives symbols values for --gpu; name a GPU: --gpu h100")
        if options.gpu:
            return _predict(module, name, options.gpu, dict(options.size))
        return _show(module, name, options.after, options.schedule)
    except RecursionError:
        raise UsageError(
            f"{options.file}: this program is nested too deeply to be compiled"
        ) from None


def _show(module: Module, name: str | None, after: str | None, kernel: str | None) -> int:
    shown = _part(module, name)
    pipeline: Pipeline = cpu_pipeline()
    if after:
        _require_pass(after, pipeline)
    trace = pipeline.run(module)
    if after:
        print(_script(trace.find(after).after))
        return 0
    if kernel:
        print(_schedule(trace, kernel))
        return 0
    for title, body in (
        ("script", _script(shown)),
        ("types", _types(trace, shown)),
        ("passes", str(trace)),
    ):
        print(f"# {'-' * 4} {title} {'-' * (90 - len(title))}\n\n{body}\n")
    return 0


def _predict(module: Module, name: str | None, gpu: str, sizes: dict[str, int]) -> int:
    """Print the expected times of a function's kernels: of the one that is named, or `main`."""
    try:
        found = predict(module, gpu, name if name and name in module else "main", **sizes)
    except (KeyError, ExecutionError) as error:
        raise UsageError(error.args[0]) from None
    print(found)
    return 0


def _part(module: Module, name: str | None) -> Module:
    """The function `name` alone, when the module has one of that name."""
    if name is None or name not in module:
        return module
    return Module.of({name: module[name]}, module.attrs)


def _script(module: Module) -> str:
    return relaxlab.script.print_module(module)


def _schedule(trace: Trace, kernel: str) -> str:
    try:
        return schedule_of(trace, kernel).as_python()
    except KeyError as error:
        raise UsageError(error.args[0]) from None


def _require_pass(name: str, pipeline: Pipeline) -> None:
    names = [p.name for p in pipeline.passes]
    if name not in names:
        raise UsageError(f"no pass is called {name!r}; they are: {among(name, names)}")


def _types(trace: Trace, shown: Module) -> str:
    """Return the deduced type of each variable of the graph functions, as text."""
    lines: list[str] = []
    for name, function in trace.find("normalize").after.graph_functions().items():
        if name not in shown:
            continue
        bound = [b.var for b in all_bindings(function)]  # type: ignore[attr-defined]
        found = [*function.params, *bound]
        width = max((len(v.name) for v in found), default=0)
        lines.append(f"{name} -> {function.ret_ty or 'R.Object'}")
        lines += [f"    {v.name:{width}}  {v.ty or 'R.Object'}" for v in found]
    return "\n".join(lines) or "no graph functions"
