"""Modules: parameters and submodules as attributes, methods that build graph functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from relaxlab.ir.brief import Brief
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module as IRModule
from relaxlab.ir.node import Attrs
from relaxlab.nn import spec
from relaxlab.nn.builder import FunctionBuilder, ModuleBuilder, Parameter, Tensor


def _no_forward(self: Module, *_: Any) -> Any:
    raise NotImplementedError(f"{type(self).__name__} defines no forward")


class Module(Brief):
    """Base of the modules, as in PyTorch: attributes that are `Parameter`s and `Module`s are
    found by name; calling a module calls `forward`, which emits calls on `Tensor`s."""

    forward: Callable[..., Any] = _no_forward

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted paths, in order of definition."""
        yield prefix, self
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield from value.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self) -> dict[str, Parameter]:
        """All parameters by dotted path; one that several modules share has its first path."""
        found: dict[Parameter, str] = {}
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter):
                    found.setdefault(value, f"{prefix}.{name}" if prefix else name)
        return {name: parameter for parameter, name in found.items()}

    def export(
        self,
        methods: Mapping[str, Mapping[str, spec.Spec]],
        bounds: Mapping[str, int] | None = None,
    ) -> tuple[IRModule, list[str]]:
        """A module with one graph function per method, and the names of its weights.

        `methods` gives, per method, the specification of each argument; a list of specifications
        becomes that many parameters. Every function takes those parameters (attribute
        `num_input` says how many), then all weights in the order of the returned names; a method
        returns a tensor, or a sequence of tensors that becomes a tuple. `bounds` are upper bounds
        of symbols (attribute `tir_var_upper_bound`).
        """
        weights = self.named_parameters()
        module = ModuleBuilder()
        for name, arguments in methods.items():
            function = FunctionBuilder(module, bounds)
            inputs = [_declare(function, n, s) for n, s in arguments.items()]
            attrs: dict[str, Any] = {"num_input": function.num_params}
            known = {s: upper for s, upper in (bounds or {}).items() if function.has_symbol(s)}
            if known:
                attrs["tir_var_upper_bound"] = Attrs(known)
            for path, weight in weights.items():
                function.weight_param(path.replace(".", "_"), weight)
            result = getattr(self, name)(*inputs)
            module.add_graph_function(name, function.finish(result, Attrs(attrs)))
        return module.module(), list(weights)


def _declare(
    function: FunctionBuilder, name: str, what: spec.Spec
) -> Tensor | tuple[PrimExpr, ...] | list[Any]:
    """The parameters for one argument, as the method receives them."""
    match what:
        case spec.Tensor(shape, dtype):
            return function.tensor_param(name, shape, dtype)
        case spec.Shape(values):
            return function.shape_param(name, values)
        case Sequence():
            return [_declare(function, f"{name}_{i}", s) for i, s in enumerate(what)]


class ModuleList(Module):
    """Modules in a sequence, numbered in the paths of their parameters."""

    def __init__(self, modules: Sequence[Module]) -> None:
        vars(self).update({str(i): m for i, m in enumerate(modules)})

    def __iter__(self) -> Iterator[Any]:
        return iter(vars(self).values())

    def __len__(self) -> int:
        return len(vars(self))

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]
