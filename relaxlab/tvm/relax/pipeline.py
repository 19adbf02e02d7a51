"""`tvm.relax.get_pipeline`: passes by the name of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.ir.module import Module
from relaxlab.tvm.relax import transform
from relaxlab.tvm.target import Target
from relaxlab.tvm.transform import Pass, PassInfo, Sequential

ZERO = ("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")
"""The passes of the pipeline "zero"; what else a program needs to run is done by `build`."""

PIPELINES: dict[str, tuple[str, ...]] = {"zero": ZERO, "default": ZERO, "default_build": ()}
_REGISTERED: dict[str, Callable[..., Any]] = {}


def static_shape_tuning_pipeline(
    total_trials: int,
    target: Any,
    work_dir: str = "tuning_logs",
    cpu_weight_prepack: bool = False,
    max_trials_per_task: int | None = None,
) -> Any:
    """The passes of "zero" after normalisations are taken apart, then a search for schedules in a
    folder, whose results are applied."""
    prepack = ("AttachAttrLayoutFreeBuffers",) if cpu_weight_prepack else ()
    split = ("SplitLayoutRewritePreproc", "LiftTransformParams", "FoldConstant")
    before = ("DecomposeOpsForInference", "CanonicalizeBindings", *ZERO, *prepack)
    passes = [getattr(transform, one)() for one in before]
    if total_trials > 0:
        passes.append(transform.MetaScheduleTuneIRMod({}, work_dir, total_trials))
    passes.append(transform.MetaScheduleApplyDatabase(work_dir))
    passes += [getattr(transform, one)() for one in split if cpu_weight_prepack]
    chosen = Sequential(passes, name="static_shape_tuning")

    def run(mod: Module, _: Any) -> Module:
        with Target(target):
            return chosen(mod)

    return Pass(run, PassInfo(0, "static_shape_tuning"))


def get_pipeline(name: str = "zero", **options: Any) -> Any:
    """The pipeline of that name. Raises ValueError for an unknown one."""
    if name == "static_shape_tuning":
        return static_shape_tuning_pipeline(**options)
    if name in _REGISTERED:
        return _REGISTERED[name](**options)
    if name not in PIPELINES:
        known = ", ".join([*PIPELINES, *_REGISTERED])
        raise ValueError(f"unknown pipeline {name!r}; known: {known}")
    return Sequential([getattr(transform, one)() for one in PIPELINES[name]], name=name)


def register_pipeline(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that returns a pipeline. Raises ValueError for a name that is taken."""
    if name in PIPELINES or name in _REGISTERED:
        raise ValueError(f"a pipeline {name!r} is registered already")

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        _REGISTERED[name] = make
        return make

    return register


def get_default_pipeline(target: Any = None) -> Any:
    """The pipeline that `build` runs before the core's own: none."""
    return get_pipeline("default_build")


def run_before_building(mod: Module, pipeline: Any) -> Module:
    """The module after a pipeline, given by name or as a pass; None is none."""
    if pipeline is None:
        return mod
    return (get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline)(mod)
