"""A loop function as rows of text: loops, blocks with their axes and regions, statements; and the
changes between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from relaxlab.ir import loops
from relaxlab.ir.brief import cut
from relaxlab.ir.expr import IntImm, PrimExpr, Var, format_expr
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.tree import TRUE, child_stmts

LONGEST = 160
"""Characters of a row."""

_LETTERS = {"spatial": "S", "reduce": "R", "scan": "scan", "opaque": "opaque"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the tree. `kind` is for, block, axis, reads, writes, alloc, view, init, store or
    other; `axes` says, of a loop, what it runs over: S (spatial), R (reduce), both or nothing;
    `how` how a loop's iterations run, where that is not one after the other."""

    depth: int
    kind: str
    text: str
    axes: tuple[str, ...] = ()
    how: str = ""

    def state(self) -> list[Any]:
        """The row as JSON has it."""
        return [self.depth, self.kind, self.text, "/".join(self.axes), self.how]


@dataclass(slots=True)
class Tree:
    """The rows of a function, and the row of each statement: by its identity, and for the
    initialisations of blocks by the block's name."""

    rows: list[Row] = field(default_factory=list[Row])
    row_of: dict[int, int] = field(default_factory=dict[int, int])
    init_of: dict[str, int] = field(default_factory=dict[str, int])

    def put(self, depth: int, kind: str, text: str, **facts: Any) -> int:
        """Add a row; its number."""
        self.rows.append(Row(depth, kind, cut(text, LONGEST), **facts))
        return len(self.rows) - 1


def tree_of(func: loops.PrimFunc) -> Tree:
    """The rows of a loop function."""
    tree = Tree()
    _add(tree, func.body, 0, _kinds(func.body))
    return tree


def _kinds(root: loops.Stmt) -> dict[Var, set[str]]:
    """Return the kinds of the block axes that each loop variable contributes to."""
    found: dict[Var, set[str]] = {}

    def visit(s: loops.Stmt, means: Mapping[Var, frozenset[Var]]) -> None:
        if isinstance(s, loops.BlockRealize):
            inner = dict(means)
            for axis, value in zip(s.block.iter_vars, s.iter_values, strict=True):
                over = [means.get(v, frozenset([v])) for v in symbols_in(value)]
                inner[axis.var] = frozenset[Var]().union(*over)
                for v in inner[axis.var]:
                    found.setdefault(v, set()).add(_LETTERS[axis.kind])
            means = inner
        for child in child_stmts(s):
            visit(child, means)

    visit(root, {})
    return found


def _add(tree: Tree, s: loops.Stmt, depth: int, kinds: Mapping[Var, set[str]]) -> None:
    """Add the rows of a statement."""
    match s:
        case loops.SeqStmt(stmts):
            for one in stmts:
                _add(tree, one, depth, kinds)
            return
        case loops.BlockRealize():
            tree.row_of[id(s)] = len(tree.rows)
            _add_block(tree, s, depth, kinds)
            return
        case loops.For(var):
            axes = tuple(sorted(kinds.get(var, ()), reverse=True))
            how = s.thread or ("" if s.kind == "serial" else s.kind)
            row = tree.put(depth, "for", _for_text(s), axes=axes, how=how)
        case loops.BufferStore(buffer, value, indices):
            place = f"{buffer.name}[{_list(indices)}]"
            row = tree.put(depth, "store", f"{place} = {format_expr(value)}")
        case loops.IfThenElse(condition, then_case, else_case):
            tree.row_of[id(s)] = tree.put(depth, "other", f"if {format_expr(condition)}")
            _add(tree, then_case, depth + 1, kinds)
            if else_case is not None:
                tree.put(depth, "other", "else")
                _add(tree, else_case, depth + 1, kinds)
            return
        case _:
            row = tree.put(depth, "other", _other_text(s))
    tree.row_of[id(s)] = row
    for child in child_stmts(s):
        _add(tree, child, depth + 1, kinds)


