"""Random programs over the whole operator table against NumPy, and how failing ones get smaller."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest

from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.codegen.errors import CodegenError
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.op_table import op_names, op_row
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.schedule import Schedule
from relaxlab.script.parser import parse
from relaxlab.testing.draw import Refused
from relaxlab.testing.draw_rules import RULES
from relaxlab.testing.function_programs import FunctionProgram
from relaxlab.testing.fuzz import coverage
from relaxlab.testing.fuzz_program import Build, problem_of, run_program, same_claim
from relaxlab.testing.random_schedules import COLLIDING
from relaxlab.testing.shrink import shrunk
from relaxlab.testing.table_programs import Attributes, TableProgram


def _compare(rng: np.random.Generator) -> None:
    seed = int(rng.integers(1 << 31))
    print(f"python -m relaxlab.testing.fuzz --programs 1 --seed {seed}")
    try:
        failure = run_program(seed, Build.of_seed(seed))
    except ExecutionError as reason:
        print(f"accepts no arguments: {reason}")
        return
    assert failure is None, str(failure)


@pytest.mark.parametrize("case", range(6))
def test_some_programs_compute_what_numpy_does(case, rng) -> None:
    _compare(rng)


@pytest.mark.parametrize("case", range(30))
def test_more_programs_compute_what_numpy_does(case, rng) -> None:
    """Left to the tier of all tests, for the time they take."""
    _compare(rng)


def test_schedules_that_do_not_replay_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = parse("""
@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    return R.exp(x)
""")
    assert isinstance(Build(replayed=True)(mod), Executable)
    monkeypatch.setattr("relaxlab.testing.replay._replayed", set())
    monkeypatch.setattr("relaxlab.testing.replay.apply_trace", lambda func, _: Schedule(func))
    problem = Build(replayed=True)(mod)
    assert isinstance(problem, str) and problem.startswith("StructuralMismatch: .body")


def test_programs_are_well_formed(rng) -> None:
    """With branches within branches, of which each arm returns what the other one makes."""
    ifs = 0
    for seed in rng.integers(1 << 31, size=40):
        print(f"seed {seed}")
        mod = FunctionProgram(int(seed)).random_module()
        assert check_well_formed(mod) == []
        ifs += sum(isinstance(n, graph.If) for n in walk(mod["main"]))
    assert ifs


@pytest.mark.parametrize(
    "kind", ["counted", "shrinking", "mutual", "applied", "claimed", "kernel", "update"]
)
def test_programs_with_one_kind_of_value_compute_what_the_interpreter_does(kind, rng) -> None:
    """Each kind by itself: it is in one program of twenty, or rarer."""
    compared = 0
    while compared < 3:
        seed = int(rng.integers(1 << 31))
        print(f"seed {seed}")
        made = FunctionProgram(seed)
        with patch.object(made, "parts", lambda length, made=made: _block_of(made, kind)):
            mod = made.random_module()
        if not mod.graph_functions()["main"].body.blocks:  # no value of the program fits
            continue
        assert check_well_formed(mod) == []
        args = made.arguments(mod, rng)
        try:
            assert problem_of(mod, args, Build.of_seed(seed)(mod)) is None
        except ExecutionError:  # a claim that does not hold
            parts = (n for fn in mod.graph_functions().values() for n in walk(fn))
            assert any(isinstance(n, graph.MatchCast) for n in parts)
        compared += 1


def _block_of(made: FunctionProgram, kind: str) -> list[graph.BindingBlock]:
    """A block with a value of a kind, and what it reads."""
    made.bindings = []
    result = getattr(made, kind)()
    if result is None or not made.add(*result):
        return []
    return [graph.BindingBlock(tuple(made.bindings))]


def test_claims_that_fail_name_the_same_extents() -> None:
    """Or another dimension of the same claim, where several are wrong."""
    x = parse("""
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    y = R.match_cast(x, R.Tensor((n, 4), "float32"))
    return y
