"""Modules: parameters and submodules as attributes, methods that build graph functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from relaxlab.ir import graph, types
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module as IRModule
from relaxlab.ir.node import Attrs
from relaxlab.nn import spec
from relaxlab.nn.builder import Data, FunctionBuilder, Parameter, Recursive, Tensor
from relaxlab.ops.block_builder import ModuleBuilder
from relaxlab.runtime.native.weights import parameter_name


def _no_forward(self: Module, *_: Any) -> Any:
    raise NotImplementedError(f"{type(self).__name__} defines no forward")


@methods_name_arguments
class Module(Brief):
    """Base of the modules, as in PyTorch: attributes that are `Parameter`s and `Module`s are
    found by name; calling a module calls `forward`, which emits calls on `Tensor`s."""

    forward: Callable[..., Any] = _no_forward

    def __call__(self, *args: Any) -> Any:
        """Return what `forward` emits. Raises TypeError for arrays: compiled modules take them."""
        if any(hasattr(a, "__array__") or hasattr(a, "__dlpack__") for a in args):
            raise TypeError(
                f"{type(self).__name__} builds a program, and takes its tensors instead of arrays. "
                "Export and compile it, then call that: `mod, names = model.export({'forward': "
                '{\'x\': nn.spec.Tensor(("n", 64), "float32")}})`, '
                "`exe = rl.compile(mod).load(model.state_dict())`, `exe(x)`"
            )
        return self.forward(*args)

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted paths, in order of definition.

        Raises ValueError for a module that contains itself.
        """
        return self._named_modules("", ())

    def _named_modules(
        self, prefix: str, around: tuple[Module, ...]
    ) -> Iterator[tuple[str, Module]]:
        if any(self is module for module in around):
            raise ValueError(f"the {type(self).__name__} at {prefix!r} contains itself")
        yield prefix, self
        for name, value in vars(self).items():
            if isinstance(value, Module):
                path = f"{prefix}.{name}" if prefix else name
                yield from value._named_modules(path, (*around, self))

    def named_parameters(self) -> dict[str, Parameter]:
        """All parameters by dotted path; one that several modules share has its first path."""
        found: dict[Parameter, str] = {}
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter):
                    found.setdefault(value, f"{prefix}.{name}" if prefix else name)
        return {name: parameter for parameter, name in found.items()}

    def state_dict(self, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """The values of all parameters by the names that PyTorch gives them: what
        `load_state_dict` gave, and initial values drawn with `seed` for the others.

        `Executable.load` takes it. Raises ValueError for a parameter that has neither.
        """
        found: dict[str, np.ndarray[Any, Any]] = {}
        for number, (name, parameter) in enumerate(self.named_parameters().items()):
            value = parameter.value
            if value is None:
                value = _drawn(name, parameter, np.random.default_rng((seed, number)))
            found[_public(name)] = value
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the parameters values: arrays (or tensors of PyTorch) under its names, in its
        layouts, converted to the parameters' dtypes.

        Raises KeyError for names that are missing or unknown, ValueError for another shape,
        TypeError for what is not a dictionary; then nothing was changed.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"a state is a dictionary of arrays by name, not {kind_of(state)}")
        mine = {_public(name): p for name, p in self.named_parameters().items()}
        given = {_public(name): value for name, value in state.items()}
        for names, problem in ((mine.keys() - given.keys(), "misses"),
                               (given.keys() - mine.keys(), "has the unknown")):  # fmt: skip
            if names:
                first = min(names)
                raise KeyError(f"the state {problem} {first!r} ({len(names)} in all)")
        values = {name: _as_value(name, given[name], p) for name, p in mine.items()}
        for name, parameter in mine.items():
            parameter.value = values[name]

    def export(
        self,
        methods: Mapping[str, Mapping[str, spec.Spec]],
        bounds: Mapping[str, int] | None = None,
    ) -> tuple[IRModule, list[str]]:
        """A module with one graph function per method, and the names of its weights.

        `methods` gives, per method, the specification of each argument; a list of specifications
        becomes that many parameters. Every function takes those parameters (attribute
        `num_input` is their number), then all weights in the order of the returned names; a method
        returns a tensor, or a sequence of tensors that becomes a tuple. `bounds` are upper bounds
        of symbols (attribute `tir_var_upper_bound`). Raises TypeError for what is no specification.
        """
        if not isinstance(methods, Mapping):
            raise TypeError(
                "methods is a dictionary of dictionaries, such as "
                f'{{"forward": {{"x": nn.spec.Tensor(("n", 64))}}}}, not {kind_of(methods)}'
            )
        weights = self.named_parameters()
        module = ModuleBuilder()
        recursive: dict[Any, Recursive] = {}
        for name in methods:  # before recursive methods look for names
            module.add_graph_function(name, _UNBUILT)
        for name, arguments in methods.items():
            function = FunctionBuilder(module, bounds, recursive)
            inputs = [_declare(function, n, s) for n, s in arguments.items()]
            attrs: dict[str, Any] = {"num_input": function.num_params}
            known = {s: upper for s, upper in (bounds or {}).items() if function.has_symbol(s)}
            if known:
                attrs["tir_var_upper_bound"] = Attrs(known)
            for path, weight in weights.items():
                function.weight_param(parameter_name(path), weight)
            with function.building():
                result = _result(self, name, inputs)
            module.replace_function(name, function.finish(result, Attrs(attrs)))
        return module.module(), list(weights)


