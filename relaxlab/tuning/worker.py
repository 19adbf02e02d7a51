"""A worker process of a tuner: builds programs, or measures them. `children.py` starts it by
`python -m relaxlab.tuning.worker`."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.codegen.artifact import Artifact
from relaxlab.ir import graph
from relaxlab.ir.equal import structural_key
from relaxlab.ir.errors import UserError
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target
from relaxlab.runtime.check.compare import Tolerance, coarsest, difference, movement
from relaxlab.runtime.check.inputs import copy_value, nudged, random_value
from relaxlab.runtime.check.stages import longest_reduction
from relaxlab.runtime.compile_native import native_artifact
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.timing import Candidate
from relaxlab.schedule.compiled import steps_of
from relaxlab.schedule.decisions import values_in, versions_in
from relaxlab.schedule.trace import to_json
from relaxlab.script.parser import parse
from relaxlab.tuning.kernels import FUNCTION, KERNEL, schedule_alone
from relaxlab.tuning.measured import in_turns
from relaxlab.tuning.messages import Message, receive, send
from relaxlab.tuning.points import point_from_json

LOADED = 3
"""Programs that stay loaded: the default, the best so far, and the one that is measured."""


def build(message: Message) -> tuple[Message, list[bytes]]:
    """Build the kernel of a program with decisions, or with the steps of a trace. The answer has
    the trace of its schedule and a digest of the result; without code where the digest is known."""
    program, target = parse(message["program"], check=False), Target.from_json(message["target"])
    point, given = point_from_json(message["point"]), message["trace"]
    try:
        made = schedule_alone(program, target, given or point)
    except (UserError, ValueError) as error:
        return {"invalid": str(error).strip().partition("\n")[0]}, []
    steps = steps_of(made, KERNEL)
    trace, asked = to_json(steps), values_in(steps).keys() | versions_in(steps)
    missing = [key for key in point if key not in asked]
    if given and trace != given:
        return {"invalid": "its trace cannot be replayed"}, []
    if missing:
        return {"invalid": f"no schedule asks for `{missing[0]}`"}, []
    digest = structural_key(made.result)
    answer = {"digest": digest, "trace": trace}
    if digest in message["known"]:
        return answer, []
    return answer, [native_artifact(program, made.result, target, checks=False).to_bytes()]


class Bench:
    """Measures programs of one kernel. The first, the default, computes what others have to."""

    def __init__(self, message: Message, default: bytes) -> None:
        self.program = parse(message["program"], check=False)
        self.target = Target.from_json(message["target"])
        self.threads: int = message["threads"]
        _pin(self.threads)
        self.function = self.program[FUNCTION]
        assert isinstance(self.function, graph.Function)
        self.weights = self.function.attrs.get("num_input", len(self.function.params))
        self.loaded: dict[str, Executable] = {}
        self.arguments = [arguments_for(self.program, sizes) for sizes in message["sizes"]]
        exe = self.load(default)
        self.expected: list[Any] = []
        self.tolerances: list[Tolerance] = []
        for args, sizes in zip(self.arguments, message["sizes"], strict=True):
            result = self.results(exe, args)
            rng = np.random.default_rng(1)
            moved = movement(result, self.results(exe, tuple(nudged(a, rng) for a in args)))
            self.expected.append(result)
            length = _longest_reduction(self.program, sizes)
            self.tolerances.append(Tolerance(coarsest(self.program), length, moved))

    def load(self, code: bytes) -> Executable:
        """The program with its functions ready to be called."""
        digest = hashlib.sha256(code).hexdigest()
        exe = self.loaded.pop(digest, None)
        if exe is None:
            exe = Executable(Artifact.from_bytes(code), self.target, self.threads)
            exe.belongs_to(self.program, None, {}, poison=False)
        self.loaded[digest] = exe  # the last that was used is the last in order
        for old in list(self.loaded)[:-LOADED]:
            del self.loaded[old]
        return exe

    def results(self, exe: Executable, args: tuple[Any, ...]) -> Any:
        """The results of a call, with the arguments that it may have overwritten."""
        given = copy_value(args)
        found = exe[FUNCTION](*given)
        return (*found, *given) if isinstance(found, tuple) else (found, *given)

    def measure(self, message: Message, blobs: Sequence[bytes]) -> Message:
        """Measure a program beside another at some of the sizes."""
        base, other = (self.load(blob) for blob in blobs)
        chosen: list[int] = message["sizes"]
        for i in chosen:
            place = f"the result for {message['names'][i]}" if message["names"][i] else "the result"
            found = self.results(other, self.arguments[i])
            problem = difference(found, self.expected[i], place, self.tolerances[i])
            if problem is not None:
                return {"error": f"wrong: {problem}"}
        pairs = [[self.candidate(exe, i) for i in chosen] for exe in (base, other)]
        for one in (*pairs[0], *pairs[1]):
            one.warm_up()
        gc.disable()  # a collection takes longer than most samples
        before, after = ([c.sample for c in side] for side in pairs)
        measured = in_turns(before, after, message["rounds"])
        gc.enable()
        seconds = [min(c.sample() for _ in range(3)) for c in pairs[0]]
        return {"ratios": measured.ratios, "seconds": seconds}

    def candidate(self, exe: Executable, size: int) -> Candidate:
        """A call of a program with its own copy of the arguments, its weights packed before."""
        args = copy_value(self.arguments[size])
        inputs, weights = args[: self.weights], args[self.weights :]
        function = exe[FUNCTION]
        transform = exe.artifact.transforms.get(FUNCTION)
        # The transformation's own results are taken as they are.
        packed = weights if transform is None else exe[transform](tuple(weights))
        return Candidate(KERNEL, lambda: function(*inputs, *packed))


def arguments_for(program: Module, sizes: dict[str, int]) -> tuple[Any, ...]:
    """Random arguments, the same in each process, for values of the symbols by name."""
    function = program[FUNCTION]
    assert isinstance(function, graph.Function)
    rng = np.random.default_rng(0)
    env = {symbol: sizes[symbol.name] for symbol in symbols_in(function.params)}
    return tuple(random_value(p.ty, env, rng, f"`{p.name}`") for p in function.params)


def _longest_reduction(program: Module, sizes: dict[str, int]) -> int:
    kernel = program[KERNEL]
    assert isinstance(kernel, PrimFunc)
    symbols = kernel_symbols(kernel)
    return longest_reduction(kernel, {s: sizes[s.name] for s in symbols if s.name in sizes})


def _pin(threads: int) -> None:
    """Pin the process to as many cores as there are threads, where the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def main() -> None:
    """Answer the requests of standard input until it ends."""
    # Output of kernels and libraries goes to standard error, so that it is not read as an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    bench: Bench | None = None
    while True:
        try:
            message, blobs = receive(sys.stdin.buffer)
        except EOFError:
            return
        answer: Message = {}
        parts: list[bytes] = []
        try:
            match message["do"]:
                case "build":
                    answer, parts = build(message)
                case "open":
                    bench = None
                    bench = Bench(message, blobs[0])
                case _:
                    assert bench is not None
                    answer = bench.measure(message, blobs)
        except Exception as error:  # noqa: BLE001  whatever it is, this trial failed
            answer = {"error": f"{type(error).__name__}: {str(error).strip()}"}
        send(answers, answer, parts)


if __name__ == "__main__":
    main()