""")
    args = (np.zeros((2, 3), "float32"),)

    def refusing(text: str) -> dict[str, Callable[..., object]]:
        def main(x: object) -> object:
            raise CheckFailed(text)

        return {"main": main}

    claim = "dimension {} of `{}` (match_cast in `main`) is {}, expected 4"
    for right in (claim.format(1, "y", 3), claim.format(0, "y", 7)):
        with pytest.raises(ExecutionError, match="dimension 1 of `x` is 3, expected 4"):
            problem_of(x, args, refusing(right))
    for wrong in (claim.format(1, "z", 3), claim.format(1, "y", 5), "out of memory"):
        assert "expected: in `main`: match_cast" in str(problem_of(x, args, refusing(wrong)))


# Operators that no drawn call is of, and why.
NOT_DRAWN = {
    "assert_op": "has no result", "print": "has no result", "null_value": "has no result",
    "call_tir": "a kernel of `loop_kernels`", "call_tir_inplace": "a kernel of `loop_kernels`",
    "call_dps_packed": "made by `MixedProgram.packed`",
    "call_pure_packed": "made by `MixedProgram.packed`",
    "call_tir_with_grad": "lowered as call_tir is", "call_py_func": "a packed call by another name",
    "call_inplace_packed": "needs a function that overwrites; tests/passes/test_effects.py",
    "call_builtin_with_ctx": "of programs that are lowered",
    **dict.fromkeys(("ccl.allgather", "ccl.allreduce", "ccl.broadcast_from_worker0",
                     "ccl.scatter_from_worker0", "dist.redistribute_replica_to_shard"),
                    "a program runs in one worker"),
    "make_closure": "made by `FunctionProgram`", "invoke_closure": "may have effects",
    "invoke_pure_closure": "made by `FunctionProgram`",
}  # fmt: skip
LOWERED = ("builtin.alloc", "memory.alloc", "memory.kill", "vm.", "inspect.", "adt.", "phase")
"""Operators that passes make, those that ask for fields of a tensor's descriptor, and those of
programs that run in batches."""


def test_every_operator_is_drawn() -> None:
    left = [n for n in op_names() if n not in RULES and not n.startswith(LOWERED)]
    assert set(left) == set(NOT_DRAWN)


def test_every_maker_makes_something(rng) -> None:
    """Programs leave out what cannot be typed: a maker that never succeeded would not be missed."""
    for kind in sorted({make.__name__ for make in FunctionProgram(0).makers()}):
        for _ in range(DRAWS):
            made = FunctionProgram(int(rng.integers(1 << 31)))
            try:
                with patch.object(made, "parts", lambda _, m=made, kind=kind: _block_of(m, kind)):
                    mod = made.random_module()
            except DiagnosticError:
                continue
            if mod.graph_functions()["main"].body.blocks:
                break
        else:
            raise AssertionError(f"`{kind}` makes nothing")


def test_operands_are_computed_at_times(rng) -> None:
    """Those of a convolution, for example, which no value of the program fits: nothing could be
    fused with it else."""
    found: set[str] = set()
    for _ in range(DRAWS):
        made = TableProgram(int(rng.integers(1 << 31)))
        with patch.object(made, "drawn_call", partial(made.drawn_call, "nn.conv2d")):
            made.use()
        values: dict[graph.Expr, graph.Expr] = {b.var: b.value for b in made.bindings}
        for drawn in values.values():
            if isinstance(drawn, graph.Call) and drawn.op == graph.Op("nn.conv2d"):
                computed = (values[a] for a in drawn.args if a in values)
                found |= {c.op.name for c in computed
                          if isinstance(c, graph.Call) and isinstance(c.op, graph.Op)}  # fmt: skip
        if found == {"flip", "negative"}:
            return
    raise AssertionError(f"only by {sorted(found)}")


@pytest.mark.parametrize("name", sorted(RULES))
def test_drawn_calls_have_several_values_of_every_attribute(name, rng) -> None:
    attrs = [p.name for p in op_row(name).params if p.kind == "attr"]
    drawn: Attributes = Counter()
    for _ in range(DRAWS):
        made = TableProgram(int(rng.integers(1 << 31)))
        made.drawn_call(name)
        drawn += made.drawn
        if all(_values(drawn, name, a) > 1 for a in attrs) and drawn[name, "", ""]:
            return
    raise AssertionError(f"after {DRAWS} draws:\n{coverage(drawn)}")


def test_every_value_of_an_option_is_drawn(rng) -> None:
    """Of options that take one of some words, which the error for another word lists."""
    options: dict[tuple[str, str], set[str]] = {}
    drawn: Attributes = Counter()
    for name in sorted(RULES):
        attrs = [p.name for p in op_row(name).params if p.kind == "attr"]
        for _ in range(DRAWS):
            made = TableProgram(int(rng.integers(1 << 31)))
            call = made.drawn_call(name)
            drawn += made.drawn
            if call is None:
                continue
            for attr, value in call.attrs.items():
                if isinstance(value, str) and (name, attr) not in options:
                    options[name, attr] = _listed(call, attr)
            words = [(a, w) for (n, a), listed in options.items() if n == name for w in listed]
            known = all(_values(drawn, name, a) > 1 for a in attrs)
            if known and all(drawn[name, a, repr(w)] for a, w in words):
                break
    left = [(*option, w) for option, words in options.items() for w in words
            if not drawn[*option, repr(w)]]  # fmt: skip
    assert not left
    assert len(options["nn.pad", "pad_mode"]) == 4
    assert len([o for o, words in options.items() if words]) == 16


def _listed(call: graph.Call, attr: str) -> set[str]:
    other = graph.Call(call.op, call.args, call.attrs.with_(**{attr: "other"}), call.ty_args)
    try:
        type_of(other)
    except DiagnosticError as error:
        found = error.diagnostics[0]
        _, _, offered = f"{found.message} {found.suggestion}".partition("use ")
        return set(re.findall(r"[\"'](\w+)[\"']", offered))
    return set()


DRAWS = 2000
"""Draws per operator: a value that one call in twenty has is missed with probability 1e-44."""


def _values(drawn: Attributes, name: str, attr: str) -> int:
    return len({v for o, a, v in drawn if (o, a) == (name, attr)})


def _calls(mod: Module) -> list[str]:
    main = mod["main"]
    calls = (n for n in walk(main) if isinstance(n, graph.Call))
    return [c.op.name for c in calls if isinstance(c.op, graph.Op)]


def _accepted(mod: Module, args: tuple[object, ...]) -> bool:
    try:
        interpret(mod, "main", *args)
    except ExecutionError:
        return False
    return True


def test_parameters_kept_for_a_symbol_leave_no_other_undetermined() -> None:
    """This seed draws an operand k x (m * n) that is not read, and a call on k."""
    build(TableProgram(1933378690).random_module(), use_cache=False)


def test_a_failing_program_becomes_small(rng) -> None:
    """As if the operator called last failed: little else is left."""
    seed = int(rng.integers(1 << 31))
    while True:
        made = TableProgram(seed)
        mod = made.random_module()
        args = made.arguments(mod, rng)
        if len(_calls(mod)) > 3 and _accepted(mod, args):
            break
        seed += 1
    wanted = _calls(mod)[-1]

    def fails(m: Module, a: tuple[object, ...]) -> bool:
        return _accepted(m, a) and wanted in _calls(m)

    small, given = shrunk(mod, args, fails)
    assert wanted in _calls(small) and len(_calls(small)) <= 2
    main = small["main"]
    assert isinstance(main, graph.Function) and len(given) == len(main.params)
    read = {v for v in walk(main.body) if isinstance(v, graph.Var)}
    unread = [p.ty for p in main.params if p not in read]
    assert all(symbols_in(ty) for ty in unread) and len(unread) <= len(symbols_in(main))
    assert isinstance(interpret(small, "main", *given), np.ndarray | tuple)


def test_an_arm_that_fails_becomes_small() -> None:
    """It overwrites a value, so that the branch runs although nothing reads its results."""
    mod = normalize(
        parse("""
