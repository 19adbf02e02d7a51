"""`tvm.relax.transform`: TVM's passes, each a row that names the core's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeGuard

import numpy as np

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import graph
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.node import replace, walk
from relaxlab.ir.op_table import op_names
from relaxlab.passes.base import find_pass
from relaxlab.passes.bind_params import BindParamsOptions, bind_params
from relaxlab.passes.bind_symbolic_vars import BindSymbolsOptions, bind_symbolic_vars
from relaxlab.passes.bindings import map_blocks
from relaxlab.passes.bundle_model_params import BundleOptions
from relaxlab.passes.canonicalize import CanonicalizeOptions
from relaxlab.passes.combine_parallel_matmul import CombineOptions
from relaxlab.passes.convert_layout import KERNELS, LayoutOptions
from relaxlab.passes.convert_to_dataflow import DataflowOptions
from relaxlab.passes.convert_to_mixed_precision import PrecisionOptions
from relaxlab.passes.dead_code_elimination import EliminationOptions
from relaxlab.passes.decompose_norms import DecomposeOptions
from relaxlab.passes.differentiate import DifferentiateOptions
from relaxlab.passes.eliminate_common_subexpr import SharingOptions
from relaxlab.passes.expand_calls import ExpandOptions
from relaxlab.passes.fold_batch_norm import FoldOptions
from relaxlab.passes.lazy_transform_params import StreamOptions
from relaxlab.passes.legalize_ops import LegalizeOptions
from relaxlab.passes.lift_transform_params import LiftOptions
from relaxlab.passes.normalize import NormalizeOptions
from relaxlab.passes.rename_device import RenameOptions
from relaxlab.passes.replace_kernels import ReplaceOptions
from relaxlab.passes.retype import with_param_types
from relaxlab.passes.sort_bindings import SortOptions
from relaxlab.passes.store_shapes import StoreOptions
from relaxlab.script.type_values import as_type
from relaxlab.tvm import runtime
from relaxlab.tvm.accessors import name_of, with_attr, without_attr
from relaxlab.tvm.relax import fuse_by_pattern
from relaxlab.tvm.relax.expr_functor import PyExprMutator
from relaxlab.tvm.relax.fuse_by_pattern import FusionPattern as FusionPattern
from relaxlab.tvm.relax.fuse_by_pattern import PatternCheckContext as PatternCheckContext
from relaxlab.tvm.script.normal import normalized
from relaxlab.tvm.transform import Pass, PassContext, PassInfo, changed_by, decorator
from relaxlab.tvm.without_meaning import missing

PASSES = {
    "CanonicalizeBindings": "canonicalize",
    "FoldConstant": "fold_constant",
    "AnnotateTIROpPattern": "annotate_pattern_kind",
    "LambdaLift": "lambda_lifting",
    "ToNonDataflow": "to_non_dataflow",
    "RemovePurityChecking": "force_purity",
    "RemoveUnusedParameters": "remove_unused_parameters",
    "RemoveUnusedOutputs": "remove_unused_outputs canonicalize",
    "ExpandTupleArguments": "expand_tuple_arguments canonicalize",
    "ReorderTakeAfterMatmul": "reorder_take_after_matmul",
    "ReorderPermuteDimsAfterConcat": "reorder_permute_dims_after_concat",
    "RemoveRedundantReshape": "remove_redundant_reshape canonicalize",
    "ExpandMatmulOfSum": "expand_matmul_of_sum",
    "AdjustMatmulOrder": "adjust_matmul_order",
    "SpecializePrimFuncBasedOnCallSite": "specialize_loop_functions",
    "AllocateWorkspace": "lift_workspace",
    "StaticPlanBlockMemory": "plan_memory",
    "LowerAllocTensor": "lower_alloc_tensor",
    "KillAfterLastUse": "canonicalize kill_after_last_use",
    "RewriteDataflowReshape": "rewrite_dataflow_reshape",
    "RewriteCUDAGraph": "mark_capture_regions",
    "FuseTransposeMatmul": "fuse_transpose_matmul",
    "DataflowUseInplaceCalls": "use_inplace_calls",
    "RealizeVDevice": "propagate_devices",
    "NormalizeGlobalVar": "rename_functions",
    "MergeCompositeFunctions": "group_composites",
    "LazyGetInput": "lazy_get_input",
    "LazySetOutput": "lazy_set_output",
    "ComputePrimValue": "outline_scalars",
    "LowerRuntimeBuiltin": "lower_builtins",
    "VMBuiltinLower": "lower_builtins",
    "AttachAttrLayoutFreeBuffers": "mark_free_layouts",
    "SplitLayoutRewritePreproc": "split_layout_rewrites",
    "OptimizeLayoutTransform": "remove_redundant_layouts canonicalize",
}
"""Passes without arguments, and the core's passes that each stands for."""


