"""Claims that fail at run time: every executor names the function, the value, the symbol, what was
expected and what came. One table; each row is a function of one module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.runtime.packed import register_func
from relaxlab.runtime.vm.vm import VirtualMachine

HEAD = "from relaxlab.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass M:\n"


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, "float32")


@dataclass(frozen=True)
class Claim:
    """A function `name`, arguments that break a claim of it, and what all messages must say.
    `only_here`: nothing but the interpreter and the virtual machine can run it. `exports`: it has
    a C form."""

    name: str
    params: str
    body: str
    args: tuple[Any, ...]
    says: tuple[str, ...]
    result: str = ""
    attrs: str = ""
    only_here: bool = False
    exports: bool = True

    @property
    def text(self) -> str:
        result = f" -> {self.result}" if self.result else ""
        lines = [self.attrs, *self.body.split("; ")] if self.attrs else self.body.split("; ")
        body = "".join(f"        {line}\n" for line in lines)
        return f"    @R.function\n    def {self.name}({self.params}){result}:\n{body}"


N = 'x: R.Tensor(("n",), "float32")'
ANY = 'R.Tensor(dtype="float32", ndim=1)'
CLAIMS = [
    Claim("cast_constant", 'x: R.Tensor(dtype="float32", ndim=2)',
          'y = R.match_cast(x, R.Tensor(("n", 4), "float32")); return y', (zeros(2, 3),),
          ("`y`", "dimension 1", "is 3", "expected 4")),
    Claim("cast_known", f"{N}, y: {ANY}",
          'n = T.int64(); z = R.match_cast(y, R.Tensor((n,), "float32")); return z',
          (zeros(2), zeros(3)), ("`z`", "dimension 0", "n", "3", "2", "`x`")),
    Claim("cast_compound", f"{N}, y: {ANY}",
          'n = T.int64(); z = R.match_cast(y, R.Tensor((n * 2 + 1,), "float32")); return z',
          (zeros(2), zeros(3)), ("`z`", "dimension 0", "is 3", "expected n * 2 + 1 = 5")),
    Claim("cast_even", 'x: R.Tensor(("n", "m"), "float32")',
          'n = T.int64(); y = R.exp(x); z = R.match_cast(y, R.Tensor(dtype="float32", ndim=2)); '
          'w = R.match_cast(z, R.Tensor((n, "d * 2"), "float32")); return w',
          (zeros(2, 3),), ("`w`", "dimension 1", "is 3", "expected d * 2 = 2")),
    Claim("cast_shape", "s: R.Shape(ndim=2)",
          "n = T.int64(); t = R.match_cast(s, R.Shape([n, n])); "
          'y = R.zeros(R.shape([n]), "float32"); return y', ((2, 3),), ("`t`", "n", "3", "2")),
    Claim("cast_of_data", 'x: R.Tensor(("n",), "int32")',
          "n = T.int64(); u = R.unique(x); "
          'v = R.match_cast(u, R.Tensor((n,), "int32")); return v',
          (np.array([1, 1, 2], "int32"),), ("`v`", "dimension 0", "n", "3", "2", "`x`"),
          exports=False),
    Claim("two_params", 'x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")',
          "z = R.add(x, y); return z", (zeros(2, 4), zeros(3, 4)),
          ("dimension 0", "`x`", "`y`", "n", "2", "3")),
    Claim("param_constant", 'x: R.Tensor(("n", 4), "float32")', "y = R.exp(x); return y",
          (zeros(2, 5),), ("`x`", "5", "expected", "4")),
    Claim("param_compound", f'{N}, y: R.Tensor(("n * 2",), "float32")', "z = R.exp(y); return z",
          (zeros(2), zeros(5)), ("dimension 0", "`y`", "is 5", "expected n * 2 = 4")),
    Claim("param_from_shape", 'x: R.Tensor(("n * 2",), "float32"), s: R.Shape(["n"])',
          "z = R.exp(x); return z", (zeros(5), (2,)), ("`x`", "is 5", "expected n * 2 = 4")),
    Claim("param_dtype", N, "z = R.exp(x); return z", (np.zeros(3, "int32"),),
          ("`x`", "dtype int32", "expected", "float32")),
    Claim("param_rank", N, "z = R.exp(x); return z", (zeros(3, 3),),
          ("`x`", "2 dimensions", "expected")),
    Claim("param_scalar", f'{N}, k: R.Prim(value="n")', "z = R.exp(x); return z", (zeros(5), 3),
          ("value of parameter `k`", "n", "3", "5", "`x`")),
    Claim("param_tuple", 't: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor(("n",), "float32"))',
          "a = t[0]; b = t[1]; z = R.add(a, b); return z", ((zeros(2), zeros(3)),),
          ("n", "dimension 0", "2", "3", "t")),
    Claim("bound", N, "z = R.sum(R.exp(x)); return z", (zeros(9),), ("n", "at most 8", "is 9"),
          attrs='R.func_attr({"tir_var_upper_bound": {"n": 8}})'),
    Claim("result", 'x: R.Tensor(("n",), "int32")', "u = R.unique(x); return u",
          (np.array([1, 2, 3], "int32"),), ("dimension 0", "is 3", "expected 2"),
          result='R.Tensor((2,), "int32")', exports=False),
    Claim("call", 'x: R.Tensor(dtype="float32", ndim=2)', "y = M.half(x); return y", (zeros(2, 3),),
          ("`half`", "parameter `a`", "dimension 1", "is 3", "expected 4")),
    Claim("packed_shape", N, 'n = T.int64(); y = R.call_pure_packed("test_claims.short", x, '
          'sinfo_args=R.Tensor((n,), "float32")); return y', (zeros(5),),
          ("`test_claims.short`", "`y`", "dimension 0", "n", "2", "5"), exports=False),
    Claim("packed_dtype", N, 'n = T.int64(); y = R.call_pure_packed("test_claims.int", x, '
          'sinfo_args=R.Tensor((n,), "float32")); return y', (zeros(5),),
          ("`test_claims.int`", "`y`", "dtype int32", "expected", "float32"), exports=False),
    Claim("broadcast", f'{N}, y: R.Tensor(("m",), "float32")', "z = R.add(x, y); return z",
          (zeros(5), zeros(3)), ("`z`", "R.add", "(5,)", "(3,)"), exports=False),
    Claim("reshape", f'{N}, s: R.Shape(["m"])', "m = T.int64(); "
          "z = R.reshape(x, R.shape([m, 2])); return z", (zeros(5), (3,)), ("reshape", "5")),
    Claim("negative", 's: R.Shape(["m"])', 'm = T.int64(); z = R.zeros(R.shape([m - 4]), "float32")'
          "; return z", ((3,),), ("`z`", "negative")),
    Claim("cast_rank", 'x: R.Tensor(dtype="float32")',
          'y = R.match_cast(x, R.Tensor(("n", 4), "float32")); return y', (zeros(3),),
          ("`y`", "1 dimensions", "expected 2"), only_here=True),
    Claim("cast_dtype", "x: R.Tensor(ndim=1)",
          'y = R.match_cast(x, R.Tensor(("n",), "float32")); return y', (np.zeros(3, "int32"),),
          ("`y`", "dtype int32", "expected float32"), only_here=True),
]  # fmt: skip
HALF = (
    "    @R.function(private=True)\n"
    '    def half(a: R.Tensor(("p", 4), "float32")) -> R.Tensor(("p", 4), "float32"):\n'
    '        b = R.multiply(a, R.const(0.5, "float32"))\n'
    "        return b\n"
)
Run = Callable[..., Any]


def _module(claims: list[Claim]) -> rl.Module:
    return rl.parse(HEAD + HALF + "".join(c.text for c in claims))


@pytest.fixture(scope="module")
def executors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """For each executor, a function that calls a function by name."""
    register_func("test_claims.short", lambda x: x[:2].copy(), override=True)
    register_func("test_claims.int", lambda x: x.astype("int32"), override=True)
    everything = _module(CLAIMS)
    compiled = [c for c in CLAIMS if not c.only_here]
    exported = [c for c in compiled if c.exports]
    path = tmp_path_factory.mktemp("claims") / "claims.so"
    native = rl.compile(_module(compiled), use_cache=False)
    rl.compile(_module(exported), use_cache=False).export(path)
    library = rl.load(path)
    program = lower_shapes(rl.trace(everything).result)
    return {
        "interpreter": lambda name, *args: rl.interpret(everything, name, *args),
        "machine": lambda name, *args: VirtualMachine(program).run(name, *args),
        "native": lambda name, *args: native[name](*args),
        "exported": lambda name, *args: library[name](*args),
    }


CASES = [
    (how, c)
    for c in CLAIMS
    for how in ("interpreter", "machine", "native", "exported")
    if not (c.only_here and how in ("native", "exported"))
    and not (how == "exported" and not c.exports)
]


@pytest.mark.parametrize(("how", "claim"), CASES, ids=[f"{c.name}-{how}" for how, c in CASES])
def test_message(how: str, claim: Claim, executors: dict[str, Run]) -> None:
    expected = (CheckFailed, ArgumentError) if how in ("native", "exported") else ExecutionError
    with pytest.raises(expected) as caught:
        executors[how](claim.name, *claim.args)
    text = str(caught.value)
    where = "half" if claim.name == "call" else claim.name
    for part in (f"`{where}`", *claim.says):
        assert part in text, f"{part!r} is missing in: {text}"


def test_values_without_a_native_form() -> None:
    for claim in (c for c in CLAIMS if c.only_here):
        with pytest.raises(Exception, match="type R.Tensor") as caught:
            rl.compile(_module([claim]), use_cache=False)
        assert type(caught.value).__name__ == "UnsupportedHost"


# --- Places outside of a tensor -------------------------------------------------------------------

PLACES = [-9, -3, -1, 0, 2, 3, 7]
GATHERS = {
    "take": ("y = R.take(x, i, axis=0)", [0, 0, 0, 0, 2, 2, 2]),
    "wrap": ('y = R.take(x, i, axis=0, mode="wrap")', [0, 0, 2, 0, 2, 0, 1]),
    "gather_nd": ("j = R.expand_dims(i, -1); y = R.gather_nd(x, j)", [0, 0, 2, 0, 2, 2, 2]),
    "gather_elements": ("y = R.gather_elements(x, i, axis=0)", [0, 0, 2, 0, 2, 2, 2]),
    "index_tensor": ("y = R.index_tensor(x, (i,))", [0, 0, 2, 0, 2, 2, 2]),
}


@pytest.mark.parametrize("op", GATHERS)
def test_places_outside_mean_the_same_to_all(op: str) -> None:
    """Gathering reads the nearest element: the interpreter, too."""
    lines, expected = GATHERS[op]
    body = "".join(f"        {line}\n" for line in lines.split("; "))
    mod = rl.parse(
        f'{HEAD}    @R.function\n    def main(x: R.Tensor(("n",), "float32"), '
        f'i: R.Tensor(("k",), "int64")):\n{body}        return y\n'
    )
    x, i = np.arange(3, dtype="float32"), np.array(PLACES)
    assert rl.interpret(mod, "main", x, i).tolist() == expected
    report = rl.check(mod, inputs=lambda rng: (x, i), runs=1)
    assert report.ok, report