@T.prim_func
def bump(x: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("bump"):
            vi = T.axis.spatial(4, i)
            x[vi] = x[vi] + T.float32(1)

@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    y = R.exp(x)
    if c:
        a = R.negative(x)
        b = R.call_tir_inplace(cls.bump, (a,), inplace_indices=[0],
                               out_ty=R.Tensor((4,), "float32"))
        t = (b, R.tanh(b))
    else:
        t = (x, x)
    return y
""")
    )
    args = (np.array(True), np.ones(4, "float32"))
    small, given = shrunk(mod, args, lambda m, a: _accepted(m, a) and "tanh" in _calls(m))
    assert _calls(small) == ["tanh"] and len(given) == 1


def test_code_generation_may_refuse_random_schedules_for_one_reason_only() -> None:
    def refusing(reason: str) -> Callable[..., object]:
        def build_scheduled(mod: Module, pipeline: object, **options: object) -> object:
            if pipeline is not None:
                raise CodegenError(reason)
            return build(mod, **options)  # type: ignore[arg-type]

        return build_scheduled

    mod = TableProgram(3).random_module()
    for reason, refused in ((f"8 {COLLIDING} of 'C'", False), ("no LLVM row for Let", True)):
        with patch("relaxlab.testing.fuzz_program.build", refusing(reason)):
            made = Build(schedules=3)(mod)
        assert (made == f"CodegenError: {reason}") == refused == isinstance(made, str)


def test_an_arm_that_nothing_reads_becomes_small() -> None:
    """The claim in the other arm keeps the branch; outside it, what fails has to be read."""
    mod = normalize(
        parse("""
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    n = T.int64()
    y = R.exp(x)
    if c:
        a = R.negative(y)
        t = (R.tanh(a), a)
    else:
        z = R.match_cast(x, R.Tensor((n,), "float32"))
        t = (y, R.sin(y))
    return y
""")
    )
    args = (np.array(True), np.ones(4, "float32"))
    small, given = shrunk(mod, args, lambda m, a: _accepted(m, a) and "tanh" in _calls(m))
    assert _calls(small) == ["tanh"] and len(given) == 1


def test_results_of_references_are_in_c_order() -> None:
    """NumPy gives unique columns as a transposed view, which no program reads."""
    mod = parse("""
@R.function
def main(x: R.Tensor(("n", 3), "int8")):
    m = T.int64()
    y = R.unique(x, axis=1)
    z = R.match_cast(y, R.Tensor((n, m), "int8"))
    return z
""")
    x = np.array([[1, 0, 1], [2, 3, 2]], "int8")
    np.testing.assert_array_equal(build(mod)["main"](x), [[0, 1], [3, 2]])


def test_results_of_references_have_memory_of_their_own() -> None:
    """The memory of the operand is planned: it is dead after the call, and used again."""
    mod = normalize(
        parse("""
@R.function
def main(x: R.Tensor(("n", 3), "float32")):
    y = R.exp(x)
    z = R.memory.ensure_zero_offset(y)
    return R.exp(R.negative(x)), z
""")
    )
    x = np.arange(12, dtype="float32").reshape(4, 3)
    main = build(mod, use_cache=False)["main"]
    _, first = main(x)
    main(x + 1)
    np.testing.assert_allclose(first, np.exp(x), rtol=1e-5)


def test_declared_bounds_admit_the_sizes_of_drawn_calls() -> None:
    bounded = 0
    for seed in range(40):
        made = TableProgram(seed)
        bounds = made.random_module().graph_functions()["main"].attrs.get("tir_var_upper_bound", {})
        drawn = {s.name: n for s, n in made.draw.sizes.items()}
        assert all(n >= drawn.get(name, 0) for name, n in bounds.items()), seed
        bounded += bool(bounds)
    assert bounded


def test_tensors_of_arguments_stay_small(rng) -> None:
    """Whatever the sizes: a product of four symbols would not fit into memory. A tensor (33, m,
    100, 16), which the first seed draws, is small where m is 0 alone."""
    for seed in (1319190254, *rng.integers(1 << 31, size=40)):
        print(f"seed {seed}")
        made = TableProgram(int(seed))
        mod = made.random_module()
        for _ in range(4):
            try:
                args = made.arguments(mod, rng, again=True)
            except ExecutionError:  # a negative extent
                continue
            sizes = [a.size for a in args if isinstance(a, np.ndarray)]
            assert max(sizes, default=0) <= 4 * made.draw.most


def test_tensors_without_symbols_stay_small() -> None:
    """No size makes them smaller afterwards: the weights of a convolution, say."""
    draw = TableProgram(3).draw
    with pytest.raises(Refused):
        draw.new((5, draw.most), "float32")
    assert draw.inputs.keys() == {draw.new((4, draw.most), "float32")}


def test_squashed_sums_may_differ_by_the_roundings_of_their_terms(rng) -> None:
    """Sums of several hundred terms of either sign, taken one after the other."""
    mod = normalize(
        parse("""
@R.function
def main(x: R.Tensor((64, 400), "float32"), w: R.Tensor((400,), "float32")):
    with R.dataflow():
        y = R.matmul(x, w)
        z = R.tanh(y)
        R.output(z)
    return z
""")
    )
    x, w = (rng.uniform(-2, 2, s).astype("float32") for s in ((64, 400), (400,)))

    def one_by_one(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.tanh(np.cumsum(x * w, axis=1, dtype="float32")[:, -1])

    def without_a_term(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return one_by_one(x[:, 1:], w[1:])

    assert problem_of(mod, (x, w), {"main": one_by_one}) is None
    assert problem_of(mod, (x, w), {"main": without_a_term}) is not None


def test_roundings_of_loop_functions_are_allowed_for(rng) -> None:
    """Sums by hand, squashed: the tolerance is found with results moved by roundings."""
    mod = normalize(
        parse("""
@T.prim_func
def sums(x: T.Buffer((64, 400), "float32"), y: T.Buffer((64,), "float32")):
    for i, j in T.grid(64, 400):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, vj]

