"""Events of deduction: questions to the prover, unifications, checks, lost shapes."""

from __future__ import annotations

from textwrap import dedent

import relaxlab as rl
from relaxlab.analysis.annotate import annotate
from relaxlab.tracing.deduction import (
    Asked,
    Checked,
    Deduced,
    Lost,
    Matched,
    Unified,
    deduction_events,
    emit,
)

PROGRAM = dedent("""
    @I.ir_module
    class Module:
        @R.function
        def half(x: R.Tensor(("2 * k", 4), "float32")) -> R.Tensor(("k", 4), "float32"):
            y: R.Tensor((k, 4), "float32") = R.strided_slice(
                x, axes=[0], begin=[0], end=[k])
            return y

        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor(("m", 8), "float32")):
            a = R.concat((x, x), axis=0)
            b = Module.half(a)
            c = R.matmul(b, w)
            d = R.add(R.sum(x, axis=1), R.sum(w, axis=1))
            return (c, d)
    """)


def deduced() -> dict[tuple[str, str], list]:
    """The events by function and variable."""
    mod = rl.parse(PROGRAM)  # which deduces types, too
    with deduction_events() as found:
        annotate(mod)
    by_binding: dict[tuple[str, str], list] = {}
    pending: list = []
    for event in found:
        pending.append(event)
        if isinstance(event, Deduced):
            name = "return" if event.var is None else event.var.name
            by_binding[event.function, name] = pending
            pending = []
    assert not pending
    return by_binding


def of_kind(found: list, kind: type) -> list:
    return [f for f in found if isinstance(f, kind)]


def test_unification_across_functions():
    found = deduced()["main", "b"]
    (unified,) = of_kind(found, Unified)
    assert (unified.symbol.name, str(unified.value)) == ("k", "n")
    assert unified.place == "dimension 0 of argument `a`"
    matched = of_kind(found, Matched)
    assert [m.answer for m in matched] == [True, True]
    assert (str(matched[0].declared), str(matched[0].expected)) == ("2 * k", "2 * n")


def test_questions_and_checks():
    found = deduced()
    inner = found["main", "c"]
    assert ("4 == m", None) in {(str(f.condition), f.answer) for f in of_kind(inner, Asked)}
    checked = [f for binding in found.values() for f in of_kind(binding, Checked)]
    assert any("contracted dimensions" in f.claim for f in checked)


def test_losses_have_a_remedy():
    (lost,) = of_kind(deduced()["main", "d"], Lost)
    assert lost.reason == "whether n equals m is not known"
    assert lost.remedy == 'd = R.match_cast(d, R.Tensor(("n",), "float32"))'


def test_no_events_without_a_recorder():
    emit(Checked("a", "b"))
    with deduction_events() as found:
        pass
    assert found == []


def test_results_lose_what_is_found_inside():
    """A symbol of a match_cast means nothing to callers: the function says so, and what they can
    write works."""
    program = dedent("""
        @I.ir_module
        class Module:
            @R.function
            def few(x: R.Tensor(("n",), "float32")):
                k = T.int64()
                y = R.match_cast(R.unique(x), R.Tensor((k,), "float32"))
                return y

            @R.function
            def main(x: R.Tensor(("n",), "float32")):
                value = Module.few(x)
                return value
        """)
    mod = rl.parse(program)
    with deduction_events() as found:
        annotate(mod)
    (lost,) = [f for f in of_kind(found, Lost) if f.source.startswith("the result")]
    assert lost.reason == "callers do not know k, found inside few"
    assert lost.remedy == 'value = R.match_cast(value, R.Tensor(("k",), "float32"))'
    line = "        value = Module.few(x)\n"
    fixed = program.replace(line, line + f"        {lost.remedy}\n")
    mod = rl.parse(fixed)
    with deduction_events() as found:
        _, problems = annotate(mod)
    assert not problems
    assert "R.Tensor((k,), 'float32')" in {str(f.ty) for f in of_kind(found, Deduced)}
