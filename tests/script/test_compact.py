"""Names that printing keeps, and the compact text for people."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.script.printer import print_module, print_with_map
from relaxlab.testing.loop_kernels import KERNELS, kernel


@I.ir_module
class Scaled:
    @T.prim_func
    def scale(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        cls = Scaled
        n = T.int64()
        with R.dataflow():
            y = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((n, 4), "float32"))
            z = R.exp(y)
            R.output(z)
        return z


NOTES = ("T.reads", "T.writes", "s_tir", "op_pattern", "noalias")


def test_a_module_keeps_the_name_of_its_class() -> None:
    assert "class Scaled:" in Scaled.script() and "cls = Scaled" in Scaled.script()
    assert repr(Scaled).startswith("Scaled(")
    result = rl.trace(Scaled).result
    assert "class Scaled:" in result.script()
    again = rl.parse(result.script())
    rl.assert_structural_equal(again, result)
    renamed = rl.parse(Scaled.script().replace("Scaled", "Other"))
    rl.assert_structural_equal(renamed, Scaled)


def test_a_variable_may_have_the_name_of_the_class() -> None:
    mod = rl.parse(Scaled.script().replace("z", "Scaled_").replace("Scaled_", "Scaled"))
    rl.assert_structural_equal(rl.parse(mod.script()), mod)


def test_a_function_keeps_its_name() -> None:
    assert "def scale(" in Scaled["scale"].script()
    sch = rl.Schedule(Scaled["scale"])
    sch.parallel(sch.get_loops(sch.get_block("B"))[0])
    assert "def scale(" in sch.func.script()
    result = rl.trace(Scaled).result
    assert [f.name_hint for _, f in result.items()] == list(result)

    @T.prim_func
    def alone(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = 0.0

    assert "def alone(" in alone.script()


def test_compact_text_leaves_out_what_the_compiler_notes() -> None:
    result = rl.trace(Scaled).result
    full, compact = print_module(result), print_module(result, show_meta=False)
    assert any(note in full for note in NOTES)
    assert not any(note in compact for note in NOTES)
    assert len(compact.splitlines()) < len(full.splitlines())
    x = np.ones((3, 4), "float32")
    for mod in (rl.parse(compact), rl.parse(full)):
        np.testing.assert_allclose(rl.interpret(mod, "main", x), np.exp(2 * x), rtol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_compact_text_means_the_same(name: str) -> None:
    mod = rl.Module.of({name: kernel(name, "float32")})
    text = print_module(mod, show_meta=False)
    assert print_module(rl.parse(text), show_meta=False) == text


def test_the_map_of_the_compact_text() -> None:
    text, places = print_with_map(rl.trace(Scaled).result, show_meta=False)
    assert text == print_module(rl.trace(Scaled).result, show_meta=False)
    assert not any(".reads" in path for path in places)
    assert any(path.startswith("['main']") for path in places)
