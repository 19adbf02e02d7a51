"""Run cases of schedules, read from stdin as JSON, and write the results: with the `tvm` that is
installed, or with relaxlab's in its place."""

from __future__ import annotations

import contextlib
import io
import json
import sys

if sys.argv[1] == "relaxlab":
    import relaxlab.tvm

    relaxlab.tvm.install()

import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.script import from_source


def run(program: str, steps: str) -> dict[str, str]:
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


json.dump([run(*case) for case in json.load(sys.stdin)], sys.stdout)
