"""Reshapes between operators that could be one kernel."""

from __future__ import annotations

import random
import re

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.passes.base import Pipeline
from relaxlab.passes.move_reshapes import move_reshapes
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import check_module, check_pass, compare_runs


@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor(("b", "n", 6), "float32"),
        y: R.Tensor(("b * n", 4), "float32"),
        w: R.Tensor((6, 4), "float32"),
        bias: R.Tensor((6,), "float32"),
    ):
        with R.dataflow():
            p = R.reshape(R.linear(y, w), (b, n, 6))  # noqa: F821
            q = R.add(p, bias)
            s = R.add(x, q)
            t = R.multiply(s, R.const(2.0, "float32"))
            u = R.reshape(t, (b * n, 6))  # noqa: F821
            v = R.sum(u, axis=1)
            R.output(s, v)
        return (s, v)


def test_elementwise_operators_before_and_after() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("b", "n", 6), "float32"),
            y: R.Tensor(("b * n", 4), "float32"),
            w: R.Tensor((6, 4), "float32"),
            bias: R.Tensor((6,), "float32"),
        ):
            with R.dataflow():
                y1 = R.linear(y, w)
                p = R.reshape(y1, (b, n, 6))  # noqa: F821
                q1 = R.add(y1, bias)
                q = R.reshape(q1, (b, n, 6))  # noqa: F821
                x1 = R.reshape(x, (b * n, 6))  # noqa: F821
                s1 = R.add(x1, q1)
                s = R.reshape(s1, (b, n, 6))  # noqa: F821
                t1 = R.multiply(s1, R.const(2.0, "float32"))
                t = R.reshape(t1, (b, n, 6))  # noqa: F821
                u = t1
                v = R.sum(u, axis=1)
                R.output(s, v)
            return (s, v)

    check_pass(move_reshapes, Layer, Expected)


def test_the_product_and_what_follows_are_one_kernel() -> None:
    moved = cpu_pipeline().before("legalize_ops", move_reshapes)
    before, after = (set(p.run(Layer).result.loop_functions()) for p in (cpu_pipeline(), moved))
    assert "linear" in before and "linear" not in after
    assert any(n.startswith("fused_linear_add_add") for n in after)


def test_operators_that_stay_and_reasons() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 6), "float32"),
            w: R.Tensor((6, 6), "float32"),
            column: R.Tensor((2, 1), "float32"),
        ):
            with R.dataflow():
                y = R.linear(x, w)
                z = R.reshape(y, (n, 2, 3))  # noqa: F821
                a = R.multiply(z, column)
                # The last of the operands is not reshaped.
                first = R.reshape(R.matmul(x, w), (n, 6, 1))  # noqa: F821
                e = R.add(first, R.cumsum(first, axis=0))
                R.output(a, e)
            return (a, e)

    start = normalize(Before)
    (record,) = Pipeline((move_reshapes,)).run(start).passes
    assert record.after is start
    assert [(w.subject, w.reason) for w in record.remarks] == [
        ("main.a", "an operand is broadcast in another way than `z` is reshaped")
    ]


# --- Random programs --------------------------------------------------------------------------

FORMS = {"(n, 12)": 12, "(n, 3, 4)": 4, "(n, 2, 6)": 6, "(n * 2, 6)": 6, "(n * 3, 4)": 4,
         "(1, n, 12)": 12}  # fmt: skip
"""Shapes of as many elements, and their last dimensions."""


def random_program(seed: int) -> Module:
    """Products, elementwise operators and reshapes."""
    rng = random.Random(seed)
    values = [(f"x{i}", form) for i, form in enumerate(FORMS)]
    lines: list[str] = []
    for i in range(16):
        x, form = values[-1] if rng.random() < 0.6 else rng.choice(values)
        last, to = FORMS[form], rng.choice(list(FORMS))
        same = rng.choice([v for v, other in values if other == form])
        choices = {
            f"R.nn.relu({x})": form,
            f"R.add({x}, {same})": form,
            f"R.multiply({same}, {x})": form,
            f"R.add({x}, b{last})": form,
            f'R.multiply({x}, R.const(0.5, "float32"))': form,
            f"R.linear({x}, w{last})": form,
            f"R.reshape({x}, {to})": to,
        }
        # Every second is a reshape.
        value = rng.choice([*choices, *[f"R.reshape({x}, {to})"] * 6])
        lines.append(f"v{i} = {value}")
        values.append((f"v{i}", choices[value]))
    params = [f'{v}: R.Tensor({_quoted(form)}, "float32")' for v, form in values[: len(FORMS)]]
    params += [f'w{k}: R.Tensor(({k}, {k}), "float32"), b{k}: R.Tensor(({k},), "float32")'
               for k in (4, 6, 12)]  # fmt: skip
    result = values[-1][0]
    body = "\n        ".join([*lines, f"R.output({result})"])
    return rl.parse(f"""
@R.function
def main({", ".join(params)}):
    with R.dataflow():
        {body}
    return {result}
""")


def _quoted(form: str) -> str:
    """A shape whose symbols are given as text, as a parameter's."""
    return re.sub(r"n( \* \d)?", lambda found: f'"{found[0]}"', form)


def test_random_programs() -> None:
    changed = 0
    for seed in range(40):
        start = normalize(random_program(seed))
        after = move_reshapes(start)
        changed += after is not start
        check_module(move_reshapes, start, after)
        compare_runs(start, after, seed=seed, sizes=(1, 2, 5), runs=2)
    assert changed > 20
