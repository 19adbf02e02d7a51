"""`tvm.testing`: comparisons, and tests that run where there are the devices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from relaxlab.analysis.arith import prove_equal
from relaxlab.tvm import runtime


def _pytest() -> Any:
    """pytest, which programs that are no tests do without."""
    return import_module("pytest")


def assert_allclose(
    actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True
) -> None:
    """Raise AssertionError unless two arrays have one shape and, within tolerances, equal
    elements."""
    a, b = (np.asarray(runtime.unwrapped(x)) for x in (actual, desired))
    assert a.shape == b.shape, f"shapes {a.shape} and {b.shape}"
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, verbose=verbose)


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raise AssertionError unless two integer expressions are proved equal."""
    assert prove_equal(lhs, rhs), f"{lhs} and {rhs} are not known to be equal"


def enabled_targets() -> list[tuple[str, runtime.Device]]:
    """The targets whose devices are here, with these."""
    found = {"llvm": runtime.device("cpu", 0), "cuda": runtime.device("cuda", 0)}
    return [(target, device) for target, device in found.items() if device.exist]


def device_enabled(target: str) -> bool:
    """True if there is a device of a target."""
    return target.partition(" ")[0] in [name for name, _ in enabled_targets()]


def _requiring(*targets: str) -> Callable[..., Any]:
    def decorate(*functions: Any) -> Any:
        here = any(map(device_enabled, targets))
        mark = _pytest().mark.skipif(not here, reason=f"needs a device of {' or '.join(targets)}")
        return mark(functions[0]) if functions else mark

    return decorate


requires_llvm = _requiring("llvm")
requires_cuda = requires_gpu = uses_gpu = _requiring("cuda")


def parametrize_targets(*given: Any) -> Any:
    """Makes a test of each target, or of each of some, that takes `target` and `dev`."""
    chosen = None if len(given) == 1 and callable(given[0]) else given
    pairs = [(t, d) for t, d in enabled_targets() if chosen is None or t in chosen]
    mark = _pytest().mark.parametrize(("target", "dev"), pairs)
    return mark(given[0]) if chosen is None else mark


def parameter(*values: Any, ids: Any = None) -> Any:
    """A fixture that has each of the values in turn."""

    @_pytest().fixture(params=values, ids=ids)
    def value(request: Any) -> Any:
        return request.param

    return value


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """A fixture of pytest, made once in a module if `cache_return_value`."""
    make = _pytest().fixture(scope="module" if cache_return_value else "function")
    return make if func is None else make(func)


def main() -> None:
    """Run the tests of the file that calls this, with the options of the command, and end."""
    file = sys._getframe(1).f_globals["__file__"]
    sys.exit(_pytest().main([file, *sys.argv[1:]]))
