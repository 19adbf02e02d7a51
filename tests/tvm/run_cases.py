"""Run cases, read from stdin as JSON, and write the results: with the `tvm` that is installed, or
with relaxlab's in its place."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from types import SimpleNamespace

if sys.argv[1] == "relaxlab":
    import relaxlab.tvm

    relaxlab.tvm.install()

import tvm
import tvm.topi.image
import tvm.topi.nn
from tvm import relax, s_tir, sym, te, tirx, topi
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
    """The module after passes of loop functions, by their names, or the error; options of one are
    after its name, apart by semicolons: "UnrollLoop{'auto_max_step': 4}"."""
    mod = tvm.IRModule({"main": from_source(program)})
    try:
        for part in passes.split(", "):
            name, bracket, options = part.partition("{")
            home = s_tir if hasattr(s_tir.transform, name) else tirx
            key = f"{'s_tir' if home is s_tir else 'tirx'}.{name}"
            config = {key: eval(bracket + options.replace(";", ","))} if bracket else {}
            with tvm.transform.PassContext(config=config):
                mod = getattr(home.transform, name)()(mod)
        return {"script": mod.script(show_meta=False)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:600]}


class _Passes(dict[str, object]):
    """The passes over loop functions, by their names."""

    def __missing__(self, name: str) -> object:
        found = getattr(s_tir.transform, name, None) or getattr(tirx.transform, name, None)
        if found is None:
            raise KeyError(name)
        return found


def loop_pass(program: str, expression: str) -> dict[str, str]:
    """The module after the pass of an expression, behind which a configuration may be:
    "UnrollLoop() | {'tirx.UnrollLoop': {'auto_max_step': 16}}"."""
    text, _, config = expression.partition(" | ")
    try:
        mod = from_source(program)
        mod = mod if isinstance(mod, tvm.IRModule) else tvm.IRModule({"main": mod})
        with tvm.transform.PassContext(config=eval(config or "{}")):
            made = eval(text, _Passes(tvm=tvm))(mod)
        return {"script": made.script(show_meta=False)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:600]}


def reprint(program: str, _: str) -> dict[str, str]:
    """The script of a program, or the error."""
    try:
        return {"script": from_source(program).script()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[-600:]}


def equal(program: str, other: str) -> dict[str, str]:
    """Where two programs differ, "" if they do not, or the error."""
    try:
        tvm.ir.assert_structural_equal(from_source(program), from_source(other), True)
    except Exception as error:
        return {"differs": f"{type(error).__name__}: {error}"[-600:]}
    return {"differs": ""}


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
    if isinstance(ty, relax.ShapeType):
        dims = ty.ndim if ty.values is None else [eval(str(d), dict(values)) for d in ty.values]
        return f"shape {dims}"
    if not isinstance(ty, relax.TensorType):
        return type(ty).__name__.replace("AnyType", "ObjectType")
    shape = ty.shape
    known = None if shape is None or isinstance(shape, relax.Var) else list(shape)
    dims = ty.ndim if known is None else [eval(str(d), dict(values)) for d in known]
    device = ty.vdevice
    if device and not isinstance(device, str):
        device = f"{device.target.kind}:{device.vdevice_id}:{device.memory_scope}"
    return f"{dims} {ty.dtype or 'any'} {device or ''}"


def tensors(program: str, given: str) -> dict[str, str]:
    """The loop function of tensor expressions, with `out` or the value of the last line as result;
    the placeholders are given as names with shapes and dtypes."""
    names = {"te": te, "topi": topi, "tvm": tvm, "tirx": tirx, "topi_const": tirx.const}
    inputs: list[te.Tensor] = []
    try:
        for part in given.split():
            name, _, described = part.partition("=")
            shape, _, dtype = described.partition(":")
            dims = tuple(map(int, shape.split(",")))
            dtype = "float32" if dtype in ("", "abs") else dtype
            inputs.append(te.placeholder(dims, dtype, name))
            names[name] = inputs[-1]
        *steps, last = program.strip().splitlines()
        exec("\n".join(steps), names)
        outs = eval(last, names)
        outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
        func = te.create_prim_func([*inputs, *outs])
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[-600:]}
    return {"script": func.script()}


def arithmetic(_: str, text: str) -> dict[str, str]:
    """The value of an expression about an analyzer `a`, which knows 0 <= i < 8 and 0 <= j < 16."""
    i, j, n, m = (tirx.Var(name, "int64") for name in "ijnm")
    a = sym.Analyzer()
    a.bind(i, tvm.ir.Range(0, 8))
    a.bind(j, tvm.ir.Range.from_min_extent(0, 16))
    names = {"a": a, "i": i, "j": j, "n": n, "m": m, "tvm": tvm, "sym": sym, "tirx": tirx,
             "Range": tvm.ir.Range}  # fmt: skip
    try:
        return {"value": plainly(eval(text, names))}
    except Exception as error:
        return {"refused": type(error).__name__}


def plainly(value: object) -> str:
    """A value of the analyses as text, expressions without their dtypes."""
    match type(value).__name__:
        case "ConstIntBound" | "IntervalSet":
            return f"[{plainly(value.min_value)}, {plainly(value.max_value)}]"  # type: ignore
        case "ModularSet":
            return f"{value.base} mod {value.coeff}"  # type: ignore[attr-defined]
        case "tuple" | "list" | "Array":
            return ", ".join(map(plainly, value))  # type: ignore[call-overload]
        case "CompareResult":
            return value.name  # type: ignore[attr-defined]
    text = str(value).replace("neg_inf", "None").replace("pos_inf", "None")
    return re.sub(r"T\.(?:int64|bool)\(([-\w]+)\)", r"\1", text)


RUN = {"print": reprint, "equal": equal, "schedule": schedule, "transform": transform,
       "lower": lower, "loop_pass": loop_pass, "type": type_of, "tensors": tensors,
       "arithmetic": arithmetic}[sys.argv[2]]  # fmt: skip
json.dump([RUN(*case) for case in json.load(sys.stdin)], sys.stdout)
