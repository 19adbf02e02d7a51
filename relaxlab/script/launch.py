"""Statements around those that follow: the launch of a thread axis, as programs for GPUs without
blocks write it (`bx = T.launch_thread("blockIdx.x", 4)`), and attributes (`T.attr({"key": 1})`).
Each is a loop: one over the threads, one with annotations.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import Attrs, replace
from relaxlab.script.convert import attribute_value, literal, scalar_of, string_of
from relaxlab.script.core import Arguments, Context
from relaxlab.script.index_types import define_index, range_of, variable_of
from relaxlab.script.values import (
    Annotations,
    Arg,
    Launch,
    Thread,
    ThreadTag,
    Value,
    describe,
    is_dict,
)

Around = Callable[[loops.Stmt], loops.Stmt]
"""Gives the statement whose body is another one."""


def env_thread(cx: Context, c: Arguments) -> ThreadTag:
    """`T.env_thread("threadIdx.x")`: a thread axis whose extent a later launch gives."""
    given = c.bind()["thread_tag"]
    assert given is not None
    return ThreadTag(string_of(cx, given, "the thread axis"))


def launch_thread(cx: Context, c: Arguments) -> Launch:
    """`T.launch_thread("threadIdx.x", 128)`, or of the variable of a `T.env_thread`."""
    a = c.bind()
    thread, extent = a["thread"], a["extent"]
    assert thread is not None and extent is not None
    size = scalar_of(cx, extent.value, extent.node)
    return _launch(cx, thread, size)


def iter_var(cx: Context, c: Arguments) -> Thread:
    """`T.iter_var(v, (0, 4), "ThreadIndex", "vthread")`: a thread axis with its variable, in the
    place of which `T.int32()` stands for one without a name."""
    a = c.bind()
    var, tag = a["var"], a["thread_tag"]
    assert var is not None and tag is not None
    return Thread(string_of(cx, tag, "the thread axis"), variable_of(cx, var.value))


def _launch(cx: Context, thread: Arg, size: PrimExpr) -> Launch:
    if isinstance(thread.value, str):
        return Launch(thread.value, size)
    if isinstance(thread.value, Thread):
        return Launch(thread.value.tag, size, thread.value.var)
    var = variable_of(cx, thread.value)
    tag = None if var is None else cx.thread_axes.get(var)
    if var is None or tag is None:
        what = f"a thread axis such as 'threadIdx.x' is needed, not {describe(thread.value)}"
        cx.fail(thread.node, "E0106", what, help='declare it: `tx = T.env_thread("threadIdx.x")`')
    return Launch(tag, size, var)


def attribute(cx: Context, c: Arguments) -> Launch | Annotations:
    """`T.attr({"key": value})`, or in the older form `T.attr(0, "key", value)`, where a node in the
    place of 0 is part of the value; the attribute `thread_extent` of a thread axis launches it."""
    a = c.bind()
    node, key, value = a["node"], a["attr_key"], a["value"]
    assert node is not None
    if key is None or value is None:
        if not is_dict(node.value):
            c.wrong("takes a dictionary, or a node, a key and a value", c.node)
        return Annotations(attribute_value(cx, node.value, node.node))
    name = string_of(cx, key, "the key")
    if name in ("thread_extent", "virtual_thread"):
        return _launch(cx, node, scalar_of(cx, value.value, value.node))
    given = attribute_value(cx, value.value, value.node)
    if isinstance(node.value, int | str | expr.Var):
        return Annotations({name: given})
    return Annotations({name: (_described(cx, node), given)})


def _described(cx: Context, node: Arg) -> Value:
    """The node that an attribute is about, as a part of its value; memory by its name."""
    match node.value:
        case expr.Call("handle", "address_of", (loops.BufferLoad(buffer),)):
            return buffer.name
        case value:
            return attribute_value(cx, value, node.node)


def annotated(cx: Context, given: Annotations, node: ast.AST) -> Around:
    """Puts the annotations on the loop that they stand before, else on a loop of one round."""

    def around(body: loops.Stmt) -> loops.Stmt:
        if isinstance(body, loops.For):
            return replace(body, annotations=Attrs({**body.annotations, **given.attrs}))
        once = expr.Var("once", span=cx.span(node))
        ends = expr.const(0), expr.const(1)
        notes = Attrs(given.attrs)
        return loops.For(once, *ends, "serial", body, annotations=notes, span=cx.span(node))

    return around


def declare_thread(cx: Context, target: ast.Name, tag: ThreadTag) -> None:
    """`tx = T.env_thread(tag)`: `tx` is the number of the thread on that axis, an int32."""
    cx.thread_axes[define_index(cx, target.id, "int32", target)] = tag.tag


def loop_around(
    cx: Context, launch: Launch | Annotations, target: ast.expr | None, node: ast.AST
) -> Around:
    """The loop that a launch or an attribute puts around what follows; `target` names its variable
    unless the axis has one already."""
    if isinstance(launch, Annotations):
        return annotated(cx, launch, node)
    var, span = launch.var, cx.span(node)
    if var is None:
        name = target.id if isinstance(target, ast.Name) else launch.tag.replace(".", "_")
        var = define_index(cx, name, launch.extent.dtype, target or node)
    zero = literal(cx, 0, launch.extent.dtype, node)
    threads = range_of(cx, loops.Range(zero, launch.extent))
    cx.loops[var] = threads

    def around(body: loops.Stmt) -> loops.Stmt:
        return loops.For(
            var, threads.min, threads.extent, "thread_binding", body, launch.tag, span=span
        )

    return around