OPTIONS = {"canonicalize": CanonicalizeOptions(names=True)}
"""The options of the core's passes that TVM's correspond to, where they are not the defaults."""


def run_core(mod: Module, *names: str, options: Any = None) -> Module:
    """The module in normal form after passes of the core, with options where they are given."""
    for name in names:
        found = find_pass(name)
        default = OPTIONS.get(name, found.options)
        mod = found.function(normalized(mod), default if options is None else options)
    return mod


def core_pass(name: str, *core: str, options: Any = None) -> Pass:
    """The core's passes of these names under TVM's name."""
    return Pass(lambda mod, _: run_core(mod, *core, options=options), PassInfo(0, name))


def _without_arguments(name: str) -> Callable[[], Pass]:
    def make() -> Pass:
        return core_pass(name, *PASSES[name].split())

    make.__name__ = name
    return make


def Normalize() -> Pass:  # noqa: N802
    """Name every intermediate value and deduce all types."""
    return core_pass("Normalize", "normalize", options=NormalizeOptions(computable=False))


def EliminateCommonSubexpr(call_only: bool = False) -> Pass:  # noqa: N802
    """Compute each pure value once, or each call alone."""
    options = SharingOptions(call_only)
    return core_pass("EliminateCommonSubexpr", "eliminate_common_subexpr", options=options)


def DeadCodeElimination(entry_functions: Sequence[str] | None = None) -> Pass:  # noqa: N802
    """Remove what neither a public function reads nor one of those that are given."""
    options = EliminationOptions(tuple(entry_functions or ()))
    return core_pass("DeadCodeElimination", "dead_code_elimination", options=options)


def CallTIRRewrite() -> Pass:  # noqa: N802
    """Make allocations explicit, and calls of loop functions that fill them."""
    return core_pass("CallTIRRewrite", "expand_calls", options=ExpandOptions(copies=True))


def VMShapeLower(*, emit_err_ctx: bool = True) -> Pass:  # noqa: N802
    """Keep what symbols stand for in a tensor, with checks of arguments, casts and results."""
    return core_pass("VMShapeLower", "store_shapes", options=StoreOptions(emit_err_ctx))


def FuseOps(fuse_opt_level: int = -1) -> Pass:  # noqa: N802
    """Group calls of loop functions that should be one kernel; level 0 groups none."""
    if fuse_opt_level == 0:
        return Pass(lambda mod, _: mod, PassInfo(0, "FuseOps"))
    return core_pass("FuseOps", "fuse_ops")


def FuseTIR() -> Pass:  # noqa: N802
    """Make a private loop function of each group, and remove those that no call is left of."""

    def run(mod: Module, _: PassContext) -> Module:
        after = run_core(mod, "fuse_tir", "dead_code_elimination")
        new = {k: f for k, f in after.loop_functions().items() if mod.get(k) is not f}

        def private(f: PrimFunc) -> PrimFunc:
            return replace(f, private=True, attrs=f.attrs.with_(op_pattern=None))

        return after.with_functions({k: private(f) for k, f in new.items()})

    return Pass(run, PassInfo(0, "FuseTIR"))


