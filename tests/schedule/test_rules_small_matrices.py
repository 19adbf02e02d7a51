"""Products of small matrices in batches, compiled, against their references; what else is taken."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import For
from relaxlab.ir.node import walk

TAKEN = {
    "4 x 4": ("bij,bjk->bik", "b 4 4", "b 4 4"),
    "transposed": ("bij,bkj->bik", "b 4 4", "b 4 4"),
    "rows transposed": ("bji,bjk->bik", "b 4 4", "b 4 4"),
    "3 x 3": ("bij,bjk->bik", "b 3 3", "b 3 3"),
    "oblong": ("bij,bjk->bik", "b 8 3", "b 3 2"),
    "heads": ("abij,abjk->abik", "b 3 2 4", "b 3 4 4"),
}
LEFT = {
    "rows that fill vectors": ("bij,bjk->bik", "b 4 4", "b 4 16"),
    "symbolic rows": ("bij,bjk->bik", "b n 4", "b 4 4"),
    "few matrices": ("bij,bjk->bik", "3 3 3", "3 3 3"),
    "many terms": ("bij,bjk->bik", "b 2 32", "b 32 2"),
    "one matrix for all": ("bij,jk->bik", "b 4 4", "4 4"),
}


def program(subscripts: str, x: str, w: str, dtype: str = "float32") -> rl.Module:
    shapes = (", ".join(d if d.isdigit() else f'"{d}"' for d in s.split()) for s in (x, w))
    params = ", ".join(
        f'{n}: R.Tensor(({s}), "{dtype}")' for n, s in zip("xw", shapes, strict=True)
    )
    return rl.parse(f"""
@R.function
def main({params}):
    with R.dataflow():
        y = R.nn.relu(R.einsum((x, w), subscripts="{subscripts}"))
        R.output(y)
    return y
""")


def rules_of(mod: rl.Module) -> set[str]:
    remarks = (r for p in rl.trace(mod).passes for r in p.remarks)
    return {r.reason for r in remarks if "scheduled by the rule" in r.reason}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", TAKEN)
def test_batches_of_any_length(name: str, dtype: str, rng: np.random.Generator) -> None:
    """Also where the last step is a part of one, and as a debug build."""
    subscripts, x, w = TAKEN[name]
    mod = program(subscripts, x, w, dtype)
    if dtype == "float32":
        assert rules_of(mod) == {"scheduled by the rule small_matrices"}
    for exe in (rl.compile(mod, threads=2), rl.compile(mod, checks="all")):
        for b in (0, 1, 5, 33):
            arrays = [
                rng.integers(-9, 9, [int(d) if d.isdigit() else b for d in s.split()]).astype(dtype)
                for s in (x, w)
            ]
            want = np.maximum(np.einsum(subscripts, *arrays), 0)
            np.testing.assert_array_equal(exe["main"](*arrays), want)


def test_no_row_has_a_vector_of_its_own() -> None:
    (kernel,) = rl.trace(program(*TAKEN["4 x 4"])).result.loop_functions().values()
    vectors = [n.extent for n in walk(kernel.body) if isinstance(n, For) and n.kind == "vectorized"]
    assert {str(n) for n in vectors} == {"16"}


@pytest.mark.parametrize("name", LEFT)
def test_others_are_for_other_rules(name: str) -> None:
    assert "scheduled by the rule small_matrices" not in rules_of(program(*LEFT[name]))
