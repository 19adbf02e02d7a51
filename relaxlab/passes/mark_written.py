"""Marks of the parameters that host functions write, so that callers must own them."""

from __future__ import annotations

from dataclasses import replace

from relaxlab.ir import host
from relaxlab.ir.module import Module
from relaxlab.passes.kernel_calls import written_buffers


def mark_written(functions: dict[str, host.HostFunction], mod: Module) -> None:
    """Fill in `written`, through calls, until nothing changes."""
    stores = {name: written_buffers(f) for name, f in mod.loop_functions().items()}
    instrs = [i for f in functions.values() for i in host.walk_instrs(f.instrs)]
    values = {i.function for i in instrs if isinstance(i, host.LoadFunction)}
    changed = True
    while changed:
        changed = False
        for name, fn in functions.items():
            by_value = any(functions[v].written for v in values)
            written = _written_params(fn, functions, stores, by_value)
            if written != fn.written:
                functions[name] = replace(fn, written=written)
                changed = True


def _written_params(
    fn: host.HostFunction,
    functions: dict[str, host.HostFunction],
    stores: dict[str, frozenset[int]],
    by_value: bool,
) -> frozenset[int]:
    """Return the parameters that each function writes. `by_value`: functions that are called as
    values may write to their arguments."""
    params = {r for p in fn.params for r in host.leaves(p.value)}
    root: dict[int, set[int]] = {r: {r} for r in params}
    written: set[int] = set()

    def share(dst: host.Value, *sources: host.Value) -> None:
        found = {r for s in sources for x in host.leaves(s) for r in root.get(x, ())}
        for d in host.leaves(dst):
            root.setdefault(d, set()).update(found)

    for i in host.walk_instrs(fn.instrs):
        match i:
            case host.MatchShape(value=value, dst=dst) | host.View(dst=dst, base=value):
                share(dst, value)
            case host.Pack(dst, value) | host.Unpack(dst, value, _):
                share(dst, value)
            case host.If():
                share(i.dst, i.then_value, i.else_value)
            case host.MakeClosure(dst, _, args) | host.CallFunction(int(), args, dst):
                mine = (r for a in args for r in host.leaves(a) if by_value)
                written |= {r for x in mine for r in root.get(x, ())}
                share(dst, *args)
            case host.CallPacked(overwrites=overwrites):
                written |= {r for x in overwrites for r in root.get(x, ())}
            case host.CallKernel(function, buffers):
                written |= {r for k in stores[function] for r in root.get(buffers[k], ())}
            case host.CallFunction(str(function), args, dst):
                callee = functions[function]
                theirs = [r for p in callee.params for r in host.leaves(p.value)]
                mine = [r for a in args for r in host.leaves(a)]
                pairs = zip(theirs, mine, strict=True)
                written |= {r for t, m in pairs if t in callee.written for r in root.get(m, ())}
                share(dst, *args)
            case _:
                pass
    return frozenset(written & params)
