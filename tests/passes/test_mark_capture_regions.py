"""Runs of kernels that can be captured."""

import numpy as np
import pytest

from relaxlab.ir import host
from relaxlab.ir.node import replace
from relaxlab.passes.base import Pipeline, PipelineError
from relaxlab.passes.bind_symbolic_vars import bind_symbolic_vars
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.mark_capture_regions import mark_capture_regions
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import parse
from relaxlab.testing.pass_check import assert_same, random_arguments
from tests.passes.graph_programs import Programs

PIPELINE = Pipeline((*GRAPH_PASSES, *MEMORY_PASSES, mark_capture_regions)).without("fuse_ops")

TEXT = """
@R.function
def main(x: R.Tensor((ROWS, 8), "float32"), w: R.Tensor((8, 8), "float32")):
    R.func_attr({"num_input": 1 ATTRS})
    a = R.exp(x)
    b = R.matmul(a, w)
    c = R.nn.softmax(b)
    d = R.matmul(c, w)
    SPLIT
    e = R.sin(d)
    f = R.matmul(e, w)
    g = R.nn.softmax(f)
    return g
"""


def traced(rows="4", attrs="", split="pass"):
    text = TEXT.replace("ROWS", rows).replace("ATTRS", attrs)
    return PIPELINE.run(parse(text.replace("    SPLIT\n", split)))


def remarks_of(trace):
    return [(w.subject, w.reason, w.applied) for w in trace.find("mark_capture_regions").remarks]


def captured(function):
    """The kernels in each captured range; nothing else but views and loads lies there."""
    found = []
    for first, last in function.captures:
        instrs = function.instrs[first:last]
        assert all(isinstance(i, host.CallKernel | host.View | host.LoadConst | host.Alloc)
                   for i in instrs)  # fmt: skip
        found.append([i.function for i in instrs if isinstance(i, host.CallKernel)])
    return found


def test_kernels_on_planned_memory_are_captured():
    trace = traced(split="")
    function = lower_shapes(trace.result).functions["main"]
    # The first reads the input, the last writes the result: their addresses differ.
    assert captured(function) == [["matmul", "softmax", "matmul", "sin", "matmul"]]
    reasons = [r for _, r, applied in remarks_of(trace) if not applied]
    assert "`exp`: `x` has another address at every call" in reasons
    assert "`softmax`: `g_with_workspace_0` has another address at every call" in reasons


def test_a_call_on_the_host_ends_a_region():
    split = (
        '    d = R.call_pure_packed("test.f", d, sinfo_args=(R.Tensor((4, 8), "float32"),))\n'
    )
    trace = traced(split=split)
    function = lower_shapes(trace.result).functions["main"]
    assert captured(function) == [["matmul", "softmax", "matmul"]]
    reasons = [r for _, r, _ in remarks_of(trace)]
    assert "a call of call_pure_packed on the host" in reasons
    # What the host's function returns is a new array: `sin` reads it; then one kernel is left.
    assert any(r.endswith("1 kernels: a capture of one kernel gains nothing") for r in reasons)


def test_symbols_vary_unless_they_are_named():
    split = ""
    trace = traced(rows='"n"', split=split)
    assert not lower_shapes(trace.result).functions["main"].captures
    assert any("varies" in r for _, r, _ in remarks_of(trace))
    attrs = ', "tir_var_upper_bound": {"n": 16}'
    assert not lower_shapes(traced('"n"', attrs, split).result).functions["main"].captures
    attrs += ', "capture_symbols": ["n"]'
    function = lower_shapes(traced('"n"', attrs, split).result).functions["main"]
    assert captured(function) == [["matmul", "softmax", "matmul", "sin", "matmul"]]


def test_it_comes_last():
    with pytest.raises(PipelineError, match="needs `plan_memory` before it"):
        Pipeline((mark_capture_regions, *GRAPH_PASSES, *MEMORY_PASSES))
    result = traced(split="").result
    assert mark_capture_regions(result) is result


def random_program(seed):
    """A program of static shapes; its first parameter is an input, the others are weights."""
    start = normalize(Programs(seed).module(16))
    main = start["main"]
    main = replace(main, attrs=main.attrs.with_(num_input=1))
    weights = start.with_functions({"main": main})
    return bind_symbolic_vars.with_options(values={"n": 3, "m": 5})(weights)


@pytest.mark.parametrize("seed", range(12))
def test_captured_kernels_work_on_the_same_memory_at_every_call(seed):
    """Captured kernels touch weights and constants, or the same places of the arenas in two runs
    with different inputs."""
    fixed = random_program(seed)
    program = lower_shapes(PIPELINE.run(fixed).result)
    main = program.functions["main"]
    inside = {i for c in main.captures for i in range(*c)}
    kernels = {i for i in inside if isinstance(main.instrs[i], host.CallKernel)}
    seen = {i: set() for i in kernels}
    rng = np.random.default_rng(seed)
    weights = random_arguments(fixed["main"], rng)[1:]
    for _ in range(2):
        args = (random_arguments(fixed["main"], rng)[0], *(w.copy() for w in weights))
        want = interpret(fixed, "main", *(a.copy() for a in args))
        vm = VirtualMachine(program)
        vm.start("main", *args)
        storages = [i.dst for i in main.instrs if isinstance(i, host.AllocStorage)]
        while vm.frames:
            frame = vm.frames[0]
            at = frame.blocks[0].at
            if len(vm.frames) == 1 and len(frame.blocks) == 1 and at in kernels:
                arenas = [frame.registers[s] for s in storages if frame.registers[s] is not None]
                buffers = [frame.registers[b] for b in main.instrs[at].buffers]
                seen[at].add(tuple(place(b, arenas, (*args[1:], *main.constants)) for b in buffers))
            vm.step()
        assert_same(vm.result, want, f"seed {seed}", 1e-4)
    assert all(len(places) == 1 for places in seen.values())


def place(buffer, arenas, known):
    """Return the place of a buffer: the number of a weight or constant, or an offset into an
    arena."""
    for i, array in enumerate(known):
        if np.shares_memory(buffer, array):
            return ("known", i, buffer.shape)
    for i, arena in enumerate(arenas):
        if buffer.size == 0 or np.shares_memory(buffer, arena):
            start = address(buffer) - address(arena) if buffer.size else 0
            return ("arena", i, start, buffer.shape)
    raise AssertionError("neither planned memory nor a weight")


def address(array):
    return array.__array_interface__["data"][0]


def test_random_programs_have_regions():
    programs = [lower_shapes(PIPELINE.run(random_program(seed)).result) for seed in range(12)]
    assert sum(len(p.functions["main"].captures) for p in programs) > 0
