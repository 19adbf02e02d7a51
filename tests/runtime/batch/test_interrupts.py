"""Ctrl-C in the middle of a batch leaves a program that goes on computing what it should."""

import sys

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.batch.recorder import FIRST_ROOM

LISTS = """
@I.ir_module
class Lists:
    @R.data
    class List:
        Nil: ()
        Cons: (R.Tensor((), "int64"), R.Tensor((1, 4), "float32"), "List")

    @R.function(private=True)
    def build(
        n: R.Tensor((), "int64"), x: R.Tensor((1, 4), "float32"), xs: List,
        w: R.Tensor((4,), "float32"),
    ) -> List:
        if %s:
            less = R.subtract(n, R.const(1, "int64"))
            out = cls.build(less, R.add(x, w), cls.Cons(n, x, xs), w)
        else:
            out = xs
        return out

    @R.function
    def main(
        n: R.Tensor((), "int64"), x: R.Tensor((1, 4), "float32"), xs: List,
        w: R.Tensor((4,), "float32"),
    ) -> List:
        R.func_attr({"num_input": 3})
        out = cls.build(n, x, xs, w)
        return out
"""
CONDITIONS = {
    "integers": 'R.greater(n, R.const(0, "int64"))',
    "tensors": 'R.less(R.sum(x), R.const(4.0) * R.astype(n, "float32") + R.sum(x))',
}
"""Conditions that hold as long as `n` is above zero; instances wait for the second."""


class Interrupted:
    """Raises KeyboardInterrupt at a call or return, which is where Python looks for signals: the
    `at`-th of those in the files of relaxlab's run time."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def __call__(self, frame, event, arg):
        if "relaxlab/runtime" in frame.f_code.co_filename:
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt

    def run(self, body):
        """True if `body` was interrupted."""
        sys.setprofile(self)
        try:
            body()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


def renewed(exe, weights):
    """The function of a program with as little room as at first."""
    recorder = exe._recorder
    logs = tuple(np.empty((FIRST_ROOM, width), np.int64) for width in recorder.widths)
    recorder._hold_empty(logs, np.empty(FIRST_ROOM, np.int64))
    exe._entry = None
    return exe["main"].bind(*weights)


def listed(mod, *numbers):
    nil, cons = (rl.constructors(mod)[name] for name in ("Nil", "Cons"))
    made = nil()
    for n in numbers:
        made = cons(n, np.full((1, 4), n, np.float32), made)
    return made


def check(main, instances):
    for (n, x, xs), found in zip(instances, main.batch(instances), strict=True):
        for k in range(n):
            assert found.constructor == "Cons" and found.fields[0] == k + 1
            np.testing.assert_array_equal(found.fields[1], x + n - k - 1)
            found = found.fields[2]
        while xs.constructor == "Cons":
            assert found.fields[0] == xs.fields[0]
            found, xs = found.fields[2], xs.fields[2]
        assert found.constructor == "Nil"


@pytest.mark.parametrize("kind", CONDITIONS)
def test_a_batch_is_interrupted_anywhere(rng, kind):
    mod = rl.parse(LISTS % CONDITIONS[kind])
    exe = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)
    x, weights = np.zeros((1, 4), np.float32), (np.ones(4, np.float32),)
    small = [(2, x, listed(mod, 5)), (1, x, listed(mod))]
    large = [(300, x, listed(mod, *range(400))) for _ in range(3)]
    whole = Interrupted(-1)
    main = renewed(exe, weights)
    whole.run(lambda: main.batch(large))
    print("calls and returns:", whole.count)
    for at in rng.integers(1, whole.count, 20).tolist():
        main = renewed(exe, weights)
        check(main, small)
        Interrupted(at).run(lambda main=main: main.batch(large))
        check(main, small)
        check(main, large)
        check(main, small)
