"""The pipelines: lists of passes."""

from __future__ import annotations

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import kind_of
from relaxlab.ir.target import Target, parse_target, target_kind
from relaxlab.passes.annotate_pattern_kind import annotate_pattern_kind
from relaxlab.passes.annotate_recording import annotate_recording
from relaxlab.passes.base import Pass, Pipeline
from relaxlab.passes.batch_blocks import batch_blocks
from relaxlab.passes.batch_twins import batch_twins
from relaxlab.passes.build_prelude import build_prelude
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.passes.check_inplace_calls import check_inplace_calls
from relaxlab.passes.clone_by_weights import clone_by_weights
from relaxlab.passes.combine_gates import combine_gates
from relaxlab.passes.dead_code_elimination import dead_code_elimination
from relaxlab.passes.eliminate_common_subexpr import eliminate_common_subexpr
from relaxlab.passes.expand_calls import expand_calls
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.fold_constant import fold_constant
from relaxlab.passes.fuse_ops import fuse_ops
from relaxlab.passes.fuse_ops_by_pattern import fuse_ops_by_pattern, merge_composites
from relaxlab.passes.fuse_tir import fuse_tir
from relaxlab.passes.inherit_bounds import inherit_bounds
from relaxlab.passes.lambda_lifting import lambda_lifting
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.lift_transform_params import lift_transform_params
from relaxlab.passes.lift_workspace import lift_workspace
from relaxlab.passes.limit_rows import limit_rows
from relaxlab.passes.lower_match import lower_match
from relaxlab.passes.lower_to_libraries import lower_to_libraries
from relaxlab.passes.make_blocks import make_blocks
from relaxlab.passes.move_slices import move_slices
from relaxlab.passes.normalize import normalize
from relaxlab.passes.overwrite_operands import overwrite_operands
from relaxlab.passes.plan_memory import plan_memory
from relaxlab.passes.realize_devices import realize_devices
from relaxlab.passes.replicate_small_kernels import replicate_small_kernels
from relaxlab.passes.rewrite_layouts import rewrite_layouts
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.passes.specialize_loop_functions import specialize_loop_functions
from relaxlab.passes.split_concat_product import split_concat_product
from relaxlab.passes.split_phases import split_phases
from relaxlab.passes.split_transform_params import split_transform_params
from relaxlab.passes.state_preconditions import state_preconditions
from relaxlab.passes.write_results import write_results

GRAPH_PASSES: tuple[Pass, ...] = (
    normalize,
    lower_match,  # so that conditionals alone are left
    # Early, so that local functions are functions of the module, which the others go through.
    lambda_lifting,
    # It bounds the symbols of private functions, the lifted ones among them.
    inherit_bounds,
    realize_devices,
    canonicalize,
    # Before any pass that moves or shares calls: they rely on it.
    check_inplace_calls,
    # The next passes merge what several layers and kernels compute from the same lengths.
    build_prelude,
    flatten_ragged,
    # Before `fold_constant`, which then evaluates equal calls on constants once.
    eliminate_common_subexpr,
    canonicalize,  # away with the copies that it leaves
    fold_constant,
    dead_code_elimination,
    # Patterns and libraries are about operators, which legalize_ops replaces by loops.
    fuse_ops_by_pattern,
    lower_to_libraries,
    move_slices,
    legalize_ops,
    # Before fusion and schedules, which then see constants.
    specialize_loop_functions,
    canonicalize,  # tuples that legalize_ops took apart
    dead_code_elimination,  # and the functions that specialised ones replace
    annotate_pattern_kind,
    # A user's groups become kernels as they are, before fusion by kinds looks at the rest.
    merge_composites,
    fuse_ops,
    fuse_tir,
    dead_code_elimination,  # loop functions that only exist as parts of fused ones
    state_preconditions,  # for schedules, which rely on them
)
"""From operators to fused loop functions."""

