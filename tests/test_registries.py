"""Tests do not see what other tests registered."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.passes.libraries import register_library
from relaxlab.passes.patterns import wildcard
from relaxlab.runtime.interpreter.interpreter import register_intrinsic_meaning


@pytest.mark.parametrize("turn", range(2))
def test_a_name_is_free_again_after_a_test(turn: int) -> None:
    """Each refuses a name that is taken."""
    rl.register_func("test.same", lambda x: x)
    register_intrinsic_meaning("test.same", lambda dtype, x: x)
    register_library("test.same", wildcard(), lambda call, match: call)
