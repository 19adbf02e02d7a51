"""`tvm.tir.transform`: passes over loop functions, the user's and some of the core's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntFlag
from typing import Any

from relaxlab.codegen.simplify_indices import simplify_indices
from relaxlab.codegen.steps import (
    allreduce,
    assumptions,
    async_copies,
    barriers,
    blocks,
    calls,
    cross_thread,
    divisions,
    double_buffer,
    hoist,
    instrument,
    local_stage,
    loops,
    merge_shared,
    partition,
    pipelining,
    shared,
    statements,
    storage,
    stored_as,
    threads,
    warp_memory,
    widen,
)
from relaxlab.codegen.steps.allocations import plan_allocations
from relaxlab.codegen.steps.flatten import flatten_buffers
from relaxlab.ir.dtypes import SMALL_FLOATS
from relaxlab.ir.facts import CUDA
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.compact import compact_buffers
from relaxlab.tvm.target import Target
from relaxlab.tvm.tir.analysis import verify_memory
from relaxlab.tvm.tir.dlight import gpu
from relaxlab.tvm.tir.dlight.base import ApplyDefaultSchedule
from relaxlab.tvm.transform import Pass, PassContext, PassInfo, changed_by, decorator
from relaxlab.tvm.without_meaning import missing


def _each_loop_function(body: Callable[..., Any], mod: Module, context: PassContext) -> Module:
    def change(func: PrimFunc) -> PrimFunc | None:
        return body(func, mod, context)

    funcs = mod.loop_functions()
    updates = {name: changed_by(change, func, name) for name, func in funcs.items()}
    kept = mod.without(*(name for name, func in updates.items() if func is None))
    return kept.with_functions({k: f for k, f in updates.items() if f is not None})


prim_func_pass = decorator(_each_loop_function, "transform_function")
"""Makes a pass of a function `(func, mod, context) -> func`; None takes a function out."""


def _pass(name: str, transform: Callable[[PrimFunc], PrimFunc | None]) -> Pass:
    def run(mod: Module, context: PassContext) -> Module:
        return _each_loop_function(lambda func, *_: transform(func), mod, context)

    return Pass(run, PassInfo(0, name))


def Apply(ftransform: Callable[[PrimFunc], PrimFunc | None]) -> Pass:  # noqa: N802
    """A pass that applies a function to each loop function."""
    return _pass("Apply", ftransform)


def Filter(fcond: Callable[[PrimFunc], bool]) -> Pass:  # noqa: N802
    """A pass that keeps the loop functions for which a function returns True."""
    return _pass("Filter", lambda func: func if fcond(func) else None)


def CompactBufferAllocation(is_strict: bool = True) -> Pass:  # noqa: N802
    """Make private buffers as small as one iteration of the loops around them needs."""
    if not is_strict:
        raise NotImplementedError("CompactBufferAllocation(is_strict=False)")
    return _pass("CompactBufferAllocation", compact_buffers)


def _simplified(func: PrimFunc) -> PrimFunc:
    body = simplify_indices(func.body, symbols_in(func.params), values=True)
    return loops.without_no_ops(replace(func, body=body))


def _unchanged(func: PrimFunc) -> PrimFunc:
    """The function itself, where the core's programs are always as the pass leaves them."""
    return func


def _host_memory_only(func: PrimFunc) -> PrimFunc:
    """The function itself. Raises RuntimeError where `verify_memory` is False."""
    if not verify_memory(func):
        raise RuntimeError(
            "the host would read or write memory of the device: bind a loop around each access to "
            "an axis of the device's threads"
        )
    return func