def _add_block(
    tree: Tree, s: loops.BlockRealize, depth: int, kinds: Mapping[Var, set[str]]
) -> None:
    block = s.block
    plain = not (s.iter_values or block.reads or block.writes or block.init)
    if not (plain and block.name in ("root", "")):
        where = "" if s.predicate == TRUE else f" where {format_expr(s.predicate)}"
        tree.put(depth, "block", f"block {block.name}{where}")
        depth += 1
        for axis, value in zip(block.iter_vars, s.iter_values, strict=True):
            text = f"{axis.var.name} in {_range(axis.dom)} = {format_expr(value)}"
            tree.put(depth, "axis", text, axes=(_LETTERS[axis.kind],))
        for kind, regions in (("reads", block.reads), ("writes", block.writes)):
            if regions:
                tree.put(depth, kind, f"{kind} {', '.join(map(_region, regions))}")
    for b in block.alloc_buffers:
        tree.put(depth, "alloc", f"{b.name}: ({_list(b.shape)}) {b.dtype} in {b.scope} memory")
    for m in block.match_buffers:
        tree.put(depth, "view", f"{m.buffer.name} is {_region(m.source)}")
    if block.init is not None:
        tree.put(depth, "init", "init:")
        tree.init_of[block.name] = len(tree.rows)
        _add(tree, block.init, depth + 1, kinds)
    _add(tree, block.body, depth, kinds)


def _for_text(s: loops.For) -> str:
    return f"for {s.loop_var.name} in {_range(loops.Range(s.min, s.extent))}"


def _range(r: loops.Range) -> str:
    if r.min == IntImm(0, r.min.dtype):
        return f"range({format_expr(r.extent)})"
    return f"range({format_expr(r.min)}, {format_expr(r.min + r.extent)})"


def _region(r: loops.BufferRegion) -> str:
    def one(part: loops.Range) -> str:
        if part.extent == IntImm(1, part.extent.dtype):
            return format_expr(part.min)
        return f"{format_expr(part.min)}:{format_expr(part.min + part.extent)}"

    return f"{r.buffer.name}[{', '.join(map(one, r.region))}]"


def _list(values: Sequence[PrimExpr]) -> str:
    return ", ".join(map(format_expr, values))


def _other_text(s: loops.Stmt) -> str:
    match s:
        case loops.LetStmt(var, value):
            return f"{var.name} = {format_expr(value)}"
        case loops.While(condition):
            return f"while {format_expr(condition)}"
        case loops.AssertStmt(condition, message):
            return f"assert {format_expr(condition)}: {message}"
        case loops.Evaluate(value):
            return format_expr(value)
        case _:
            return type(s).__name__


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two trees. `marks` has one letter per row of the new tree: `=` as before
    (perhaps deeper), `~` a loop that is run otherwise, `>` moved past others, `+` new. `gone` are
    the rows of the old tree that are nowhere, each with the number of the new row it stood
    before."""

    marks: str
    gone: tuple[tuple[int, Row], ...]


def difference(before: Sequence[Row], after: Sequence[Row]) -> Difference:
    """Return the difference of two trees. Rows unmatched on both sides with the same text have
    moved."""
    marks = ["+"] * len(after)
    gone: list[tuple[int, Row]] = []
    texts = [[row.text for row in rows] for rows in (before, after)]
    for tag, i, i_end, j, j_end in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if tag != "equal":
            gone += [(j_end, row) for row in before[i:i_end]]
            continue
        for old, new in zip(range(i, i_end), range(j, j_end), strict=True):
            marks[new] = "=" if before[old].how == after[new].how else "~"
    for at, row in enumerate(after):
        same = next((n for n, (_, old) in enumerate(gone) if old.text == row.text), None)
        if marks[at] == "+" and same is not None:
            marks[at] = ">"
            del gone[same]
    return Difference("".join(marks), tuple(gone))
