"""The dataflow graph of a function, laid out: nodes, edges, repeated blocks as groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from relaxlab.analysis.costs import bytes_of, call_cost
from relaxlab.analysis.pattern_kind import PatternKind
from relaxlab.ir import graph, loops, types
from relaxlab.ir.errors import counted, tuple_text
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.op_table import has_trait
from relaxlab.lab.attempts import Program, attempted, clipped, failure_lines, first_shown
from relaxlab.lab.layout import Layout, layout
from relaxlab.lab.pictures import graph_drawing
from relaxlab.lab.pipeline import program_controls
from relaxlab.lab.symbols import encode, symbols_of
from relaxlab.lab.view import View
from relaxlab.passes.base import Pipeline
from relaxlab.passes.bindings import all_bindings, tir_call, vars_in
from relaxlab.passes.kernel_calls import written_buffers
from relaxlab.passes.normalize import normalize
from relaxlab.script.printer import print_module

CAP = 500
"""Most nodes that are visible together."""
GROUPED_FROM = 60
"""Nodes from which on repeated blocks are collapsed."""
LONGEST_BLOCK = 300
"""Nodes in a repeated block, at most."""
CHUNK = 40
"""Nodes in a group of neighbours, where no repetition makes a graph small enough."""
WEIGHTS_FROM = 24
"""Parameters of a function from which on weights are listed at the nodes that read them instead of
drawn."""

ALIKE = 8
"""Parameters of one type from which on they are listed, too."""

MEMORY = ("memory.", "builtin.alloc_tensor")


@dataclass(frozen=True, slots=True)
class Node:
    """A value, or a call that writes into memory it is given. `var` None: the result of the
    function."""

    var: graph.Var | None
    value: graph.Expr
    label: str
    origin: str
    ty: types.Type | None
    binding: graph.Binding | None = None


@dataclass(slots=True)
class Dataflow:
    """Nodes in program order, edges between their numbers, and the parameters that each reads and
    that are no nodes."""

    nodes: list[Node] = field(default_factory=list[Node])
    edges: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    folded: list[list[str]] = field(default_factory=list[list[str]])
    number: dict[graph.Var, int] = field(default_factory=dict[graph.Var, int])


def graph_view(program: Program, name: str | None = None) -> View:
    """The graphs of the functions of a program that others may call, or of the named one.

    program: a module (types are deduced where it has none), the text of a script, or a trace, whose
    result is taken. Raises KeyError for a name that is no graph function, TypeError for what is no
    program. A program that is wrong gives a view of that.
    """
    mod, failure = _module_of(program)
    known = mod.graph_functions()
    if name is not None and name not in known:
        raise KeyError(f"no graph function {name!r}; the module has: {among(name, known)}")
    public = [n for n, f in known.items() if not f.private] or list(known)
    names = [name] if name is not None else public
    notes: list[str] = []
    functions = [function_state(mod, n, known[n]) for n in names]
    if not names and failure is None:
        notes.append("The module has no graph functions.")
    sizes = [len(f["nodes"]) for f in functions]
    start = first_shown(functions, sizes)
    state = {"functions": functions, "start": start, "failure": failure, "notes": notes}
    text = clipped(
        failure_lines(failure)
        + [line for n in names for line in graph_text(n, dataflow(mod, known[n]))]
    )
    controls = program_controls(program)
    again = (lambda program: graph_view(program, name)) if controls else None
    text = text or "no graph functions"
    drawing = partial(graph_drawing, "Dataflow", text, functions) if functions else None
    return View("graph", "Dataflow", state, text, controls, again, drawing)


def _module_of(program: Program) -> tuple[Module, dict[str, Any] | None]:
    """Return the module, with types where they can be deduced, and its errors."""
    if isinstance(program, Module) and all(
        b.var.ty is not None for f in program.graph_functions().values() for b in all_bindings(f)
    ):
        return program, None
    trace, failure = attempted(program, Pipeline((normalize,)))
    return (Module.of({}) if trace is None else trace.result), failure


def graph_text(name: str, flow: Dataflow) -> list[str]:
    """Return the graph as text: each value with the operation that makes it and the operands."""
    lines = [f"{name}: {counted(len(flow.nodes), 'value')}"]
    reads: dict[int, list[int]] = {}
    for a, b in flow.edges:
        reads.setdefault(b, []).append(a)
    for i, n in enumerate(flow.nodes):
        given = [_name(flow.nodes[a]) for a in reads.get(i, [])] + flow.folded[i]
        source = f" of {', '.join(given)}" if given else ""
        lines.append(f"  {_name(n)}: {n.label}{source}" + (f"  {n.ty}" if n.ty else ""))
    return lines


def function_state(mod: Module, name: str, fn: graph.Function) -> dict[str, Any]:
    """The graph of one function as data."""
    return {"name": name, **flow_state(mod, dataflow(mod, fn))}


def flow_state(
    mod: Module, flow: Dataflow, kinds: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """Return nodes, edges, groups, layouts, and notes on hidden nodes, as data. `kinds`: the
    pattern kinds, where known."""
    notes: list[str] = []
    if any(isinstance(n.value, graph.If) for n in flow.nodes):
        notes.append("Branches of a conditional are drawn as one node.")
    nodes: list[dict[str, Any]] = []
    sizes: list[tuple[float, float]] = []
    symbols: dict[str, None] = {}
    for i, n in enumerate(flow.nodes):
        size = bytes_of(n.ty)
        cost = None if n.binding is None else call_cost(mod, n.binding)
        flops = None if cost is None else cost.flops
        symbols.update(dict.fromkeys(symbols_of(e for e in (size, flops) if e is not None)))
        nodes.append({
            "name": _name(n), "label": n.label, "origin": n.origin,
            "type": "" if n.ty is None else str(n.ty),
            "bytes": None if size is None else encode(size),
            "flops": None if flops is None else encode(flops),
            "text": "" if n.binding is None else script_of(n.binding),
            "folded": flow.folded[i], "kind": (kinds or {}).get(i) or pattern_kind(mod, n),
        })  # fmt: skip
        longest = max(len(_clipped(n.label)) * 6.6, len(_clipped(_shape(n.ty))) * 5.8)
        sizes.append((min(240.0, max(56.0, 18 + longest)), 36.0))
        nodes[-1]["short"] = [_clipped(n.label), _clipped(_shape(n.ty))]
        nodes[-1]["width"] = round(sizes[-1][0])
    groups = named_groups(groups_of([(n.label, str(n.ty)) for n in flow.nodes]), flow)
    if groups:
        notes.append(
            f"{len(flow.nodes)} values, drawn as {len(groups)} groups of neighbours and single "
            "nodes; click a group to open or close it."
        )
    return {
        "nodes": nodes, "edges": [list(e) for e in flow.edges], "symbols": list(symbols),
        "notes": notes, **_layouts(flow, sizes, groups),
    }  # fmt: skip


# --- Dataflow ----------------------------------------------------------------------------------


def dataflow(mod: Module, fn: graph.Function) -> Dataflow:
    """The graph of a function. Bindings that only allocate memory are no nodes: a value stored
    there comes from the call that stores it. Many weights are listed at the nodes that read
    them."""
    flow = Dataflow()
    hidden = _hidden_params(fn)
    for p in fn.params:
        if p not in hidden:
            _add(flow, Node(p, p, p.name, "parameter", p.ty), (), hidden)
    for block in fn.body.blocks:
        for b in block.bindings:
            label, origin = describe(mod, b)
            if origin == "memory":
                continue
            made = _stored(mod, b.value)
            ty = b.var.ty
            if made:
                found = tuple(v.ty for v in made if v.ty is not None)
                ty = found[0] if len(found) == 1 else types.TupleType(found)
            read = [v for v in vars_in(b.value) if v not in made or v in flow.number]
            node = Node(made[0] if made else b.var, b.value, label, origin, ty, b)
            _add(flow, node, read, hidden)
            flow.number.update(dict.fromkeys((*made, b.var), len(flow.nodes) - 1))
    result = fn.body.body
    _add(flow, Node(None, result, "return", "return", fn.ret_ty), list(vars_in(result)), hidden)
    return flow


def _hidden_params(fn: graph.Function) -> dict[graph.Var, str]:
    """Return the parameters that are no nodes, with their text, if a function has many: weights,
    and parameters of each layer such as a cache."""
    if len(fn.params) < WEIGHTS_FROM:
        return {}
    inputs = fn.attrs.get("num_input", len(fn.params))
    alike = Counter(str(p.ty) for p in fn.params)
    return {
        p: f"{p.name}: {_shape(p.ty)}"
        for i, p in enumerate(fn.params)
        if i >= inputs or alike[str(p.ty)] > ALIKE
    }


def _add(
    flow: Dataflow, node: Node, read: Sequence[graph.Var], hidden: Mapping[graph.Var, str]
) -> None:
    me = len(flow.nodes)
    flow.nodes.append(node)
    sources = dict.fromkeys(flow.number[v] for v in read if v in flow.number)
    flow.edges += [(a, me) for a in sources]
    folded = [hidden[v] for v in dict.fromkeys(read) if v in hidden]
    flow.folded.append(folded + _constants(node.value))
    if node.var is not None:
        flow.number[node.var] = me


def _constants(value: graph.Expr) -> list[str]:
    if isinstance(value, graph.Call):
        return [text for a in value.args for text in _constants(a)]
    if isinstance(value, graph.Tuple):
        return [text for f in value.fields for text in _constants(f)]
    if isinstance(value, graph.Constant):
        data = value.data
        shown = str(data.item()) if data.ndim == 0 else str(data.shape)
        return [f"constant {shown} {data.dtype}"]
    return []


def _stored(mod: Module, value: graph.Expr) -> tuple[graph.Var, ...]:
    """The variables whose memory a call of a loop function writes."""
    match value:
        case graph.Call(graph.GlobalVar(name), args):
            func = mod.get(name)
            if isinstance(func, loops.PrimFunc):
                given = [args[i] for i in sorted(written_buffers(func)) if i < len(args)]
                return tuple(v for v in given if isinstance(v, graph.Var))
        case _:
            pass
    return ()


def describe(mod: Module, b: graph.Binding) -> tuple[str, str]:
    """Return the callee of a binding and its origin, in a word each."""
    call = tir_call(b.value)
    if call is not None:
        return call.callee, "loops"
    match b.value:
        case _ if isinstance(b, graph.MatchCast):
            return "match_cast", "check"
        case graph.Call(graph.Op(name), (callee, *_)) if has_trait(name, "calls_packed"):
            return str(getattr(callee, "name", name)), "library"
        case graph.Call(graph.Op(name)):
            return name, "memory" if name.startswith(MEMORY) else "operator"
        case graph.Call(graph.ExternFunc(name)):
            return name, "library"
        case graph.Call(graph.GlobalVar(name)):
            is_loops = isinstance(mod.get(name), loops.PrimFunc)
            return name, "loops" if is_loops else "function"
        case graph.Call(op):
            return str(getattr(op, "name", "function")), "function"
        case graph.TupleGetItem(_, index):
            return f"field {index}", "tuple"
        case value:
            return type(value).__name__.lower(), "value"


def pattern_kind(mod: Module, node: Node) -> str | None:
    """The pattern kind of the loop function that a node calls, where it was annotated."""
    call = tir_call(node.value)
    func = None if call is None else mod.get(call.callee)
    if not isinstance(func, loops.PrimFunc) or "op_pattern" not in func.attrs:
        return None
    return PatternKind(func.attrs["op_pattern"]).name.lower()


def _name(n: Node) -> str:
    return "return" if n.var is None else n.var.name


def script_of(node: Module | graph.Binding) -> str:
    """The node as a script; a comment where a script cannot say it, such as odd names."""
    try:
        return print_module(node).strip()
    except (TypeError, ValueError) as error:
        return f"# {error}"


def _shape(ty: types.Type | None) -> str:
    """A type without its namespace, for small boxes."""
    match ty:
        case types.TensorType(shape, dtype) if shape is not None:
            return f"{tuple_text(shape)} {dtype or '?'}"
        case types.TensorType(_, dtype, ndim):
            return f"{ndim if ndim >= 0 else '?'}-d {dtype or '?'}"
        case types.TupleType(fields):
            return counted(len(fields), "value")
        case None:
            return ""
        case _:
            return str(ty).removeprefix("R.")


def _clipped(text: str, most: int = 34) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# --- Groups ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring nodes that are drawn as one until they are opened."""

    title: str
    members: range


