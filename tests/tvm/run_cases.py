"""Run cases, read from stdin as JSON, and write the results: with the `tvm` that is installed, or
with relaxlab's in its place."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from types import SimpleNamespace

if sys.argv[1] == "relaxlab":
    import relaxlab.tvm

    relaxlab.tvm.install()

import tvm
from tvm import relax, s_tir, tirx
from tvm.s_tir import Schedule, ScheduleError
from tvm.script import from_source
from tvm.script import relax as R


def schedule(program: str, steps: str) -> dict[str, str]:
    """The function after the steps, what they printed, or the error."""
    sch = Schedule(from_source(program))
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(steps, {"sch": sch, "tvm": tvm})
    except ScheduleError as error:
        return {"refused": str(error)[-400:]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[-300:]}
    return {"script": sch.mod["main"].script(), "printed": printed.getvalue()}


def transform(program: str, expression: str) -> dict[str, str]:
    """The module after the pass that an expression of `relax.transform` makes, or the error."""
    try:
        made = eval(f"relax.transform.{expression}", {"relax": relax, "tvm": tvm})
        return {"script": made(from_source(program)).script(show_meta=False)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:600]}


def lower(program: str, passes: str) -> dict[str, str]:
    """The module after passes of loop functions, by their names, or the error."""
    mod = tvm.IRModule({"main": from_source(program)})
    try:
        for name in passes.split(", "):
            home = s_tir if hasattr(s_tir.transform, name) else tirx
            mod = getattr(home.transform, name)()(mod)
        return {"script": mod.script(show_meta=False)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:600]}


def reprint(program: str, _: str) -> dict[str, str]:
    """The script of a program, or the error."""
    try:
        return {"script": from_source(program).script()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[-600:]}


def type_of(variables: str, expression: str) -> dict[str, str]:
    """The type of a call on variables, whose types are texts by name in JSON, as dimensions, dtypes
    and devices; "refused" if there is none."""
    symbols = {name: tirx.Var(name, "int64") for name in "mnk"}
    names = {"R": R, "relax": relax, "device": relax.VDevice("llvm"), **symbols}
    try:
        for name, ty in json.loads(variables).items():
            names[name] = relax.Var(name, eval(ty, dict(names)))
        made = relax.BlockBuilder().normalize(eval(expression, names)).ty
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[-600:]}
    return {"type": described(made)}


def described(ty: relax.TensorType) -> str:
    """A type as text: tensors by the values of their dimensions where m, n and k are 5, 7, 11."""
    if isinstance(ty, relax.TupleType):
        return "(" + ", ".join(map(described, ty.fields)) + ")"
    values = {"m": 5, "n": 7, "k": 11, "T": SimpleNamespace(int64=int, max=max, min=min)}
    shape = ty.shape
    known = None if shape is None or isinstance(shape, relax.Var) else list(shape)
    dims = ty.ndim if known is None else [eval(str(d), dict(values)) for d in known]
    device = ty.vdevice
    if device and not isinstance(device, str):
        device = f"{device.target.kind}:{device.vdevice_id}:{device.memory_scope}"
    return f"{dims} {ty.dtype or 'any'} {device or ''}"


RUN = {"print": reprint, "schedule": schedule, "transform": transform, "lower": lower,
       "type": type_of}[sys.argv[2]]
json.dump([RUN(*case) for case in json.load(sys.stdin)], sys.stdout)