@R.function
def main(x: R.Tensor((64, 400), "float32")):
    y = R.call_tir(cls.sums, (x,), out_ty=R.Tensor((64,), "float32"))
    return R.tanh(y)
""")
    )
    x = rng.uniform(-2, 2, (64, 400)).astype("float32")

    assert problem_of(mod, (x,), {"main": lambda x: np.tanh(x.sum(1))}) is None
    assert problem_of(mod, (x,), {"main": lambda x: np.tanh(x.sum(1)) + 1}) is not None


def test_sums_of_terms_that_cancel_may_differ_by_their_roundings(rng) -> None:
    mod = normalize(
        parse("""
@R.function
def main(x: R.Tensor((60000,), "float32")):
    with R.dataflow():
        y = R.sum(x)
        R.output(y)
    return y
""")
    )
    x = rng.uniform(-2, 2, 60000).astype("float32")
    x[-1] -= np.float32(x.sum())

    def one_by_one(x: np.ndarray) -> np.ndarray:
        return np.cumsum(x, dtype="float32")[-1]

    assert problem_of(mod, (x,), {"main": one_by_one}) is None
    assert problem_of(mod, (x,), {"main": lambda x: one_by_one(x) + 1}) is not None


def test_sums_that_one_move_of_their_terms_leaves_as_they_are_may_differ() -> None:
    """Some sums hardly move when their terms are moved once: the tolerance averages several."""
    mod = normalize(
        parse("""
