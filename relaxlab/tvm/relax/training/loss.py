"""Losses: `MSELoss("sum")(predictions, targets)` is the graph function of one, of variables or
types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.ir import graph
from relaxlab.ops.block_builder import BlockBuilder
from relaxlab.ops.define import builder as op
from relaxlab.script.type_values import as_type

REDUCTIONS = ("mean", "sum", "none")


class Loss:
    """Base of the losses. `reduction`: "mean" or "sum" of those of the single predictions, or
    "none"; another raises ValueError."""

    def __init__(self, loss_name: str, num_backbone_outputs: int, reduction: str = "mean") -> None:
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction {reduction!r}; known: {', '.join(REDUCTIONS)}")
        self._loss_name, self._reduction = loss_name, reduction
        self._num_backbone_outputs = num_backbone_outputs

    @property
    def num_backbone_outputs(self) -> int:
        """The number of the results of a model that the loss takes."""
        return self._num_backbone_outputs

    def _with_reduction(self, expr: graph.Expr) -> graph.Expr:
        return expr if self._reduction == "none" else op(self._reduction)(expr)

    def _function(
        self, given: dict[str, Any], compute: Callable[..., graph.Expr]
    ) -> graph.Function:
        """The function of what `compute(builder, *parameters)` returns. What is None in `given` is
        no parameter."""
        params = {k: _parameter(k, v) if v is not None else None for k, v in given.items()}
        bb = BlockBuilder()
        with bb.function(self._loss_name, [p for p in params.values() if p is not None]):
            with bb.dataflow():
                out = bb.emit_output(compute(bb, *params.values()))
            bb.emit_func_output(out)
        made = bb.get()[self._loss_name]
        assert isinstance(made, graph.Function)
        return made


def _parameter(name: str, given: Any) -> graph.Var:
    if isinstance(given, graph.Var):
        return graph.Var(given.name, given.ty)
    return graph.Var(name, as_type(given))


class L1Loss(Loss):
    """The absolute difference."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("l1_loss", 1, reduction)

    def __call__(self, predictions: Any, targets: Any) -> graph.Function:
        def compute(bb: BlockBuilder, x: graph.Expr, y: graph.Expr) -> graph.Expr:
            return self._with_reduction(op("abs")(op("subtract")(x, y)))

        return self._function({"predictions": predictions, "targets": targets}, compute)


class MSELoss(Loss):
    """The square of the difference."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("mse_loss", 1, reduction)

    def __call__(self, predictions: Any, targets: Any) -> graph.Function:
        def compute(bb: BlockBuilder, x: graph.Expr, y: graph.Expr) -> graph.Expr:
            difference = bb.emit(op("subtract")(x, y))
            return self._with_reduction(op("multiply")(difference, difference))

        return self._function({"predictions": predictions, "targets": targets}, compute)


class CrossEntropyLoss(Loss):
    """The negative logarithm of the probability of the target, a number of a class, where the
    predictions are logits; targets of `ignore_index` do not count."""

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(self, predictions: Any, targets: Any, weights: Any = None) -> graph.Function:
        def compute(
            bb: BlockBuilder, x: graph.Expr, y: graph.Expr, w: graph.Expr | None
        ) -> graph.Expr:
            return self._of_classes(bb.emit(op("nn.log_softmax")(x)), y, w)

        given = {"predictions": predictions, "targets": targets, "weights": weights}
        return self._function(given, compute)

    def _of_classes(self, logs: graph.Expr, y: graph.Expr, w: graph.Expr | None) -> graph.Expr:
        """The loss of logarithms of probabilities, with targets that are numbers of classes."""
        given = (logs, y) if w is None else (logs, y, w)
        return op("nn.nll_loss")(*given, reduction=self._reduction, ignore_index=self.ignore_index)


class CategoricalCrossEntropyLoss(CrossEntropyLoss):
    """Cross entropy of targets that are one-hot vectors of integers."""

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction, ignore_index)
        self._loss_name = "categorical_cross_entropy_loss"

    def __call__(self, predictions: Any, targets: Any, weights: Any = None) -> graph.Function:
        dtype = str(_parameter("targets", targets).ty.dtype)  # type: ignore[union-attr]
        if "int" not in dtype:
            raise TypeError(f"targets are one-hot vectors of integers, not of {dtype}")

        def compute(
            bb: BlockBuilder, x: graph.Expr, y: graph.Expr, w: graph.Expr | None
        ) -> graph.Expr:
            logs = bb.emit(op("nn.log_softmax")(x))
            if self.ignore_index >= 0:
                rows = y.ty.shape[:1]  # type: ignore[attr-defined]
                classes = op("reshape")(op("argmax")(y, axis=1), graph.ShapeExpr(rows))
                return self._of_classes(logs, bb.emit(classes), w)
            product = op("multiply")(op("negative")(logs), op("astype")(y, "float32"))
            product = bb.emit(product)
            if w is not None:
                product = bb.emit(op("multiply")(product, w))
            return self._with_reduction(product)

        given = {"predictions": predictions, "targets": targets, "weights": weights}
        return self._function(given, compute)
