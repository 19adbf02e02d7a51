"""Cost models: predictions of how fast a scheduled kernel is, before it is built.

A program is described by `FEATURES`, which are read off its loops. The analytic model adds up
cycles from them; the learned one adds what it finds from measurements that the analytic one
misses, by gradient boosted trees, as AutoTVM and Ansor use them (Chen et al., *Learning to Optimize
Tensor Programs*; Zheng et al., *Ansor*, section 5.2).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, TypeAlias

import numpy as np

from relaxlab.ir.errors import UserError
from relaxlab.tuning.features import FEATURES

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
FEWEST_TRIALS = 8
"""Trials from which on there is something to learn."""
ROUNDS = 40
"""Trees."""
TREES: dict[str, Any] = {
    "objective": "regression", "num_leaves": 7, "min_data_in_leaf": 3, "learning_rate": 0.15,
    "num_threads": 1, "seed": 0, "deterministic": True, "verbose": -1,
}  # fmt: skip
"""Small ones: a search has dozens of trials, not thousands."""


class CostModel(Protocol):
    """Predicts how many times as fast as the default programs are."""

    def update(self, features: Array, ratios: Array) -> None:
        """Learn from measurements: a row of `FEATURES` for each program, and its ratio."""
        ...

    def predict(self, features: Array) -> Array:
        """The ratios of programs, by their rows of features."""
        ...


class Analytic:
    """The model without data: cycles by the numbers of a core, scaled so that the ratios that were
    measured are met on the average."""

    def __init__(self) -> None:
        self._offset = 0.0

    def update(self, features: Array, ratios: Array) -> None:
        """See `CostModel`."""
        self._offset = float(np.mean(np.log(ratios) + features[:, CYCLES]))

    def predict(self, features: Array) -> Array:
        """See `CostModel`."""
        return np.exp(self._offset - features[:, CYCLES])


CYCLES = FEATURES.index("cycles")


class LightGBMNotFound(UserError, ImportError):
    """LightGBM, which learns a cost model, is not installed."""


class Learned:
    """The analytic model with a correction that LightGBM learns. Raises LightGBMNotFound."""

    def __init__(self) -> None:
        try:
            self._lightgbm: Any = import_module("lightgbm")
        except ImportError:
            raise LightGBMNotFound(
                "the search 'evolution' learns a cost model with LightGBM: "
                "pip install 'relaxlab[tune]'"
            ) from None
        self._analytic = Analytic()
        self._trees: Any = None

    def update(self, features: Array, ratios: Array) -> None:
        """See `CostModel`."""
        self._analytic.update(features, ratios)
        if len(ratios) < FEWEST_TRIALS:
            return
        missed = np.log(ratios) - np.log(self._analytic.predict(features))
        data = self._lightgbm.Dataset(features, missed, params={"verbose": -1})
        self._trees = self._lightgbm.train(TREES, data, ROUNDS)

    def predict(self, features: Array) -> Array:
        """See `CostModel`."""
        found = self._analytic.predict(features)
        return found if self._trees is None else found * np.exp(self._trees.predict(features))
