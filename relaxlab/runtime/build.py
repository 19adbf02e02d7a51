"""`compile`: a module to an executable, by the target's own way to make one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import brief, expect, explaining_depth
from relaxlab.ir.target import Target, parse_target, target_kind
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import pipeline_for
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.observe import notify
from relaxlab.runtime.programs import Program, as_module, with_entries
from relaxlab.runtime.request import Checks, Decisions, Request
from relaxlab.runtime.tuned import Tuned, tuned_decisions
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.tracing import Trace


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
    tuned: Tuned | None = None,
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
    tuned: Tuned | None = None,
) -> Any: ...


@brief
@names_arguments
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
    tuned: Tuned | None = None,
) -> Any:
    """Compile a module to native code.

    program: a module; a graph or loop function, or a schedule, is a module of one function. A
    module that has loop functions alone gets a function for each to call it by. What was made with
    a `Schedule` is compiled as it is, all other loops are scheduled by rules.
    target: "cpu" (this machine), "aarch64" or "riscv64" (for object files), "cuda" (the GPU that is
    there, see `CudaExecutable`), "cuda:sm_90", "wgsl" (see `WgslExecutable`), "interpreter" (see
    `InterpretedExecutable`), the name of a kind that was registered, or a `Target`. threads: how
    many a call uses, the caller's included; None: all cores this process may use. pipeline: the
    passes to run; None: the default, `relaxlab.passes.pipeline.default_pipeline(target)`.
    use_cache: look for the compiled program on disk first and keep it there (on CPUs, without a
    pipeline, registered operators or a kind of targets of the caller's own, which no key
    describes).

    checks: "default" checks arguments and what the types left open; "all" makes a debug build, to
    find mistakes of kernels, schedules and memory planning, several times slower: calls raise
    CheckFailed where a kernel uses an index outside an array (naming kernel, array, index, extent
    and, where it is known, the line), where something writes beside an array on the heap or the
    stack, where a planned tensor leaves its storage, and where an argument or result is not aligned
    to its elements. Memory not written yet, or planned and dead, holds NaN, or 0x5A in each byte.
    decisions: values for decisions of kernels' schedules, by kernel and key, instead of the rules'
    defaults; `relaxlab.schedule_of(relaxlab.trace(mod), kernel).decisions` has keys and candidates.
    tuned: a database of `relaxlab.tune`, or the name of its file (on CPUs): kernels that were found
    faster with other decisions on this machine, with as many threads and by this very compiler,
    are made so; others, and decisions that are given, stay as they are.

    Raises DiagnosticError for an ill-formed module, PassFailed (with the trace so far) for a
    failing pass (a decision that is no candidate fails one), NestedTooDeeply where Python's
    recursion ends, ValueError for an unknown target or kind of checks, no function to call or a
    decision that no schedule makes, TypeError for what is no module or no pipeline, OSError for a
    database that is not there.
    """
    mod, entries = with_entries(as_module(program))
    if checks not in ("default", "all"):
        raise ValueError(f"checks is {checks!r}; it is 'default' or 'all'")
    chosen = parse_target(target)
    passes = pipeline_for(chosen, pipeline)
    if decisions:
        expect(decisions, Mapping, "decisions are a dictionary by kernel (see rl.schedule_of)")
        passes = passes.with_options("schedule_kernels", decisions=decisions)
    found = {} if tuned is None else tuned_decisions(tuned, chosen, threads)
    if found:
        passes = passes.with_options("schedule_kernels", tuned=found)
    notify(mod, chosen, pipeline)
    return target_kind(chosen.kind).compile(
        Request(
            mod, entries, chosen, passes, pipeline, decisions or {}, found, threads, use_cache,
            checks,
        )
    )


@names_arguments
@brief
def trace(
    program: Program, target: str | Target = "cpu", pipeline: Pipeline | None = None
) -> Trace:
    """Run the passes and return the trace: every module in between, and why."""
    return pipeline_for(parse_target(target), pipeline).run(as_module(program))
