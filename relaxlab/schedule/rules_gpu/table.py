"""The list of rules for GPUs, in the order in which they are tried."""

from __future__ import annotations

from relaxlab.schedule.rules.base import Rule


def rules() -> tuple[tuple[str, Rule], ...]:
    """(name, rule), in the order in which they are tried."""
    from relaxlab.schedule.rules_gpu import (
        attention,
        dot_product,
        elementwise,
        fallback,
        hopper_matmul,
        matmul,
        nested,
        ragged,
        reductions,
        register_tiles,
        rows,
        tensor_matmul,
    )

    return (
        # Before all rules for loops of one length.
        ("ragged", ragged.apply),
        ("elementwise", elementwise.apply),
        ("attention", attention.apply),
        ("nested", nested.apply),
        ("dot_product", dot_product.apply),
        ("hopper_matmul", hopper_matmul.apply),
        ("tensor_matmul", tensor_matmul.apply),
        ("register_tiles", register_tiles.apply),
        ("matmul", matmul.apply),
        ("reductions", reductions.apply),
        ("rows", rows.apply),
        ("fallback", fallback.apply),
    )
