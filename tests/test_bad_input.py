"""Wrong input is refused with a message that names it, and never ends the process."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.artifact import ArtifactError
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.normalize import normalize
from relaxlab.passes.patterns import is_op, rewrite_call, wildcard
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.schedule.error import ScheduleError
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@I.ir_module
class Relu:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        return R.nn.relu(x)


@I.ir_module
class Double:
    @T.prim_func
    def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(2)


def returning(call: str, x: str = '("n", 4)') -> Module:
    """A program that is one call."""
    return rl.parse(f"""
@R.function
def main(x: R.Tensor({x}, "float32")):
    n = T.int64()
    return {call}
""")


def on_block(primitive: str, *args: Any) -> object:
    """A step of a schedule at the block of `Double`."""
    sch = rl.Schedule(Double["double"])
    return getattr(sch, primitive)(sch.get_block("B"), *args)


@pytest.mark.parametrize("use", [rl.compile, rl.trace, rl.check, rl.interpret])
def test_values_that_are_no_module_are_named(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=r"expected a module, got a str; rl\.parse"):
        use("some text")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rl.parse(None), "a script is text, not None"),
        (lambda: rl.Schedule("f"), "expected a loop function or a module, got a str"),
        (lambda: rl.Schedule(Double["double"]).parallel(None), "None is not a loop of this"),
        (lambda: Pipeline((normalize, 3)), "a pipeline is made of passes, not of 3"),
        (lambda: rl.compile(Relu, pipeline="cpu"), "expected a pipeline, got a str"),
        (lambda: rl.compile(Relu, threads="two"), "threads must be a whole number, got 'two'"),
        (lambda: rewrite_call("relu", lambda c, m: None), "expected a pattern"),
        (
            lambda: rewrite_call(is_op("nn.relu")(wildcard()), lambda c, m: 42)(normalize(Relu)),
            "the rewriter of `main.result` returned 42, no value",
        ),
        (
            lambda: cpu_pipeline().with_options("lower_to_libraries", use="blas.matmul").run(Relu),
            r"`use` of lower_to_libraries is a tuple of \(a string\), not 'blas.matmul'",
        ),
    ],
)
def test_values_of_other_types_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rl.compile(Relu, target=None), "a target is a name such as 'cpu'.*, not None"),
        (lambda: rl.Target(None), "kind of a target is a name, not None"),
        (lambda: rl.compile(Relu, decisions=3), "decisions are a dictionary by kernel.*, not 3"),
        (lambda: rl.compile(Relu, tuned=3), "tuned is a database of rl.tune, or .*, not 3"),
        (lambda: rl.compile(Relu).export(None), "path of an exported library is .*, not None"),
        (lambda: rl.load(None), "path of an exported library is a string or .*, not None"),
        (lambda: rl.Database(3), "the path of a database is a string or a pathlib.Path, not 3"),
        (lambda: rl.TextGenerator.load(None), "the path of a model is a string or .*, not None"),
        (lambda: rl.BertEncoder.from_pretrained(None), "the path of a model is .*, not None"),
        (lambda: rl.Transcriber.from_pretrained(None), "the path of a model is .*, not None"),
        (lambda: rl.load_policy(None), "the path of a policy is a string or .*, not None"),
        (lambda: rl.tune(Relu, seconds="x"), "seconds is a number, or None .*, not 'x'"),
        (lambda: rl.tune(Relu, trials=None), "trials is a whole number, not None"),
        (lambda: rl.explore.graph(Relu).save(None), "path of a saved view is .*, not None"),
        (lambda: rl.explore.timings(None), "timings are a dictionary of names .*, not None"),
        (lambda: rl.explore.timings({"a": "x"}), "the time of 'a' is a number .*, not 'x'"),
        (lambda: rl.explore.batching(None, "f", []), "is an executable that .*, not None"),
        (lambda: rl.explore.compare(Relu, 3, None), "'left' is a pipeline, a trace, .*, not 3"),
        (lambda: rl.explore(Relu, views="graph"), r"views=\['graph'\]"),
        (lambda: rl.predict(Relu, None), "a GPU is one of a100, .*, not None"),
        (lambda: rl.learn_policy(None), "minibatches are a list of graphs .*, not None"),
        (lambda: rl.schedule_of(None, "k"), "from the trace of a compilation .*, not None"),
        (lambda: rl.pattern_kind_with_reason(Relu), "that of a loop function, not a Module"),
        (lambda: rl.memory_plan_of(None, Relu), "planned for a graph function, not None"),
        (lambda: rl.find_pass(None), "a pass is found by its name, not None"),
        (lambda: Pipeline(None), "a pipeline is made of a list of passes, not None"),
        (lambda: rl.simt(None), "expected a module, got None"),
        (lambda: rl.Sampler(temperature="x"), "temperature is a number, not 'x'"),
        (lambda: rl.Sampler(seed=1.5), "seed is a whole number, not 1.5"),
        (lambda: rl.nn.Linear(None, 3), "in_features is a number, not None"),
        (lambda: rl.nn.Conv2d(3, "x", 3), "out_channels is a whole number, not 'x'"),
        (lambda: on_block("cache_read", 0, None), "such as 'local' or 'shared', not None"),
        (lambda: on_block("annotate", None, 1), "the key of an annotation is a name, not None"),
    ],
)
def test_arguments_of_other_types_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("value", [None, [[1], [1, 2]], {}])
def test_what_is_no_array_is_named(value: Any) -> None:
    with pytest.raises(ExecutionError, match="is no array"):
        rl.explore.array(value)


@pytest.mark.parametrize("use", [rl.load, rl.explore.graph(Relu).save])
def test_a_folder_is_not_taken_for_a_file(use: Callable[[Any], object], tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"is a folder"):
        use(tmp_path)


@pytest.mark.parametrize("factor", ["a", 2.5])
def test_factors_of_a_split_are_whole_numbers(factor: Any) -> None:
    sch = rl.Schedule(Double["double"])
    (loop,) = sch.get_loops(sch.get_block("B"))
    with pytest.raises(ScheduleError, match=f"factor {factor!r} is a whole number"):
        sch.split(loop, [None, factor])


def test_a_dimension_beyond_64_bits_is_refused_by_every_executor() -> None:
    mod = returning(f"R.zeros((n * {1 << 62}, 4), 'float32')")
    program = lower_shapes(cpu_pipeline().run(mod).result)
    machine, exe = VirtualMachine(program), rl.compile(mod)
    text = re.escape("must fit into 64 bits; n is dimension 0 of parameter `x` of `main` (it is 4)")
    for run in (lambda x: machine.run("main", x), lambda x: exe["main"](x)):
        assert run(np.ones((0, 4), "float32")).shape == (0, 4)
        with pytest.raises((CheckFailed, ExecutionError), match=text):
            run(np.ones((4, 4), "float32"))


def test_a_product_of_dimensions_beyond_64_bits_is_more_than_there_is_memory() -> None:
    exe = rl.compile(returning(f"R.zeros(({1 << 62}, 8), 'float32')"))
    with pytest.raises(MemoryError, match="asked for .* bytes, more than there are"):
        exe["main"](np.ones((1, 4), "float32"))


@pytest.mark.parametrize("bounds", [{"n": "many"}, {"n": -1}, {"n": 2.5}, 4])
def test_bounds_of_programs_that_no_script_wrote_are_checked(bounds: Any) -> None:
    fn = Relu["main"]
    mod = Module.of({"main": replace(fn, attrs=fn.attrs.with_(tir_var_upper_bound=bounds))})
    with pytest.raises(DiagnosticError, match="tir_var_upper_bound maps names of symbols to sizes"):
        rl.compile(mod)


def test_endless_recursion_is_an_error_of_the_interpreter_too() -> None:
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    y: R.Tensor(("n",), "float32") = cls.main(x)
    return y
""")
    with pytest.raises(ExecutionError, match="`main` is called too deeply: 10,000 calls"):
        rl.interpret(mod, "main", np.ones(2, "float32"))


