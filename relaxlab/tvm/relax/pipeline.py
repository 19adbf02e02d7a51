"""`tvm.relax.get_pipeline`: passes by the name of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.ir.module import Module
from relaxlab.tvm.relax import transform
from relaxlab.tvm.transform import Sequential

ZERO = ("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")
"""The passes of the pipeline "zero"; what else a program needs to run is done by `build`."""

PIPELINES: dict[str, tuple[str, ...]] = {"zero": ZERO, "default": ZERO, "default_build": ()}
_REGISTERED: dict[str, Callable[..., Any]] = {}


def get_pipeline(name: str = "zero", **options: Any) -> Any:
    """The pipeline of that name. Raises ValueError for an unknown one."""
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