def FuseOpsByPattern(  # noqa: N802
    patterns: Sequence[Any],
    bind_constants: bool = True,
    annotate_codegen: bool = False,
    entry_functions: Sequence[str] | None = None,
) -> Pass:
    """Outline what patterns match in functions, with the constants where `bind_constants`; with
    `annotate_codegen`, for the compilers that the names of the patterns begin with."""

    def run(mod: Module, _: PassContext) -> Module:
        return fuse_by_pattern.fuse(
            normalized(mod), patterns, entry_functions or None,
            bind_constants=bind_constants, annotate_codegen=annotate_codegen,
        )  # fmt: skip

    return Pass(run, PassInfo(0, "FuseOpsByPattern"))


def InlinePrivateFunctions() -> Pass:  # noqa: N802
    """Inline private functions into their callers, and remove them."""
    return core_pass(
        "InlinePrivateFunctions", "inline_functions", "canonicalize", "dead_code_elimination"
    )


def FoldBatchnormToConv2D() -> Pass:  # noqa: N802
    """Scale the constant weights of convolutions as the batch norms of their results do in
    inference."""

    def run(mod: Module, _: PassContext) -> Module:
        folded = run_core(mod, "fold_batch_norm", options=FoldOptions(inference=True))
        return run_core(folded, "canonicalize")

    return Pass(run, PassInfo(0, "FoldBatchnormToConv2D"))


def ConvertToDataflow(min_size: int = 2) -> Pass:  # noqa: N802
    """Make dataflow blocks of runs of bindings without effects."""
    options = DataflowOptions(min_size)
    return core_pass("ConvertToDataflow", "convert_to_dataflow", options=options)


def BundleModelParams(param_tuple_name: str | None = None) -> Pass:  # noqa: N802
    """Take the weights of functions as one tuple."""
    options = BundleOptions() if param_tuple_name is None else BundleOptions(param_tuple_name)
    return core_pass("BundleModelParams", "bundle_model_params", options=options)


def _decompose(name: str, func_name: str | None, *, training: bool) -> Pass:
    def run(mod: Module, _: PassContext) -> Module:
        after = run_core(mod, "decompose_norms", options=DecomposeOptions(training))
        return after if func_name is None else mod.with_functions({func_name: after[func_name]})

    return Pass(run, PassInfo(0, name))


def DecomposeOpsForInference(func_name: str | None = None) -> Pass:  # noqa: N802
    """Express normalisations by simpler operators, as inference needs them."""
    return _decompose("DecomposeOpsForInference", func_name, training=False)


def DecomposeOpsForTraining(func_name: str | None = None) -> Pass:  # noqa: N802
    """Express normalisations by simpler operators, as training needs them."""
    return _decompose("DecomposeOpsForTraining", func_name, training=True)


def AttachGlobalSymbol() -> Pass:  # noqa: N802
    """Make all functions public: each is known by its name."""

    def run(mod: Module, _: PassContext) -> Module:
        functions = {**mod.graph_functions(), **mod.loop_functions()}
        return mod.with_functions({k: replace(f, private=False) for k, f in functions.items()})

    return Pass(run, PassInfo(0, "AttachGlobalSymbol"))


def UpdateParamType(ty_func: Callable[[graph.Var], Any]) -> Pass:  # noqa: N802
    """Give parameters the types that a function returns for them; None leaves one."""

    def run(mod: Module, _: PassContext) -> Module:
        updates: dict[str, graph.Function] = {}
        for name, fn in normalized(mod).graph_functions().items():
            given = {p: ty_func(p) for p in fn.params}
            tys = {p: as_type(t) for p, t in given.items() if t is not None}
            updates[name] = with_param_types(fn, tys)
        return normalized(mod.with_functions(updates))

    return Pass(run, PassInfo(0, "UpdateParamType"))


UpdateParamStructInfo = UpdateParamType
"""The older name."""


