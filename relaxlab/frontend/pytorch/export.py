"""Exporting modules of PyTorch, and importing what is exported."""

# pyright: reportMissingImports=false
from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from traceback import FrameSummary
from typing import Any

import torch
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymIntArgument,
)
from torch.utils import _pytree as pytree

from relaxlab.frontend.program import ImportedProgram
from relaxlab.frontend.pytorch.decompose import decomposed
from relaxlab.frontend.pytorch.importer import LIBRARY, GraphImport, without_row
from relaxlab.frontend.pytorch.recurrent import WholeRecurrences
from relaxlab.frontend.pytorch.values import as_array, condition_of
from relaxlab.frontend.table import Problem, UnsupportedOperators


def exported(
    program: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ImportedProgram:
    """See `from_torch`. Raises TypeError for what is neither a module nor an exported program."""
    if isinstance(program, torch.export.ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise TypeError("an ExportedProgram has its arguments and dynamic shapes already")
        return imported(program)
    if not isinstance(program, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module or an ExportedProgram, not {type(program)}")
    found = _export(program, tuple(args), dict(kwargs or {}), dynamic_shapes)
    given = inspect.signature(program.forward).bind(*args, **(kwargs or {})).arguments
    return imported(found, _names(found, list(_dims(dict(given), dynamic_shapes))))


def _export(program: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Any:
    """Return what `torch.export` makes of a module. Where its quicker way takes a size for a
    constant, as in `math.sqrt(x.shape[0])`, its stricter one may not."""
    with torch.no_grad():
        export = partial(torch.export.export, program, args, kwargs, dynamic_shapes=dynamic_shapes)
        try:
            with WholeRecurrences():
                return export(strict=False)
        except UserError as error:
            try:
                with _quiet():
                    return export(strict=True)
            except Exception:
                # Whatever kind it is of: that a size is a constant is what the user can mend, and
                # how the second attempt ended says less about it.
                raise error from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch from logging an error that is raised as well, with all of its frames."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _dims(value: Any, shapes: Any) -> Iterator[Mapping[int, Any]]:
    """The specifications of dimensions by axis, for each leaf of the arguments in order."""
    if isinstance(value, dict):
        by_key = isinstance(shapes, dict)
        for n, (key, part) in enumerate(value.items()):
            yield from _dims(part, None if shapes is None else shapes[key if by_key else n])
    elif isinstance(value, list | tuple):
        for n, part in enumerate(value):
            yield from _dims(part, None if shapes is None else shapes[n])
    elif isinstance(shapes, list | tuple):
        yield dict(enumerate(shapes))
    else:
        yield shapes if isinstance(shapes, dict) else {}


def _names(program: Any, dims: Sequence[Mapping[int, Any]]) -> dict[str, str]:
    """The names of the `Dim`s of the user by those of the symbols that PyTorch made for them."""
    inputs = program.graph_signature.user_inputs
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    names: dict[str, str] = {}
    for name, by_axis in zip(inputs, dims, strict=False):
        for axis, dim in by_axis.items():
            size: Any = nodes[name].meta["val"].shape[axis] if isinstance(dim, Dim) else 0
            if isinstance(size, torch.SymInt) and len(size.node.expr.free_symbols) == 1:
                (symbol,) = size.node.expr.free_symbols
                names[symbol.name] = getattr(dim, "root", dim).__name__  # of 2*Dim("half"), "half"
    return names


def imported(program: Any, names: Mapping[str, str] | None = None) -> ImportedProgram:
    """The module of an `ExportedProgram`, with other names for some of its symbols.

    Raises UnsupportedOperators.
    """
    return _ProgramImport(decomposed(program), names).run()


class _ProgramImport(GraphImport):
    """The import of one program."""

    def __init__(self, program: Any, names: Mapping[str, str] | None) -> None:
        super().__init__(names)
        self.program = program
        self.signature = program.graph_signature
        self.inputs: dict[str, Any] = {}
        """The inputs of `main` by the names that the signature gives them: arguments, then the
        buffers that calls change."""

    def run(self) -> ImportedProgram:
        graph_module = self.program.graph_module
        problems = [*without_row(graph_module), *_effects(self.signature)]
        if problems:
            raise UnsupportedOperators("PyTorch", problems)
        self.constrain()
        values = self.parameters(graph_module.graph)
        results = self.walk(graph_module, values)
        module, unpack = self.finish(results)
        spec, inputs = self.program.call_spec.out_spec, list(self.inputs)
        updates = tuple(inputs.index(name) for name in _updated(self.signature))

        def unflatten(results: Sequence[Any]) -> Any:
            return pytree.tree_unflatten(unpack(results)[len(updates) :], spec)

        flatten = self.flattening()
        return ImportedProgram(module, self.emitter.params, flatten, unflatten, updates)

    def constrain(self) -> None:
        """Copy what PyTorch takes for granted of the symbols: their bounds, and the sides that
        conditions such as `x.shape[0] % 2 == 0` took while it traced."""
        for size, range_ in self.program.range_constraints.items():
            lower, upper = (int(v) if v.is_Integer else None for v in (range_.lower, range_.upper))
            if size.is_Symbol:
                self.symbols.constrain(size.name, lower, upper)
            # Others are made of the dimensions of such, as 2*Dim("half"), whose bounds follow.
        for condition in _guards(self.program):
            self.symbols.require(condition_of(condition, self.symbols))

    def parameters(self, fx_graph: Any) -> dict[Any, Any]:
        """Values of the placeholders: the inputs first, then weights, under their names."""
        nodes = [n for n in fx_graph.nodes if n.op == "placeholder"]
        updated = set(_updated(self.signature))
        arguments, buffers, weights = [], [], []
        for node, spec in zip(nodes, self.signature.input_specs, strict=True):
            if spec.kind == InputKind.USER_INPUT:
                arguments.append((node, spec))
            else:
                (buffers if spec.arg.name in updated else weights).append((node, spec))
        values: dict[Any, Any] = {}
        for node, spec in arguments:
            values[node] = self.user_input(node)
            if not isinstance(spec.arg, ConstantArgument):
                self.inputs[spec.arg.name] = spec.arg
        for node, spec in buffers:
            values[node] = self.user_input(node)
            self.inputs[spec.arg.name] = self.held(spec.target)
        return values | {node: self.weight(node, spec) for node, spec in weights}

    def held(self, name: str) -> Any:
        """A tensor of the program."""
        program = self.program
        return (program.state_dict if name in program.state_dict else program.constants)[name]

    def weight(self, node: Any, spec: Any) -> Any:
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            raise UnsupportedOperators(
                "PyTorch", [Problem(str(spec.kind), f"the input {spec.target} is no tensor")]
            )
        array = as_array(self.held(spec.target))
        if array.ndim == 0 and spec.kind == InputKind.CONSTANT_TENSOR:
            return self.emitter.const(array)
        return self.whole(self.emitter.weight(spec.target, array), node.meta["val"])

    def flattening(self) -> Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]:
        """A function that makes the inputs of `main` of the arguments of the source program."""
        wanted = self.program.call_spec.in_spec
        inputs = [s.arg for s in self.signature.input_specs if s.kind == InputKind.USER_INPUT]
        buffers = [v for v in self.inputs.values() if isinstance(v, torch.Tensor)]

        def flatten(args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
            order = wanted.children()[1].context
            if set(named) == set(order):
                named = {name: named[name] for name in order}
            leaves, spec = pytree.tree_flatten((tuple(args), dict(named)))
            if spec != wanted:
                raise TypeError(
                    f"the program was exported for arguments of the structure {wanted}, "
                    f"and is called with {spec}"
                )
            given: list[Any] = []
            for value, arg in zip(leaves, inputs, strict=True):
                if not isinstance(arg, ConstantArgument):
                    given.append(_operand(value, arg))
                elif value != arg.value:
                    raise ValueError(
                        f"the program was exported for {arg.name}={arg.value!r}, not {value!r}"
                    )
            return [*given, *buffers]

        return flatten


def _operand(value: Any, arg: Any) -> Any:
    """An argument as `main` takes it."""
    if isinstance(arg, SymIntArgument):
        return (value,)
    return as_array(value) if isinstance(value, torch.Tensor) and value.is_complex() else value


def _guards(program: Any) -> Iterator[Any]:
    """Conditions of SymPy under which an exported program is the one that was traced. Those under
    which PyTorch lays out memory as it did are left out."""
    sizes = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"]
    modes = [v.fake_mode for v in sizes if isinstance(v, FakeTensor)]
    env = modes[0].shape_env if modes else None
    if env is None:
        return
    of_layout = {g.expr for g in env.guards if _is_in_library(g, _ON_LAYOUT)}
    for guard in env.guards:
        # Code in C++ asks about strides what PyTorch's own Python asks elsewhere.
        if guard.expr not in of_layout or not _is_in_library(guard, _IN_LIBRARY):
            yield guard.expr.xreplace(env.replacements)


def _is_in_library(guard: Any, functions: re.Pattern[str]) -> bool:
    """True if a guard comes from a function of PyTorch with such a name."""
    place = guard.sloc.framework_loc
    named = isinstance(place, FrameSummary) and functions.search(place.name)
    return bool(named) and place.filename.startswith(LIBRARY)


_ON_LAYOUT = re.compile(
    "stride|contiguous|channels_last|dense|_reshape_view_helper_core_alg|_collapse_view_helper"
)
"""Functions of PyTorch that ask whether a size is 1, so that it needs no stride, or how to reshape
without a copy."""
_IN_LIBRARY = re.compile(f"{_ON_LAYOUT.pattern}|^__call__$")
"""Those functions, and calls of operators written in C++."""


UPDATES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def _updated(signature: Any) -> list[str]:
    """The inputs, buffers among them, whose new values are the first outputs."""
    buffers = {buffer: name for name, buffer in signature.inputs_to_buffers.items()}
    changed = [s for s in signature.output_specs if s.kind in UPDATES]
    return [buffers[s.target] if s.kind == UPDATES[0] else s.target for s in changed]


def _effects(signature: Any) -> Iterator[Problem]:
    """Yield what the program does beside its results and changes of tensors, as problems."""
    for spec in signature.output_specs:
        if spec.kind not in (OutputKind.USER_OUTPUT, *UPDATES):
            kind = spec.kind.name.lower().replace("_", " ")
            yield Problem(str(spec.target), f"{kind}: programs compute results and change buffers")