def groups_of(tokens: Sequence[object]) -> list[Group]:
    """Groups that keep a graph with these nodes small: blocks that repeat, like the layers of a
    model, and neighbours where that is not enough."""
    if len(tokens) <= GROUPED_FROM:
        return []
    numbers: dict[object, int] = {}
    ids = np.array([numbers.setdefault(t, len(numbers)) for t in tokens])
    groups: list[Group] = []
    for start, period, count in sorted(_repeats(ids, 0, len(tokens))):
        for k in range(count):
            members = range(start + k * period, start + (k + 1) * period)
            groups.append(Group(f"block {k + 1} of {count}", members))
    if len(tokens) - sum(len(g.members) - 1 for g in groups) > CAP:
        groups = _chunked(len(tokens), groups)
    return groups


_NUMBERED = re.compile(r"(?:^|.*?[._])\d+(?=[._]|$)")


def named_groups(groups: list[Group], flow: Dataflow) -> list[Group]:
    """The groups with the names of the layers whose parameters they read (`layers_3` for
    `layers_3_mlp_weight`), where each of them reads parameters of one that no other reads most."""
    read: dict[int, list[str]] = {}
    for a, b in flow.edges:
        if flow.nodes[a].origin == "parameter":
            read.setdefault(b, []).append(_name(flow.nodes[a]))
    found: list[str | None] = []
    for g in groups:
        names = [n for v in g.members for n in (*read.get(v, ()), *flow.folded[v])]
        layers = Counter(m[0] for m in map(_NUMBERED.match, names) if m is not None)
        found.append(layers.most_common(1)[0][0] if layers else None)
    counts = Counter(found)
    return [
        g if name is None or counts[name] > 1 else replace(g, title=name)
        for g, name in zip(groups, found, strict=True)
    ]