STEPS: dict[str, Callable[[PrimFunc], PrimFunc]] = {
    "AnnotateIrregularLoop": _unchanged,  # a loop that is left early has a condition
    "CanonicalizeLoop": loops.loops_from_zero,
    "CommonSubexprElim": shared.expressions_shared,
    "ConvertBlocksToOpaque": blocks.blocks_without_axes,
    "ConvertSSA": _unchanged,  # a variable has one definition
    "DecorateDeviceScope": instrument.in_device_scope,
    "ForceNarrowIndexToInt32": _unchanged,  # indices are int64, whatever a program says
    "FlattenBuffer": flatten_buffers,
    "InjectDoubleBuffer": double_buffer.double_buffered,
    "InstrumentBoundCheckers": instrument.accesses_checked,
    "InstrumentProfileIntrinsics": instrument.profiled,
    "InjectPTXAsyncCopy": async_copies.copies_made_async,
    "InjectVirtualThread": threads.virtual_threads_in_turn,
    "InjectSoftwarePipeline": pipelining.loops_pipelined,
    "LiftThreadBinding": threads.threads_lifted,
    "LowerAutoCopy": _unchanged,  # copies are as they are written, whatever a note on them says
    "LowerCrossThreadReduction": cross_thread.reductions_over_threads,
    "LowerInitBlock": blocks.init_blocks_as_conditions,
    "LowerMatchBuffer": blocks.views_as_regions,
    "LowerIntrin": _unchanged,  # machine code has all operators and intrinsics
    "LowerOpaqueBlock": blocks.without_blocks,
    "LowerTIRx": flatten_buffers,
    "LowerTIRxOpaque": blocks.without_blocks,
    "PlanAndUpdateBufferAllocationLocation": plan_allocations,
    "PointerValueTypeRewrite": _unchanged,  # memory has no types of pointers
    "RemoveAssume": statements.without_assumptions,
    "RemoveNoOp": loops.without_no_ops,
    "RemoveStoreUndef": statements.without_undefined_stores,
    "RemoveWeightLayoutRewriteBlock": instrument.with_rewritten_params,
    "RenormalizeSplitPattern": divisions.quotients_first,
    "RewriteUnsafeSelect": loops.selects_as_branches,
    "ManifestSharedMemoryLocalStage": local_stage.local_stages,
    "BF16StorageLegalize": lambda f: stored_as.stored_as_bits(f, ("bfloat16",)),
    "FP8StorageLegalize": lambda f: stored_as.stored_as_bits(f, tuple(SMALL_FLOATS)),
    "UseAssumeToReduceBranches": assumptions.padding_computed,
    "VerifyMemory": _host_memory_only,
    "Simplify": _simplified,
    "SkipAssert": statements.without_assertions,
    "StmtSimplify": _simplified,
    "StorageRewrite": storage.storage_reused,
    "UnifyThreadBinding": threads.threads_unified,
}
"""Passes without options, by name."""


def BF16ComputeLegalize() -> Pass:  # noqa: N802
    """Compute in float32 what is stored as bfloat16."""
    return _pass("BF16ComputeLegalize", lambda f: widen.computed_in(f, "bfloat16", "float32"))


class HoistedConditionals(IntFlag):
    """The conditions that `HoistExpression` evaluates outside of loops."""

    IfElseStmt = 1
    IfElseExpr = 2
    BooleanExpression = 4
    UsingBlockVar = 8
    Never = 0
    All = 15


class HoistedLetBindings(IntFlag):
    """The named values that `HoistExpression` evaluates outside of loops."""

    RequiredByConditional = 1
    Bind = LetStmt = 2
    LetExpr = 4
    Never = 0
    All = 7


def HoistExpression() -> Pass:  # noqa: N802
    """Evaluate expressions outside of loops that do not change them; the configuration
    `s_tir.HoistExpression` says which, as `hoisted_conditionals` and `hoisted_let_bindings`."""

    def run(mod: Module, context: PassContext) -> Module:
        of, name = HoistedConditionals, "HoistExpression"
        conditions = of(_option(context, name, "hoisted_conditionals", of.All))
        lets = HoistedLetBindings(
            _option(context, name, "hoisted_let_bindings", HoistedLetBindings.All)
        )
        kinds = hoist.Hoisted(
            bool(lets & HoistedLetBindings.Bind), bool(conditions & of.IfElseStmt),
            bool(conditions & of.BooleanExpression), bool(conditions & of.IfElseExpr),
        )  # fmt: skip
        return _each_loop_function(
            lambda f, *_: hoist.expressions_outside(f, kinds), mod, context
        )

    return Pass(run, PassInfo(0, "HoistExpression"))


def LoopPartition() -> Pass:  # noqa: N802
    """Make loops of one where conditions hold in a row of iterations. The configuration
    `s_tir.LoopPartition` says by `partition_const_loop` if loops of constant extent are meant."""

    def run(mod: Module, context: PassContext) -> Module:
        constant = bool(_option(context, "LoopPartition", "partition_const_loop", False))
        return _each_loop_function(
            lambda f, *_: partition.loops_partitioned(f, constant), mod, context
        )

    return Pass(run, PassInfo(0, "LoopPartition"))


def UnrollLoop() -> Pass:  # noqa: N802
    """Write the iterations of unrolled loops one after the other. The configuration
    `tirx.UnrollLoop` also has short loops unrolled, by `auto_max_step` and `auto_max_extent`, or
    loops only marked, by `explicit_unroll=False`."""

    def run(mod: Module, context: PassContext) -> Module:
        options = ("auto_max_step", 0), ("auto_max_extent", 0), ("explicit_unroll", True)
        given = [_option(context, "UnrollLoop", *o) for o in options]
        return _each_loop_function(lambda f, *_: loops.unrolled(f, *given), mod, context)

    return Pass(run, PassInfo(0, "UnrollLoop"))


HOMES = ("s_tir", "tirx", "tir")
"""The names before those of passes in the configuration, today's first."""


def _option(context: PassContext, name: str, option: str, default: Any) -> Any:
    """An option of a pass in the configuration, which has it under today's name or an older one."""
    for home in HOMES:
        if f"{home}.{name}" in context.config:
            given = context.config[f"{home}.{name}"]
            return given.get(option, default)
    return default


