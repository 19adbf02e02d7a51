"""What calls do to memory, followed through branches."""

from __future__ import annotations

import numpy as np

import relaxlab as rl
from relaxlab.passes.effects import overwritten_vars


def nested(depth: int) -> str:
    """A function of `depth` branches inside each other, the innermost exp."""
    lines = [
        "from relaxlab.script import relax as R",
        "@R.function",
        "def main(x: R.Tensor((3,), 'float32'), c: R.Tensor((), 'bool')):",
    ]
    lines += ["    " * i + "if c:" for i in range(1, depth + 1)]
    lines.append("    " * (depth + 1) + "y = R.exp(x)")
    for i in range(depth, 0, -1):
        lines += ["    " * i + "else:", "    " * (i + 1) + "y = x"]
    return "\n".join([*lines, "    return y"])


def test_the_work_does_not_double_with_each_branch() -> None:
    mod = rl.parse(nested(40))  # were it to double, this would not end
    assert overwritten_vars(mod["main"], mod) == set()  # type: ignore[arg-type]
    x = np.zeros(3, "float32")
    main = rl.compile(mod, use_cache=False)["main"]
    assert main(x, np.array(True)).tolist() == [1, 1, 1]
    assert main(x, np.array(False)).tolist() == [0, 0, 0]
