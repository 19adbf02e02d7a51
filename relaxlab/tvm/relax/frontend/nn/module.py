"""Modules of `nn`, whose methods `export_tvm` makes functions of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relaxlab.ir.module import Module as IRModule
from relaxlab.tvm.relax.frontend.nn.core import Parameter
from relaxlab.tvm.relax.frontend.nn.exporter import export


class Module:
    """Base of the modules: attributes that are parameters and modules are found by name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(self, "forward"):
            raise NotImplementedError(f"{type(self).__name__} has no method `forward`")
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names."""
        yield from _parameters(self, prefix)

    def parameters(self) -> Iterator[Parameter]:
        """All parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def state_dict(self) -> OrderedDict[str, Parameter]:
        """The parameters by name."""
        return OrderedDict(self.named_parameters())

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Give parameters values; returns the names that are missing and those that are unknown.
        Raises KeyError for such names if `strict`."""
        mine = self.state_dict()
        missing = [n for n in mine if n not in state_dict]
        unexpected = [n for n in state_dict if n not in mine]
        if strict and (missing or unexpected):
            raise KeyError(f"the state misses {missing}, and has the unknown {unexpected}")
        for name in mine.keys() & state_dict.keys():
            value = state_dict[name]
            mine[name].data = value.data if isinstance(value, Parameter) else value
        return missing, unexpected

    def to(self, dtype: str | None = None) -> None:
        """Change the dtypes of all parameters."""
        for parameter in self.parameters():
            parameter.to(dtype)
        for value in vars(self).values():
            if isinstance(value, Module):
                value.to(dtype)
        if dtype is not None and isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype

    def export_tvm(
        self, spec: Any, debug: bool = False, allow_extern: bool = False
    ) -> tuple[IRModule, list[tuple[str, Parameter]]]:
        """A module with a function for each method of the specification, and the parameters, which
        the functions take after their inputs."""
        if debug or allow_extern:
            raise NotImplementedError("export_tvm: there are no effects and external modules")
        return export(self, spec)


def _parameters(value: Any, prefix: str) -> Iterator[tuple[str, Parameter]]:
    if isinstance(value, Parameter):
        yield prefix, value
        return
    items: Any = ()
    if isinstance(value, Module):
        items = vars(value).items()
        if isinstance(value, ModuleList):
            items = enumerate(value)
        elif isinstance(value, ModuleDict):
            items = value.items()
    for name, inner in items:
        if isinstance(inner, Module | Parameter):
            yield from _parameters(inner, f"{prefix}.{name}" if prefix else str(name))


class ModuleList(Module):
    """Modules in a sequence, each of which is called on what the one before it returns."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self.modules = list(modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.modules)

    def __getitem__(self, index: int) -> Any:
        return self.modules[index]

    def __len__(self) -> int:
        return len(self.modules)

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        self.modules.append(module)

    def forward(self, x: Any) -> Any:
        for module in self.modules:
            x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self.modules = OrderedDict(modules or {})

    def __getitem__(self, key: str) -> Any:
        return self.modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.modules[key] = module

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def items(self) -> Any:
        return self.modules.items()

    def values(self) -> Any:
        return self.modules.values()