def test_a_library_that_was_cut_off_is_not_loaded(tmp_path: Path) -> None:
    rl.compile(Relu).export(tmp_path / "relu.so")
    whole = (tmp_path / "relu.so").read_bytes()
    cut = tmp_path / "cut.so"
    for size in (100, 4096, len(whole) // 2, len(whole) - 1):  # the loader would die of some
        cut.write_bytes(whole[:size])
        with pytest.raises(ArtifactError, match=f"has {size} bytes instead of .*: it was cut off"):
            rl.load(cut)
    for no_library in (b"", b"some text" * 100):
        cut.write_bytes(no_library)
        with pytest.raises(ArtifactError, match="is no shared library"):
            rl.load(cut)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: rl.Schedule(Relu), KeyError, "no loop functions yet: .*relaxlab.trace"),
        (lambda: rl.explore.tuning(Relu), TypeError, "got .*; a program is the second argument"),
        (lambda: rl.explore.predicted(Relu), TypeError, "what rl.predict returned, got"),
        (lambda: rl.explore.layout("main"), TypeError, "a list of rl.BlockKernel.*, got a str"),
        (lambda: rl.explore.layout(None), TypeError, "a list of rl.BlockKernel.*, got None"),
        (lambda: rl.load_policy("/nowhere.json"), FileNotFoundError, "no file /nowhere.json with"),
        (lambda: rl.register_func("test.number", 3), TypeError, "is to be a function, got"),
        (lambda: rl.define("add", "x", lambda call, types: types[0]), ValueError,
         "belongs to relaxlab and cannot be replaced; give yours another name"),
        (lambda: rl.module_pass("normalize")(lambda mod, options: mod), ValueError,
         "is one of relaxlab.passes.normalize; give yours another name"),
        (lambda: rl.tune(Relu, seconds=-1), ValueError, "0 seconds or more, not -1"),
        (lambda: rl.tune(Relu, shapes={"n": 0}), ValueError, "`n` cannot be 0"),
    ],
)  # fmt: skip
def test_objects_of_the_wrong_kind(
    wrong: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        wrong()