def _repeats(ids: Any, low: int, high: int) -> list[tuple[int, int, int]]:
    """(start, period, count) of the blocks in [low, high) that follow each other most."""
    best: tuple[int, int, int, int] | None = None
    part = ids[low:high]
    for period in range(3, min(LONGEST_BLOCK, len(part) // 2) + 1):
        same = np.concatenate(([False], part[:-period] == part[period:], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        for first, end in zip(edges[::2], edges[1::2], strict=True):
            count = int(end - first) // period + 1
            covered = count * period
            if count > 1 and (best is None or covered > best[0] + period):
                best = (covered, int(first) + low, period, count)
    if best is None or best[0] < 12:
        return []
    covered, start, period, count = best
    return [
        (start, period, count),
        *_repeats(ids, low, start),
        *_repeats(ids, start + covered, high),
    ]


def _chunked(total: int, groups: list[Group]) -> list[Group]:
    """Neighbours that are in no group, `CHUNK` at a time."""
    found: list[Group] = []
    at = 0
    for g in [*groups, Group("", range(total, total))]:
        while at < g.members.start:
            end = min(at + CHUNK, g.members.start)
            if end - at > 1:
                found.append(Group(f"values {at + 1} to {end}", range(at, end)))
            at = end
        if g.title:
            found.append(g)
        at = g.members.stop
    return found


def _layouts(
    flow: Dataflow, sizes: list[tuple[float, float]], groups: list[Group]
) -> dict[str, Any]:
    """Return the layout of the nodes visible at first, and of the inside of each group.

    An item is a node's number, or the number of nodes plus that of a group.
    """
    owner = {v: len(sizes) + k for k, g in enumerate(groups) for v in g.members}
    items = list(dict.fromkeys(owner.get(v, v) for v in range(len(sizes))))
    place = {item: i for i, item in enumerate(items)}
    outer = dict.fromkeys((owner.get(a, a), owner.get(b, b)) for a, b in flow.edges)
    top_edges = [(place[a], place[b]) for a, b in outer if a != b]
    top_sizes = [sizes[i] if i < len(sizes) else (170.0, 36.0) for i in items]
    top = layout(top_sizes, top_edges)
    inner: dict[object, int] = {}
    layouts: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    inside: dict[int, list[tuple[int, int]]] = {}
    for a, b in flow.edges:
        if a in owner and owner[a] == owner.get(b):
            inside.setdefault(owner[a] - len(sizes), []).append((a, b))
    for k, g in enumerate(groups):
        edges = [(a - g.members.start, b - g.members.start) for a, b in inside.get(k, [])]
        mine = [sizes[v] for v in g.members]
        key = (tuple(mine), tuple(edges))
        if key not in inner:
            inner[key] = len(layouts)
            layouts.append(_layout_state(layout(mine, edges), edges))
        states.append({
            "title": g.title, "start": g.members.start, "end": g.members.stop,
            "layout": inner[key],
        })  # fmt: skip
    return {
        "items": items, "top": _layout_state(top, top_edges), "groups": states, "layouts": layouts,
    }  # fmt: skip


def _layout_state(found: Layout, edges: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {
        "width": round(found.width), "height": round(found.height),
        "at": [[round(x), round(y)] for x, y in found.centres],
        "edges": [list(e) for e in edges],
        "curves": [[round(c) for p in curve for c in p] for curve in found.curves],
    }  # fmt: skip