def VectorizeLoop(enable_vectorize: bool = True) -> Pass:  # noqa: N802
    """Make vector operations of vectorized loops, or serial loops unless it is enabled."""
    return _pass("VectorizeLoop", loops.vectorized if enable_vectorize else loops.serialized)


def NarrowDataType(target_bits: int) -> Pass:  # noqa: N802
    """Leave indices as they are, int64, which any number of bits up to 64 may be narrowed to."""
    return _pass("NarrowDataType", _unchanged)


def FP8ComputeLegalize(promote_dtype: str = "float32") -> Pass:  # noqa: N802
    """Compute in a wider dtype what is stored as floats of 8 bits."""

    def widened(func: PrimFunc) -> PrimFunc:
        for narrow in SMALL_FLOATS:
            func = widen.computed_in(func, narrow, promote_dtype)
        return func

    return _pass("FP8ComputeLegalize", widened)


def InlinePrivateFunctions() -> Pass:  # noqa: N802
    """Put private loop functions in the place of calls of them."""
    return Pass(
        lambda mod, _: calls.private_calls_inlined(mod), PassInfo(0, "InlinePrivateFunctions")
    )


def MergeSharedMemoryAllocations() -> Pass:  # noqa: N802
    """Make one piece of the dynamic shared memory of a function; of the static one, too, if the
    configuration `tirx.merge_static_smem` says so."""

    def run(mod: Module, context: PassContext) -> Module:
        static = any(context.config.get(f"{home}.merge_static_smem") for home in HOMES)
        scopes = ("shared.dyn", *(("shared",) if static else ()))
        return _each_loop_function(
            lambda f, *_: merge_shared.shared_memory_merged(f, scopes), mod, context
        )

    return Pass(run, PassInfo(0, "MergeSharedMemoryAllocations"))


def LowerThreadAllreduce() -> Pass:  # noqa: N802
    """Lower reductions over threads to shuffles in warps and to shared memory, for the target that
    a function notes."""
    return _pass(
        "LowerThreadAllreduce", lambda f: allreduce.allreduces_lowered(f, _warp(f.attrs))
    )


def LowerWarpMemory() -> Pass:  # noqa: N802
    """Keep memory of warps in registers, for the target that a function notes."""
    return _pass(
        "LowerWarpMemory", lambda f: warp_memory.warp_memory_lowered(f, _warp(f.attrs))
    )


def _warp(attrs: Mapping[str, Any]) -> int:
    """The threads of a warp of the target in the attributes of a function."""
    described = attrs.get("target")
    if not isinstance(described, Mapping):
        return CUDA.warp if described is None or "cuda" in str(described) else 1
    return described.get("thread_warp_size", CUDA.warp if described.get("kind") == "cuda" else 1)


def ThreadSync(storage_scope: str) -> Pass:  # noqa: N802
    """Put barriers between the accesses of threads to the memory of a scope."""
    return _pass("ThreadSync", lambda f: barriers.barriers_between(f, storage_scope))


def HoistIfThenElse(variant: str | None = None) -> Pass:  # noqa: N802
    """Put loops inside of conditions that are the same in each of their iterations; both of TVM's
    variants, None and "basic", do that here. Raises ValueError for another one."""
    if variant not in (None, "basic"):
        raise ValueError(f"HoistIfThenElse(variant={variant!r}): None or 'basic'")
    return _pass("HoistIfThenElse", loops.conditions_outside)


def DefaultGPUSchedule() -> Pass:  # noqa: N802
    """Schedule the loop functions that are not scheduled yet, for the GPU that is the target."""
    return ApplyDefaultSchedule(gpu.Fallback())


def AnnotateEntryFunc() -> Pass:  # noqa: N802
    """Note in the only function of a module that programs begin there."""

    def run(mod: Module, _: PassContext) -> Module:
        if len(mod.functions) != 1:
            return mod
        marked = {
            name: replace(f, attrs=f.attrs.with_(**{"tir.is_entry_func": True}))
            for name, f in mod.loop_functions().items()
        }
        return mod.with_functions(marked)

    return Pass(run, PassInfo(0, "AnnotateEntryFunc"))


def BindTarget(target: Any) -> Pass:  # noqa: N802
    """Note a target in each loop function."""
    noted = Target(target).description()
    return _pass("BindTarget", lambda f: replace(f, attrs=f.attrs.with_(target=noted)))


def __getattr__(name: str) -> Callable[[], Pass]:
    if name not in STEPS:
        raise missing("tvm.tir.transform", name)

    def make() -> Pass:
        return _pass(name, STEPS[name])

    make.__name__ = name
    return make


def __dir__() -> list[str]:
    return sorted({*globals(), *STEPS} - {"__getattr__", "__dir__"})
