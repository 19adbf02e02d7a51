"""Arrays of other libraries as arguments and results."""

from __future__ import annotations

from typing import Any

import numpy as np

import relaxlab as rl
from relaxlab.runtime.interchange import handed_over, viewed
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


class Foreign:
    """An array of a library that has an array namespace and speaks DLPack."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return type(self)

    @staticmethod
    def from_dlpack(value: Any) -> Foreign:
        return Foreign(np.from_dlpack(value))


class Unknown(Foreign):
    """One of a library that takes no arrays."""

    __array_namespace__ = None  # type: ignore[assignment]


@I.ir_module
class Program:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tuple(
        R.Tensor(("n",), "float32"), R.Tensor(("n",), "float32"), R.Shape(["n"])
    ):
        n = T.int64()
        z = R.add(x, y)
        return (z, x, R.shape([n]))


def test_dtypes_of_ml_dtypes_go_in_and_out() -> None:
    """NumPy's DLPack knows none of them; DLPack has numbers for these."""
    text = """
@R.function
def main(x: R.Tensor(("n",), "{}")):
    return R.add(x, x)
"""

    class Other(Foreign):
        """A library that keeps what it is given."""

        @staticmethod
        def from_dlpack(value: Any) -> Other:
            return Other(value)

    for name in ("bfloat16", "float16"):
        x = np.arange(5).astype(name)
        exe = rl.compile(rl.parse(text.format(name)))
        once = exe(x)
        result = exe(Other(handed_over(x, lambda v: v)))
        assert isinstance(result, Other)
        back = viewed(result)
        assert back.dtype == once.dtype == x.dtype
        np.testing.assert_array_equal(back, x + x)
        assert viewed(Other(handed_over(back, lambda v: v))).ctypes.data == back.ctypes.data


def test_results_are_of_the_library_of_the_arguments() -> None:
    x, y = (np.arange(3, dtype="float32") + i for i in range(2))
    for exe in (rl.compile(Program), rl.compile(Program, "interpreter")):
        total, same, shape = exe["main"](x, Foreign(y))
        assert isinstance(total, Foreign) and isinstance(same, Foreign) and shape == (3,)
        np.testing.assert_array_equal(total.data, x + y)
        assert isinstance(exe["main"](x, y)[0], np.ndarray)
        assert isinstance(exe["main"](x, Unknown(y))[0], np.ndarray)


def test_memory_is_not_copied() -> None:
    x = Foreign(np.arange(3, dtype="float32"))
    assert np.shares_memory(rl.compile(Program)["main"](x, x)[1].data, x.data)