MEMORY_PASSES: tuple[Pass, ...] = (
    # Workspaces become results of calls: the plan then covers them, too.
    lift_workspace,
    expand_calls,
    # Before the plan, which gives memory for each thread an arena of its own.
    replicate_small_kernels,
    plan_memory,
)
"""From calls of loop functions to explicit, planned memory."""


@names_arguments
def cpu_pipeline(target: Target | None = None) -> Pipeline:
    """The default: the module is ready for `lower_shapes` afterwards. `target` None: this
    machine.

    Library calls and fusion by patterns are off until they are given theirs:
    `cpu_pipeline().with_options("lower_to_libraries", use=BLAS)`.
    """
    scheduled = schedule_kernels.with_options(target=target)
    # Repacking and weight transformations are loop functions of their own: schedule them, too.
    weights = (rewrite_layouts, lift_transform_params, split_transform_params, scheduled)
    # Kernels are scheduled by now: a schedule decides when an element is read.
    passes = (*GRAPH_PASSES, scheduled, *weights, overwrite_operands, *MEMORY_PASSES)
    return _for_target(passes, target)


HOISTING: tuple[Pass, ...] = (
    # First, since what is static differs between the uses of a function.
    clone_by_weights,
    split_concat_product,
    dead_code_elimination,  # concatenations that nothing reads any more
)
"""The passes that batches need before blocks are made."""


RECORDING: tuple[Pass, ...] = (make_blocks, combine_gates, split_phases, annotate_recording)
"""The passes that make blocks, and say how they are recorded."""


@names_arguments
def batched_pipeline(target: str | Target | None = None) -> Pipeline:
    """The passes for programs whose control flow depends on the input: what they compute for many
    inputs runs in batches (see docs/dynamic-programs.md). `target` None: this machine."""
    target = None if target is None else parse_target(target)
    made = (
        (cpu_pipeline() if target is None else default_pipeline(target))
        # Operators on tensors go into blocks, and those of the blocks alone become loops.
        .before("move_slices", *HOISTING, *RECORDING)
        .before("annotate_pattern_kind", batch_blocks, dead_code_elimination)
        .after("fuse_tir", write_results, limit_rows.with_options(target=target))
    )
    # A launch less is worth a node more; a CPU's call of a kernel is not (benchmarks/NOTES.md).
    in_launches = target is not None and target.facts.warp
    return made.after("combine_gates", batch_twins) if in_launches else made


@names_arguments
def cuda_pipeline(target: Target | None = None) -> Pipeline:
    """The default for GPUs: kernels are bound to blocks and threads. `target` None: any GPU."""
    target = target or Target.cuda()
    scheduled = schedule_kernels.with_options(target=target)
    passes = (*GRAPH_PASSES, scheduled, lift_transform_params, scheduled, *MEMORY_PASSES)
    return _for_target(passes, target)


def _for_target(passes: tuple[Pass, ...], target: Target | None) -> Pipeline:
    made = Pipeline(passes).with_options("fuse_ops", target=target)
    return made if target is None else made.with_options("realize_devices", kind=target.kind)


@names_arguments
def default_pipeline(target: Target) -> Pipeline:
    """The default for the target's kind."""
    return target_kind(target.kind).pipeline(target)


def marking_dead_memory(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with the ends of planned tensors' lifetimes written into the program."""
    # A user's pipeline need not plan memory; then nothing is reused, and nothing dead is read.
    if not any(p.name == plan_memory.name for p in pipeline.passes):
        return pipeline
    return pipeline.with_options(plan_memory.name, mark_dead=True)


def pipeline_for(target: Target, given: Pipeline | None) -> Pipeline:
    """Return the given pipeline, or the target's default. Raises TypeError for a value that is no
    pipeline."""
    if given is None:
        return default_pipeline(target)
    if not isinstance(given, Pipeline):  # type: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"expected a pipeline, got {kind_of(given)}; take relaxlab.passes.pipeline."
            "default_pipeline(target) and change it, or make a Pipeline of a list of passes"
        )
    return given
