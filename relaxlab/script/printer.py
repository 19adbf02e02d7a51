"""Printing modules and functions as runnable scripts (house rule: the printer round-trips).

The spelling is the one that current TVM releases parse once the import line is changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.data import DATA_TYPES, DataDef, data_types
from relaxlab.ir.module import GLOBAL_INFOS, Module
from relaxlab.ir.node import NO_ATTRS, Attrs, Node
from relaxlab.ir.span import Span
from relaxlab.ir.types import DataType, Type
from relaxlab.script import print_graph, print_loops
from relaxlab.script.names import RESERVED, is_name
from relaxlab.script.print_expr import region, scalar
from relaxlab.script.print_types import annotation, attribute, sequence
from relaxlab.script.writer import Writer, string

HEADER = "from relaxlab.script import ir as I, relax as R, tir as T"


def print_module(root: Node, *, types: bool = True, show_meta: bool = True) -> str:
    """`root` as script text: a runnable script for a module or a function (with the header line),
    otherwise the text of that node alone. `types=False` leaves out the annotations of variables
    bound in graph functions: shorter to read, and deduced again after parsing. `show_meta=False`
    leaves out what the compiler notes for itself: regions of blocks, options of root blocks, and
    attributes such as `op_pattern`. The text without it still parses, to a module without them.

    Raises ValueError for a function whose name is not a Python name, and TypeError for a node the
    script has no spelling for.
    """
    return _print(root, Writer(types=types, show_meta=show_meta))[0]


def print_with_map(root: Node, *, show_meta: bool = True) -> tuple[str, dict[str, Span]]:
    """The text, and where each node's text is in it; `show_meta` as for `print_module`.

    Keys are paths as `relaxlab.ir.equal` reports them: `['main'].body.blocks[0].bindings[1]`.
    """
    return _print(root, Writer(mapping=True, show_meta=show_meta))


def _print(root: Node, w: Writer) -> tuple[str, dict[str, Span]]:
    match root:
        case Module():
            w.line(HEADER)
            w.line()
            w.line()
            _module(w, root)
        case graph.Function() | loops.PrimFunc():
            w.in_module = False
            w.line(HEADER)
            w.line()
            w.line()
            _function(w, root.name_hint if is_name(root.name_hint) else "main", root, "")
        case expr.PrimExpr():
            w.line(scalar(w, root))
        case Type():
            w.line(annotation(w, root))
        case loops.Stmt():
            print_loops.statement(w, root, "")
        case loops.BufferRegion():
            w.line(region(w, root, ""))
        case graph.Binding():
            print_graph.binding(w, root, "")
        case graph.Expr():
            w.line(print_graph.value(w, root, ""))
        case _:
            raise TypeError(f"the script has no spelling for {type(root).__name__}")
    return w.finish()


def _module(w: Writer, mod: Module) -> None:
    if is_name(mod.name_hint) and mod.name_hint not in RESERVED:
        w.module_name = mod.name_hint
        w.names.fresh(w.module_name)
    with w.node(""):
        w.line("@I.ir_module")
        w.line(f"class {w.module_name}:")
        with w.indented():
            infos = mod.attrs.get(GLOBAL_INFOS)
            attrs = mod.attrs.with_(**{GLOBAL_INFOS: None, DATA_TYPES: None})
            for data in data_types(mod).values():
                _data_type(w, data)
            if attrs != NO_ATTRS:
                w.line(f"I.module_attrs({attribute(w, attrs, '.attrs')})")
            if infos is not None:
                w.line(f"I.module_global_infos({{{', '.join(_infos(w, infos))}}})")
            if not mod.functions and mod.attrs == NO_ATTRS:
                w.line("pass")
            for i, (name, f) in enumerate(mod.functions):
                if i:
                    w.line()
                _function(w, name, f, f"[{name!r}]")


def _data_type(w: Writer, data: DataDef) -> None:
    w.names.fresh(data.name)
    w.line("@R.data")
    w.line(f"class {data.name}:")
    with w.indented():
        for c in data.constructors:
            fields = [
                string(f.name) if isinstance(f, DataType) else annotation(w, f) for f in c.fields
            ]
            w.line(f"{c.name}: ({sequence(fields)})")
        if not data.constructors:
            w.line("pass")
    w.line()


def _infos(w: Writer, infos: Attrs) -> Iterator[str]:
    for kind, entries in infos.items():
        texts: list[str] = []
        for i, entry in enumerate(entries):
            match entry:
                case (target, number, scope):
                    text = attribute(w, target, f".attrs[{GLOBAL_INFOS!r}][{kind!r}][{i}]")
                    texts.append(f"I.vdevice({text}, {number}, {string(scope)})")
                case _:
                    texts.append("I.dummy_global_info()")
        yield f"{string(kind)}: [{', '.join(texts)}]"


def _function(
    w: Writer, name: str, f: graph.Function | loops.PrimFunc | graph.ExternFunc, path: str
) -> None:
    if not is_name(name):
        raise ValueError(f"the script cannot define a function named {name!r}: rename it")
    match f:
        case graph.Function():
            print_graph.function(w, name, f, path)
        case loops.PrimFunc():
            print_loops.prim_func(w, name, f, path)
        case graph.ExternFunc():
            w.line(w.mark(path, f"{name} = R.ExternFunc({string(f.name)})"))
