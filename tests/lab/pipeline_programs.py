"""Programs for the views of pipelines and of code."""

from __future__ import annotations

import relaxlab as rl
from relaxlab.ir.module import Module

DENSE = """\
from relaxlab.script import ir as I, relax as R, tir as T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 128), "float32"), w: R.Tensor((128, 64), "float32"),
             b: R.Tensor((64,), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.add(y, b)
            r = R.nn.relu(z)
            s = R.nn.softmax(r, axis=-1)
            R.output(s)
        return s
"""

WRONG = """\
from relaxlab.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        y = R.matmul(x, z)
        return R.nosuch(y)
"""

HOSTILE = "</script><img src=x onerror='window.bad=1'>\"&amp;"


def dense() -> Module:
    """A product, a bias, relu and softmax, with a symbolic number of rows."""
    return rl.parse(DENSE)


def chain(calls: int) -> Module:
    """Return a graph function of that many calls, one after the other."""
    lines = [
        "from relaxlab.script import ir as I, relax as R, tir as T", "", "", "@I.ir_module",
        "class Module:", "    @R.function",
        '    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):',
        "        with R.dataflow():", "            v0 = R.matmul(x, w)",
    ]  # fmt: skip
    for i in range(1, calls):  # few different ones, as in the layers of a model
        call = ("R.matmul(v{}, w)", "R.nn.relu(v{})", "R.nn.softmax(v{}, axis=-1)")[i % 3]
        lines.append(f"            v{i} = {call.format(i - 1)}")
    lines += [f"            R.output(v{calls - 1})", f"        return v{calls - 1}"]
    return rl.parse("\n".join(lines) + "\n")