def _arrays(params: Mapping[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays or constants, by the names of parameters, as arrays."""
    return {
        name_of(k) if isinstance(k, str) else k.name: v.data
        if isinstance(v, graph.Constant) else np.asarray(runtime.unwrapped(v))
        for k, v in params.items()
    }  # fmt: skip


def _numbers(binding_map: Mapping[Any, Any]) -> dict[str, int]:
    """The values of symbols, by their names."""
    return {getattr(k, "name", k): int(getattr(v, "value", v)) for k, v in binding_map.items()}


def BindParams(func_name: str, params: Mapping[Any, Any]) -> Pass:  # noqa: N802
    """Make constants of a function's parameters."""
    options = BindParamsOptions(_arrays(params), func_name)
    return core_pass("BindParams", "bind_params", options=options)


def BindSymbolicVars(  # noqa: N802
    binding_map: Mapping[Any, Any], func_name: str | None = None
) -> Pass:
    """Give symbols of a function, or of all functions, a value."""
    values = _numbers(binding_map)

    def run(mod: Module, _: PassContext) -> Module:
        names = mod.graph_functions() if func_name is None else [func_name]
        for name in names:
            mod = run_core(mod, "bind_symbolic_vars", options=BindSymbolsOptions(values, name))
        return mod

    return Pass(run, PassInfo(0, "BindSymbolicVars"))


def function_with_params(func: graph.Function, params: Mapping[Any, Any]) -> BaseFunc:
    """A function with constants for parameters. Raises DiagnosticError for one that calls others of
    its module, which `BindParams` takes."""
    options = BindParamsOptions(_arrays(params))
    return bind_params.function(Module.of({"main": func}), options)["main"]


def function_with_symbols(func: graph.Function, binding_map: Mapping[Any, Any]) -> BaseFunc:
    """A function with values for symbols, as `function_with_params` has constants."""
    options = BindSymbolsOptions(_numbers(binding_map))
    return bind_symbolic_vars.function(Module.of({"main": func}), options)["main"]


def TopologicalSort(order: str = "depth-first", direction: str = "from-inputs") -> Pass:  # noqa: N802
    """Sort the bindings of dataflow blocks by a search."""
    if order not in ("depth-first", "breadth-first"):
        raise ValueError(f"TopologicalSort(order={order!r}): depth-first or breadth-first")
    if direction not in ("from-inputs", "from-outputs"):
        raise ValueError(f"TopologicalSort(direction={direction!r}): from-inputs or from-outputs")
    options = SortOptions(order == "depth-first", direction == "from-outputs")
    return core_pass("TopologicalSort", "sort_bindings", options=options)


def Gradient(  # noqa: N802
    func_name: str, require_grads: Any = None, target_index: int = 0
) -> Pass:
    """Add the function `<func_name>_adjoint`, which returns the results and their derivatives."""
    given = [require_grads] if isinstance(require_grads, graph.Var) else require_grads
    by = None if given is None else tuple(v.name for v in given)
    options = DifferentiateOptions(func_name, by, target_index)
    return core_pass("Gradient", "differentiate", options=options)


def UpdateVDevice(new_vdevice: str, index: int) -> Pass:  # noqa: N802
    """Put another virtual device in the place of the one of this number."""
    return core_pass("UpdateVDevice", "rename_device", options=RenameOptions(index, new_vdevice))


Layouts = Mapping[str, Sequence[str]]
"""The layouts of data and weights by operator: {"relax.nn.conv2d": ["NHWC", "OHWI"]}."""


def ConvertLayout(  # noqa: N802
    desired_layouts: Layouts, layout_cb: Callable[[graph.Call], Layouts] | None = None
) -> Pass:
    """Compute convolutions in other layouts; `layout_cb` returns those of a call, none if it is to
    stay."""

    def run(mod: Module, _: PassContext) -> Module:
        mod = normalized(mod)
        found = [desired_layouts] if desired_layouts else []
        converts: Callable[[graph.Call], bool] | None = None
        if layout_cb is not None:
            chosen = layout_cb
            calls = (n for f in mod.graph_functions().values() for n in walk(f) if is_conv(n))
            found += [layouts for call in calls if (layouts := chosen(call))]
            converts = lambda call: bool(chosen(call))  # noqa: E731
        return run_core(mod, "convert_layout", options=_layouts(found, converts)) if found else mod

    return Pass(run, PassInfo(0, "ConvertLayout"))


def is_conv(n: Any) -> TypeGuard[graph.Call]:
    """True for a call of a convolution whose layout can be chosen."""
    return isinstance(n, graph.Call) and isinstance(n.op, graph.Op) and n.op.name in KERNELS


def _layouts(
    given: Sequence[Layouts], converts: Callable[[graph.Call], bool] | None
) -> LayoutOptions:
    """The options for the core. Raises NotImplementedError for several layouts of data, or other
    operators."""
    kernels: dict[str, str] = {}
    data: set[str] = set()
    for op, layouts in ((k.removeprefix("relax."), v) for each in given for k, v in each.items()):
        if op not in KERNELS:
            raise NotImplementedError(f"ConvertLayout changes {', '.join(KERNELS)}, not {op}")
        data.add(layouts[0])
        kernels[op] = layouts[1] if len(layouts) > 1 else KERNELS[op]
    if len(data) != 1:
        raise NotImplementedError(f"ConvertLayout: one layout of data in a module, not {data}")
    conv2d, transposed = kernels.get("nn.conv2d"), kernels.get("nn.conv2d_transpose")
    return LayoutOptions(data.pop(), conv2d, transposed, converts)


def ToMixedPrecision(  # noqa: N802
    out_dtype: str = "float32", fp16_input_names: Sequence[str] | None = None
) -> Pass:
    """Compute products in half precision, and state `out_dtype` as the dtype of their results."""
    if out_dtype not in ("float32", "float16"):
        raise ValueError(f"ToMixedPrecision(out_dtype={out_dtype!r}): float32 or float16")
    names = tuple(fp16_input_names or ())
    options = PrecisionOptions(product=out_dtype, params=names, elementwise=True)
    return core_pass("ToMixedPrecision", "convert_to_mixed_precision", options=options)


def CombineParallelMatmul(check: Callable[..., bool] | None = None) -> Pass:  # noqa: N802
    """Compute products of one matrix with several as one, unless the check refuses it, which is
    given the matrix, the weights, the biases, and a dictionary, empty here."""

    def accepts(x: graph.Expr, weights: list[graph.Expr], biases: list[graph.Expr]) -> bool:
        return check is None or bool(check(x, weights, biases, {}))

    options = CombineOptions(True, accepts)
    return core_pass("CombineParallelMatmul", "combine_parallel_matmul", options=options)


def LiftTransformParams(shared_transform: bool | list[str] = False) -> Pass:  # noqa: N802
    """Move what depends on weights alone to a function of its own, which the caller calls."""
    names = None if isinstance(shared_transform, bool) else tuple(shared_transform)

    def run(mod: Module, _: PassContext) -> Module:
        options = LiftOptions(bool(shared_transform), names)
        after = run_core(mod, "lift_transform_params", options=options)
        updates: dict[str, graph.Function] = {}
        for name, fn in after.graph_functions().items():
            transform = fn.attrs.get("transform_params")
            if transform is not None:
                updates[name] = without_attr(fn, "transform_params")
                updates[transform] = with_attr(after[transform], "num_input", 0)
        return after.with_functions(updates)

    return Pass(run, PassInfo(0, "LiftTransformParams"))


def LazyTransformParams(  # noqa: N802
    fget_item: str = "get_item",
    fset_item: str | None = "set_item",
    extra_get_item_params: Sequence[graph.Var] | None = None,
    extra_set_item_params: Sequence[graph.Var] | None = None,
) -> Pass:
    """Load each weight when it is transformed, and store the results one by one."""
    extra = tuple(extra_get_item_params or ()), tuple(extra_set_item_params or ())
    options = StreamOptions(fget_item, fset_item, *extra)
    return core_pass("LazyTransformParams", "lazy_transform_params", options=options)


def AlterOpImpl(  # noqa: N802
    op_impl_map: Mapping[str, PrimFunc],
    op_buffer_transforms: Mapping[str, Sequence[Any]],
    op_buffer_axis_separators: Mapping[str, Any] | None = None,
    op_buffer_input_axis_separators: Mapping[str, Any] | None = None,
) -> Pass:
    """Call other loop functions for operations, by the `operator_name` of those that the program
    has, with operands and results in the layouts that index maps or functions give; the separators
    of axes say nothing here."""

    def layouts(name: str) -> tuple[IndexMap | None, ...]:
        given = op_buffer_transforms.get(name) or [None] * len(op_impl_map[name].buffers)
        return tuple(IndexMap.of(m) if callable(m) else m for m in given)

    options = ReplaceOptions(op_impl_map, {name: layouts(name) for name in op_impl_map})

    def run(mod: Module, _: PassContext) -> Module:
        return normalized(run_core(mod, "replace_kernels", options=options))

    return Pass(run, PassInfo(0, "AlterOpImpl"))


class _Lowering(PyExprMutator):
    """Replaces calls of operators by what functions `(builder, call) -> expression` return."""

    def __init__(self, mod: Module, lowerings: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(mod)
        self._lowerings = lowerings

    def visit_call_(self, call: graph.Call) -> Any:
        new = self.visit_expr_post_order(call)
        lower = self._lowerings.get(new.op.name) if isinstance(new.op, graph.Op) else None
        return new if lower is None else lower(self.builder_, new)

    def module(self, mod: Module) -> Module:
        """The module with the calls of all its graph functions replaced."""
        for name, fn in mod.graph_functions().items():
            self.builder_.update_func(graph.GlobalVar(name), self.visit_expr(fn))
        return self.builder_.get()


def LegalizeOps(  # noqa: N802
    customize_legalize_map: Mapping[str, Callable[..., Any]] | None = None,
    skip_ops: Sequence[str] | None = None,
    enable_warning: bool = False,
) -> Pass:
    """Make calls of loop functions of calls of operators, by the given functions where there are
    some, but of those to skip."""
    options = LegalizeOptions(tuple(n.removeprefix("relax.") for n in skip_ops or ()))
    given = {k.removeprefix("relax."): f for k, f in (customize_legalize_map or {}).items()}

    def run(mod: Module, _: PassContext) -> Module:
        mod = normalized(mod)
        if given:
            mod = _Lowering(mod, given).module(mod)
        return run_core(mod, "legalize_ops", options=options)

    return Pass(run, PassInfo(0, "LegalizeOps"))


_POLYNOMIALS = ("exp", "tanh", "erf", "nn.softmax")


def FastMathTransform() -> Pass:  # noqa: N802
    """Make calls of loop functions of exp, tanh, erf and softmax alone: machine code computes these
    functions by polynomials, which are right to a few units of the last place."""
    options = LegalizeOptions(tuple(n for n in op_names() if n not in _POLYNOMIALS))
    return core_pass("FastMathTransform", "legalize_ops", options=options)


FunctionPass = DataflowBlockPass = Pass
"""The classes of passes over functions and over blocks."""

# --- Passes of users ------------------------------------------------------------------------------


def _each_function(body: Callable[..., Any], mod: Module, context: PassContext) -> Module:
    mod = normalized(mod)

    def change(func: graph.Function) -> graph.Function:
        return body(func, mod, context)

    funcs = mod.graph_functions()
    return mod.with_functions({k: changed_by(change, f, k) for k, f in funcs.items()})


def _each_block(body: Callable[..., Any], mod: Module, context: PassContext) -> Module:
    mod = normalized(mod)

    def rewrite(block: graph.BindingBlock) -> graph.BindingBlock:
        return body(block, mod, context) if isinstance(block, graph.DataflowBlock) else block

    return mod.with_functions({k: map_blocks(f, rewrite) for k, f in mod.graph_functions().items()})


function_pass = decorator(_each_function, "transform_function")
"""Makes a pass of a function `(function, mod, context) -> function`."""
dataflowblock_pass = decorator(_each_block, "transform_dataflowblock")
"""Makes a pass of a function `(block, mod, context) -> block`."""


TUNING = ("MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod", "MetaScheduleTuneTIR")
"""Passes of `tuning_passes`, which need the tuner."""


def __getattr__(name: str) -> Any:
    if name in PASSES:
        return _without_arguments(name)
    if name in TUNING:
        return getattr(import_module("relaxlab.tvm.relax.tuning_passes"), name)
    raise missing("tvm.relax.transform", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PASSES, *TUNING} - {"__getattr__", "__dir__"})
