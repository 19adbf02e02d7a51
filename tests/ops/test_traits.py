"""The traits of operators' rows hold for what their references compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxlab.ir.op_table import has_trait, op_names, op_row
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import OpCase, random_call

CASES = [case for family in FAMILIES.values() for case in family()]


def of_trait(trait: str) -> list[Any]:
    cases = [c for c in CASES if trait in op_row(c.op).traits]
    return [pytest.param(c, id=f"{i}-{c.op}") for i, c in enumerate(cases)]


def computed(case: OpCase, args: list[Any]) -> list[np.ndarray]:
    reference = op_row(case.op).reference
    assert reference is not None
    with np.errstate(all="ignore"):
        result = reference(*args, **dict(case.attrs or {}))
    return [np.asarray(a) for a in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("case", of_trait("view"))
def test_views_keep_the_elements_in_their_order(case: OpCase) -> None:
    args = random_call(case, case.sizes[0], 1)
    (result,) = computed(case, args)
    np.testing.assert_array_equal(result.ravel(), args[0].ravel())
    assert {"free", "rounds_once"} <= op_row(case.op).traits


@pytest.mark.parametrize("case", of_trait("reduction"))
def test_reductions_do_not_see_the_order_of_elements(case: OpCase) -> None:
    args = random_call(case, case.sizes[0], 1)
    axis = dict(case.attrs or {}).get("axis")
    (result,), (other,) = computed(case, args), computed(case, [np.flip(args[0], axis)])
    np.testing.assert_allclose(result.astype(float), other.astype(float), 1e-2, 1e-2)


@pytest.mark.parametrize("case", of_trait("elementwise"))
def test_elementwise_operators_do_not_see_the_order_of_axes(case: OpCase) -> None:
    args = random_call(case, case.sizes[0], 1)
    rank = max((np.ndim(a) for a in args), default=0)

    def turned(a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return a
        wide = a.reshape((1,) * (rank - a.ndim) + a.shape)
        return np.ascontiguousarray(wide.transpose())

    results = computed(case, args)
    for got, want in zip(computed(case, list(map(turned, args))), results, strict=True):
        np.testing.assert_array_equal(got, want.transpose())


def test_every_trait_was_checked() -> None:
    for trait in ("view", "elementwise"):
        unchecked = {n for n in op_names() if has_trait(n, trait)} - {c.op for c in CASES}
        assert not unchecked
