"""Let what comes after the recursion of all instances wait for it (ACRoBat's program phases)."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.host_values import is_block
from relaxlab.passes.make_blocks import entry_of
from relaxlab.tracing import may_apply

PHASE = "phase"
"""The attribute of blocks that run in a later phase: all of an earlier one run before."""


@module_pass("split_phases", needs=("make_blocks",))
def split_phases(mod: Module, _: NoOptions) -> Module:
    """Put the blocks of the entry that come after its last recursive call into a phase of theirs.

    Instances recurse to different depths. Without phases, the classifier behind a shallow tree runs
    beside the inner nodes of deeper ones, in as many batches as trees have heights; with them once.
    Every instance passes these blocks exactly once, so that there are never more batches.
    """
    fn = mod[entry_of(mod)]
    assert isinstance(fn, graph.Function)
    bindings = [b for block in fn.body.blocks for b in block.bindings]
    recursive = [i for i, b in enumerate(bindings) if _recurses(b.value, mod)]
    if not recursive:
        return mod
    updates: dict[str, graph.Function] = {}
    for b in bindings[recursive[-1] + 1 :]:
        match b.value:
            case graph.Call(graph.GlobalVar(name)) if is_block(block := mod.get(name)):
                assert isinstance(block, graph.Function)
                reason = "comes after the last recursion: it waits for that of all instances"
                if PHASE not in block.attrs and may_apply("split_phases", name, reason):
                    attrs = block.attrs.with_(**{PHASE: 1})
                    updates[name] = replace(block, attrs=attrs)
            case _:
                pass
    return mod.with_functions(updates)


def _recurses(e: graph.Expr, mod: Module) -> bool:
    """True if evaluating an expression may go through a cycle of calls."""
    return any(name in called_from(name, mod) for name in _called(e, mod))


def called_from(name: str, mod: Module) -> set[str]:
    """The functions that calls lead to from one."""
    found: set[str] = set()
    work = [name]
    while work:
        fn = mod[work.pop()]
        assert isinstance(fn, graph.Function)
        new = {n for b in all_bindings(fn) for n in _callees(b.value, mod)} - found
        found |= new
        work += new
    return found


def _called(e: graph.Expr, mod: Module) -> set[str]:
    """All functions that evaluating an expression may call."""
    direct = set(_callees(e, mod))
    if isinstance(e, graph.If):
        arms = (e.true_branch, e.false_branch)
        direct |= {n for arm in arms for b in all_bindings(arm) for n in _callees(b.value, mod)}
    return direct | {n for name in direct for n in called_from(name, mod)}


def _callees(e: graph.Expr, mod: Module) -> tuple[str, ...]:
    match e:
        case graph.Call(graph.GlobalVar(name)) if isinstance(mod.get(name), graph.Function):
            return (name,)
        case _:
            return ()
