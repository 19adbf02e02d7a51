"""A program to machine code, through the passes or from the cache."""

from __future__ import annotations

import json
from dataclasses import replace

from relaxlab.codegen.artifact import Artifact, Part
from relaxlab.codegen.program import compile_program
from relaxlab.ir import graph
from relaxlab.ir.c_functions import registered_functions
from relaxlab.ir.equal import structural_key
from relaxlab.ir.graph import Function
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target, is_builtin
from relaxlab.ops import OPERATORS
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import marking_dead_memory
from relaxlab.runtime.cache import artifact_key, cached
from relaxlab.runtime.collection import collection_paused
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.native.weights import transforms_of
from relaxlab.runtime.request import Request
from relaxlab.schedule.tensor_intrin import registered_digests


def compile_native(request: Request) -> Executable:
    """Compile for a CPU. Raises ValueError where there is no function to call."""
    mod, debug = request.mod, request.checks == "all"

    def build() -> Artifact:
        with collection_paused():
            passes = marking_dead_memory(request.passes) if debug else request.passes
            return native_artifact(mod, request.result(passes), request.target, checks=debug)

    key = _key(request)
    artifact, from_cache = cached(key, build) if key is not None else (build(), False)
    _require_functions(artifact, mod)
    exe = Executable(artifact, request.target, request.threads, from_cache=from_cache)
    exe.key = key
    pipeline = request.passes if request.decisions or request.tuned else request.pipeline
    exe.belongs_to(mod, pipeline, request.entries, poison=debug)
    return exe


def native_artifact(mod: Module, result: Module, target: Target, *, checks: bool) -> Artifact:
    """The machine code of a module that went through the passes; `mod` is as it was before them."""
    artifact = compile_program(lower_shapes(result), target, _bounds(mod), checks=checks)
    return replace(artifact, parts=_parts(result), transforms=transforms_of(result))


def _key(request: Request) -> str | None:
    """The program's key in the cache; None where none describes all that it is made by."""
    mod, kind = request.mod, request.target.kind
    ours = is_builtin(kind) and _has_only_our_operators(mod)
    if request.pipeline is not None or not request.use_cache or not ours:
        return None
    made = json.dumps([request.decisions, request.tuned], sort_keys=True)
    options = [f"checks {request.checks}", f"decisions {made}"]
    options += [repr((f.symbol, f.arguments, f.passes)) for f in registered_functions()]
    options += registered_digests()
    return artifact_key(structural_key(mod), request.target, [*options, *_names(mod)])


def _require_functions(artifact: Artifact, mod: Module) -> None:
    if not artifact.functions:
        raise ValueError(
            "the module has no function that can be called: its graph functions are private"
            if mod.graph_functions() else "the module has no function"
        )  # fmt: skip


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