@R.function
def main(x: R.Tensor((12800,), "float32")):
    y = R.sum(x)
    return R.tanh(y)
""")
    )

    def one_by_one(x: np.ndarray) -> np.ndarray:
        return np.tanh(np.cumsum(x, dtype="float32")[-1])

    for seed in range(60):
        x = np.random.default_rng(seed).uniform(-2, 2, 12800).astype("float32")
        x[-1] -= np.float32(x.sum() - 0.5)
        assert problem_of(mod, (x,), {"main": one_by_one}) is None, seed
        assert problem_of(mod, (x,), {"main": lambda x: one_by_one(x) + 0.01}) is not None


def test_a_program_that_accepts_what_its_meaning_refuses_fails(rng) -> None:
    mod = normalize(
        parse("""
@R.function
def main(x: R.Tensor(("n",), "float32"), i: R.Tensor((3,), "int64")):
    with R.dataflow():
        y = R.take(x, i)
        R.output(y)
    return y
""")
    )
    args = np.zeros(0, "float32"), np.zeros(3, "int64")
    with pytest.raises(ExecutionError, match="take_shape"):
        problem_of(mod, args, build(mod))
    problem = problem_of(mod, args, {"main": lambda x, i: np.zeros(3, "float32")})
    assert problem is not None and problem.startswith("accepted, expected: in `main`")


def test_refusals_of_one_claim_agree() -> None:
    want = "in `main`: match_cast `v7`: dimension 0 of `v6` is 18, expected (n + 1) * 2 = 36"
    native = "dimension 0 of `v7` (match_cast in `main`) is 18, expected {} (n is found from p)"
    assert same_claim(native.format("(n + 1) * 2 = 36"), want)
    assert same_claim(native.format("36"), want)
    assert not same_claim(native.format("(n + 1) * 2 = 18"), want)
    assert not same_claim("argument `x` has dtype float32", want)
