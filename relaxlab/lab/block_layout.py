"""The layout explorer: PQ-trees of a block's variables, reduction by reduction, and the order that
comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.batching.layout import BlockKernel, Layout, Order, block_layout, copied
from relaxlab.batching.pq_tree import Leaf, QNode, Tree, universal
from relaxlab.ir.errors import kind_of
from relaxlab.lab.view import View

REDUCED = "its variables are to be contiguous"
FOLLOWS = "the same lanes are contiguous in another operand"
FITS = "its variables are contiguous, in the right order, already"


def layout_view(subject: Layout | Sequence[BlockKernel]) -> View:
    """The way in which the variables of a block were put in order.

    subject: the kernels of a block, or what `block_layout` made of them. Raises GraphError as that.
    """
    listed = isinstance(subject, list | tuple)
    if not isinstance(subject, Layout) and not (
        listed and all(isinstance(k, BlockKernel) for k in subject)
    ):
        raise TypeError(
            "expected the kernels of a block, a list of rl.BlockKernel, or what rl.block_layout "
            f"made of them, got {kind_of(subject)}"
        )
    found = subject if isinstance(subject, Layout) else block_layout(subject)
    program = found.program_order
    state = {
        "names": list(found.names),
        "program": list(program), "order": list(found.order),
        "steps": list(_steps(found)),
        "kernels": [
            {
                "name": p.name,
                "operands": [
                    {
                        "name": o.name, "lanes": list(o.lanes), "bytes": o.bytes_of_all,
                        "before": o in copied(p, program), "after": o in copied(p, found.order),
                    }
                    for o in p.operands
                ],
            }
            for p in found.patterns
        ],
        "before": found.copied_bytes(program), "after": found.copied_bytes(found.order),
    }  # fmt: skip
    return View("block_layout", "Layout of a block", state, _text(found))


def _steps(found: Layout) -> list[dict[str, Any]]:
    """The trees in the order in which they came about, with the set that was made contiguous, and
    why; an operand that is copied ends with the tree before it. outcome: "copied", "follows" for a
    set that has to be contiguous because another one is, else ""."""
    tree = universal(range(len(found.names))) if found.names else Leaf(0)
    number = {pattern: i for i, pattern in enumerate(found.patterns)}
    steps: list[dict[str, Any]] = [_step(tree, [], None, None, "every order is possible", "")]
    for step in found.steps:
        of, operand = number[step.pattern], step.pattern.operands.index(step.operand)
        own = frozenset(step.operand.lanes)
        for wanted, after in step.trees:
            why, outcome = (REDUCED, "") if wanted == own else (FOLLOWS, "follows")
            steps.append(_step(after, sorted(wanted), of, operand, why, outcome))
        if step.refused:
            steps.append(_step(tree, sorted(own), of, operand, step.refused, "copied"))
        elif not step.trees:
            steps.append(_step(tree, sorted(own), of, operand, FITS, ""))
        else:
            tree = step.trees[-1][1]
    return steps


def _step(
    tree: Tree,
    wanted: list[int],
    pattern: int | None,
    operand: int | None,
    why: str,
    outcome: str,
) -> dict[str, Any]:
    return {
        "tree": _tree(tree), "wanted": wanted, "pattern": pattern, "operand": operand,
        "why": why, "outcome": outcome,
    }  # fmt: skip


def _tree(tree: Tree) -> Any:
    """A leaf's number, or ["P" or "Q", children]."""
    if isinstance(tree, Leaf):
        return tree.name
    return ["Q" if isinstance(tree, QNode) else "P", [_tree(child) for child in tree.children]]


def _text(found: Layout) -> str:
    """The view's text, for readers without a script."""

    def named(order: Order) -> str:
        return " ".join(found.names[variable] for variable in order)

    lines = [
        f"program order: {named(found.program_order)}",
        f"laid out:      {named(found.order)}",
        f"bytes copied per row: {found.copied_bytes(found.program_order)} in program order, "
        f"{found.copied_bytes(found.order)} laid out",
        "",
    ]
    for step in found.steps:
        outcome = f"copied: {step.refused}" if step.refused else "in place"
        lanes = named(step.operand.lanes)
        lines.append(f"{step.pattern.name}, {step.operand.name} ({lanes}): {outcome}")
    return "\n".join(lines)
