"""Tiles of matrices in the registers of the lanes of a warp, as PTX lays them out for `ldmatrix`
and `mma.sync`. Arrays are by warp, lane and register."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.runtime.arrays import Array

_LANE = np.arange(32)[:, None]
_GROUP, _PAIR = _LANE // 4, _LANE % 4 * 2
_N = np.arange(8)
_LEFT = _GROUP + _N // 2 % 2 * 8, _PAIR + _N % 2 + _N // 4 * 8
_RIGHT = _PAIR + _N[:4] % 2 + _N[:4] // 2 * 8, _GROUP + 0 * _N[:4]
_SUMS = _GROUP + _N[:4] // 2 * 8, _PAIR + _N[:4] % 2
"""The rows and columns of the registers of each lane."""


def loaded(rows: Array, trans: bool) -> Array:
    """The registers of lanes that load four 8 x 8 matrices, of which each gives a row; with `trans`
    of the transposed ones."""
    matrices = rows.reshape(-1, 4, 8, 8)
    if trans:
        matrices = matrices.swapaxes(2, 3)
    # Lane l has elements 2 * (l % 4) and the next one of row l // 4.
    return matrices.reshape(-1, 4, 32, 2).swapaxes(1, 2).reshape(-1, 8)


def multiplied(sums: Array, left: Array, right: Array) -> Array:
    """The registers of 16 x 8 sums in float32, plus a 16 x 8 x 16 product."""

    def tile(values: Array, at: tuple[Any, Any], shape: tuple[int, int]) -> Array:
        whole = np.zeros((len(values), *shape), np.float32)
        whole[:, at[0], at[1]] = values.astype(np.float32)
        return whole

    product = tile(left, _LEFT, (16, 16)) @ tile(right, _RIGHT, (16, 8))
    total = tile(sums, _SUMS, (16, 8)) + product
    return total[:, _SUMS[0], _SUMS[1]].reshape(-1, 4)
