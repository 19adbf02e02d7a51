"""`compile`: a module to an executable, through the passes or from the cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias, overload

from relaxlab.codegen.artifact import Artifact, Part
from relaxlab.codegen.cuda.program import generate_cuda
from relaxlab.codegen.program import compile_program
from relaxlab.ir import graph
from relaxlab.ir.c_functions import registered_functions
from relaxlab.ir.equal import structural_key
from relaxlab.ir.errors import brief, explaining_depth
from relaxlab.ir.graph import Function
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target, parse_target
from relaxlab.ops import OPERATORS
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import marking_dead_memory, pipeline_for
from relaxlab.runtime.cache import artifact_key, cached
from relaxlab.runtime.collection import collection_paused
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.observe import notify
from relaxlab.runtime.programs import Program, as_module, with_entries
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.schedule.compiled import decisions_of
from relaxlab.schedule.decisions import DecisionError, Value
from relaxlab.tracing import Trace

Checks: TypeAlias = Literal["default", "all"]
Decisions: TypeAlias = Mapping[str, Mapping[str, Value]]
"""Values of decisions, by kernel and key."""


@overload
def compile(
    program: Program,
    target: Literal["cpu"] = "cpu",
    *,
    threads: int | None = None,
    pipeline: Pipeline | None = None,
    use_cache: bool = True,
    checks: Checks = "default",
    decisions: Decisions | None = None,
) -> Executable: ...


@overload
def compile(
    program: Program,
    target: Literal["cuda"],
    *,
    pipeline: Pipeline | None = None,
    decisions: Decisions | None = None,
) -> CudaExecutable: ...


@overload
def compile(
    program: Program,
    target: str | Target,
    *,
    threads: int | None = None,
    pipeline: Pipeline | None = None,
    use_cache: bool = True,
    checks: Checks = "default",
    decisions: Decisions | None = None,
) -> Any: ...


@brief
@explaining_depth
def compile(  # noqa: A001 - the word everybody expects, used as rl.compile
    program: Program,
    target: str | Target = "cpu",
    *,
    threads: int | None = None,
    pipeline: Pipeline | None = None,
    use_cache: bool = True,
    checks: Checks = "default",
    decisions: Decisions | None = None,
) -> Executable | CudaExecutable:
    """Compile a module to native code.

    program: a module; a graph or loop function, or a schedule, is a module of one function. A
    module that has loop functions alone gets a function for each to call it by. What was made with
    a `Schedule` is compiled as it is, all other loops are scheduled by rules.
    target: "cpu" (this machine), "cuda" (the GPU that is there, see `CudaExecutable`), "cuda:sm_90"
    or a `Target`. threads: how many a call uses, the caller's included; None: all cores this
    process may use. pipeline: the passes to run; None: the default,
    `relaxlab.passes.pipeline.default_pipeline(target)`. use_cache: look for the compiled program on
    disk first and keep it there (not for GPUs, nor with a pipeline or registered operators of the
    caller's own, which no key describes).

    checks: "default" checks arguments and what the types left open; "all" makes a debug build, to
    find mistakes of kernels, schedules and memory planning, several times slower: calls raise
    CheckFailed where a kernel uses an index outside an array (naming kernel, array, index, extent
    and, where it is known, the line), where something writes beside an array on the heap or the
    stack, where a planned tensor leaves its storage, and where an argument or result is not aligned
    to its elements. Memory not written yet, or planned and dead, holds NaN, or 0x5A in each byte.
    decisions: values for decisions of kernels' schedules, by kernel and key, instead of the rules'
    defaults; `relaxlab.schedule_of(relaxlab.trace(mod), kernel).decisions` has keys and candidates.

    Raises DiagnosticError for an ill-formed module, PassFailed (with the trace so far) for a
    failing pass (a decision that is no candidate fails one), NestedTooDeeply where Python's
    recursion ends, ValueError for an unknown target or kind of checks, no function to call or a
    decision that no schedule makes, TypeError for what is no module or no pipeline.
    """
    mod, entries = with_entries(as_module(program))
    if checks not in ("default", "all"):
        raise ValueError(f"checks is {checks!r}; it is 'default' or 'all'")
    chosen = parse_target(target)
    passes = pipeline_for(chosen, pipeline)
    if decisions:
        passes = passes.with_options("schedule_kernels", decisions=decisions)
    notify(mod, chosen, pipeline)
    if chosen.kind == "cuda":
        _refuse_options_of_cpus(threads, checks)
        return _for_gpu(_result(mod, passes, decisions), chosen)

    def build() -> Artifact:
        with collection_paused():
            all_passes = marking_dead_memory(passes) if checks == "all" else passes
            return _artifact(mod, _result(mod, all_passes, decisions), chosen, checks == "all")

    key = None
    if pipeline is None and use_cache and _has_only_our_operators(mod):
        options = [f"checks {checks}", f"decisions {json.dumps(decisions or {}, sort_keys=True)}"]
        options += [repr((f.symbol, f.arguments, f.passes)) for f in registered_functions()]
        key = artifact_key(structural_key(mod), chosen, [*options, *_names(mod)])
        artifact, from_cache = cached(key, build)
    else:
        artifact, from_cache = build(), False
    _require_functions(artifact, mod)
    exe = Executable(artifact, chosen, threads, from_cache=from_cache)
    exe.key = key
    exe.belongs_to(mod, passes if decisions else pipeline, entries, poison=checks == "all")
    return exe


def _for_gpu(result: Module, target: Target) -> CudaExecutable:
    return CudaExecutable(generate_cuda(lower_shapes(result), target.facts), target)


def _refuse_options_of_cpus(threads: int | None, checks: Checks) -> None:
    if threads is not None:
        raise ValueError("threads are of CPUs; a GPU's are chosen by the kernels' schedules")
    if checks == "all":
        raise ValueError(
            "debug builds are for CPUs; CudaExecutable.simulate checks a GPU's kernels for races "
            "and indices out of bounds"
        )


def _require_functions(artifact: Artifact, mod: Module) -> None:
    if not artifact.functions:
        raise ValueError(
            "the module has no function that can be called: its graph functions are private"
            if mod.graph_functions() else "the module has no function"
        )  # fmt: skip


@brief
def trace(
    program: Program, target: str | Target = "cpu", pipeline: Pipeline | None = None
) -> Trace:
    """Run the passes and return the trace: every module in between, and why."""
    return pipeline_for(parse_target(target), pipeline).run(as_module(program))


def _result(mod: Module, passes: Pipeline, decisions: Decisions | None) -> Module:
    """The module after the passes. Raises DecisionError where no schedule makes a decision that is
    given."""
    made = passes.run(mod)
    for kernel, values in (decisions or {}).items():
        known = decisions_of(made, kernel)
        for key in values:
            if key not in known:
                listed = ", ".join(f"`{k}`" for k in known) or "none"
                raise DecisionError(f"{kernel} has no decision `{key}`; it has: {listed}")
    return made.result


def _artifact(mod: Module, result: Module, target: Target, checks: bool) -> Artifact:
    artifact = compile_program(lower_shapes(result), target, _bounds(mod), checks=checks)
    return replace(artifact, parts=_parts(result))


def _has_only_our_operators(mod: Module) -> bool:
    graphs = mod.graph_functions().values()
    return all(n.name in OPERATORS for f in graphs for n in walk(f) if isinstance(n, graph.Op))


def _names(mod: Module) -> list[str]:
    """Return the names that messages at run time mention; the structure of a module leaves them
    out."""
    graphs = list(mod.graph_functions().values())
    names = [n.name for f in graphs for n in walk(f) if isinstance(n, graph.Var)]
    names += [s.name for f in graphs for s in symbols_in(f)]
    return [*names, *(str(p.ty) for f in graphs for p in f.params)]


def _parts(mod: Module) -> dict[str, tuple[Part, ...]]:
    """The parts of the functions that transform weights (see `split_transform_params`)."""
    found = {name: f.attrs.get("parts") for name, f in mod.graph_functions().items()}
    return {name: parts for name, parts in found.items() if parts is not None}


def _bounds(mod: Module) -> dict[str, dict[str, int]]:
    """Declared upper bounds per graph function."""
    return {
        name: dict(f.attrs.get("tir_var_upper_bound", {}))
        for name, f in mod.items()
        if isinstance(f, Function)
    }
