"""Run cases, read from stdin as JSON, and write the results: with the `tvm` that is installed, or
with relaxlab's in its place."""

from __future__ import annotations

import contextlib
import io
import json
import sys

if sys.argv[1] == "relaxlab":
    import relaxlab.tvm

    relaxlab.tvm.install()

import tvm
from tvm import relax, s_tir, tirx
from tvm.s_tir import Schedule, ScheduleError
from tvm.script import from_source


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


RUN = {"print": reprint, "schedule": schedule, "transform": transform, "lower": lower}[sys.argv[2]]
json.dump([RUN(*case) for case in json.load(sys.stdin)], sys.stdout)