_UNBUILT = graph.Function((), graph.SeqExpr((), graph.Tuple(())), types.TupleType(()))
"""In the place of a function that comes later."""


def _result(module: Module, name: str, inputs: Sequence[Any]) -> Any:
    """Return the result of a method. Raises RecursionError for one that recurses as Python does."""
    try:
        return getattr(module, name)(*inputs)
    except RecursionError:
        raise RecursionError(
            f"building `{name}` does not end: a method that calls itself is a function of the "
            "program under @nn.recursive(nn.spec.Tensor((1, 64))), which says what it returns"
        ) from None


def _public(name: str) -> str:
    """PyTorch's name: a plain matrix is a parameter there and not a module with `data`."""
    return name.removesuffix(".data")


def _drawn(name: str, parameter: Parameter, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    shape = tuple(d for d in parameter.shape if isinstance(d, int))
    if parameter.initial is None or len(shape) < len(parameter.shape):
        why = "its format has none" if parameter.initial is None else "its shape has symbols"
        raise ValueError(f"{name!r} has no initial values ({why}): use load_state_dict")
    return parameter.initial(rng, shape).astype(numpy_dtype(parameter.dtype))


def _as_value(name: str, value: Any, parameter: Parameter) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):  # PyTorch's tensors refuse to be viewed while they may be trained
        value = value.detach().cpu()
    array = np.asarray(value)
    fits = len(array.shape) == len(parameter.shape) and all(
        not isinstance(d, int) or d == size
        for d, size in zip(parameter.shape, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name!r} has the shape {array.shape}, expected {parameter.shape}")
    return np.array(array, numpy_dtype(parameter.dtype))


def _declare(
    function: FunctionBuilder, name: str, what: spec.Spec
) -> Tensor | Data | tuple[PrimExpr, ...] | list[Any]:
    """The parameters for one argument, as the method receives them."""
    match what:
        case spec.Tensor(shape, dtype, donated):
            return function.tensor_param(name, shape, dtype, donated=donated)
        case spec.Lengths():
            return function.lengths_param(name, what)
        case spec.Ragged():
            return function.ragged_param(name, what)
        case spec.Shape(values):
            return function.shape_param(name, values)
        case spec.Data():
            return function.value_param(name, function.data_type(what))
        case Sequence() if not isinstance(what, str):
            return [_declare(function, f"{name}_{i}", s) for i, s in enumerate(what)]
        case _:
            raise TypeError(
                f"the specification of `{name}` is {kind_of(what)}; write "
                'nn.spec.Tensor(("n", 64), "float32")'
            )


@methods_name_arguments
class ModuleList(Module):
    """Modules in a sequence, numbered in the paths of their parameters."""

    def __init__(self, modules: Sequence[Module]) -> None:
        """TypeError for what is not a module."""
        for m in modules:
            if not isinstance(m, Module):
                raise TypeError(f"{m!r} is {kind_of(m)}, not a module")
        vars(self).update({str(i): m for i, m in enumerate(modules)})

    def __iter__(self) -> Iterator[Any]:
        return iter(vars(self).values())

    def __len__(self) -> int:
        return len(vars(self))

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]
