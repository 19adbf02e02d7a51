"""Modules of `nn`, whose methods `export_tvm` makes functions of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from relaxlab.tvm.relax.frontend.nn.core import Parameter
from relaxlab.tvm.relax.frontend.nn.effects import Effect
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
            if isinstance(value, Module | Effect):
                value.to(dtype)
        if dtype is not None and isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype

    def export_tvm(
        self, spec: Any, debug: bool = False, allow_extern: bool = False
    ) -> tuple[Any, ...]:
        """A module with a function for each method of the specification, and the parameters, which
        the functions take after their inputs; with `debug`, methods may print. With `allow_extern`
        a list of external modules, too, which is empty: no module of `nn` makes any."""
        made = export(self, spec, [*_effects(self, "")], debug)
        return (*made, []) if allow_extern else made


def _parameters(value: Any, prefix: str) -> Iterator[tuple[str, Parameter]]:
    if isinstance(value, Parameter):
        yield prefix, value
        return
    for path, inner in _parts(value, prefix):
        if isinstance(inner, Module | Parameter):
            yield from _parameters(inner, path)


def _effects(value: Module, prefix: str) -> Iterator[tuple[str, Effect]]:
    for path, inner in _parts(value, prefix):
        if isinstance(inner, Effect):
            yield path, inner
        elif isinstance(inner, Module):
            yield from _effects(inner, path)


def _parts(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The attributes or items of a module, by their dotted names."""
    items: Any = ()
    if isinstance(value, Module):
        items = vars(value).items()
        if isinstance(value, _Sequence):
            items = enumerate(value)
        elif isinstance(value, _Mapping):
            items = value.items()
    for name, inner in items:
        yield f"{prefix}.{name}" if prefix else str(name), inner


class _Sequence(Module):
    """Items in a sequence, which have their positions as names."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.contents = list(items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.contents)

    def __getitem__(self, index: int) -> Any:
        return self.contents[index]

    def __setitem__(self, index: int, item: Any) -> None:
        self.contents[index] = item

    def __len__(self) -> int:
        return len(self.contents)

    def append(self, item: Any) -> None:
        """Add an item at the end."""
        self.contents.append(item)


class ModuleList(_Sequence):
    """Modules in a sequence, each of which is called on what the one before it returns."""

    def __init__(self, modules: Sequence[Module]) -> None:
        super().__init__(modules)

    @property
    def modules(self) -> list[Module]:
        return self.contents

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


class ParameterList(_Sequence):
    """Parameters in a sequence."""

    def __init__(self, params: Sequence[Parameter] | None = None) -> None:
        super().__init__(params or ())

    def extend(self, params: Iterable[Parameter]) -> None:
        """Add parameters at the end."""
        self.contents.extend(params)


class _Mapping(Module, MutableMapping[str, Any]):
    """Items by name."""

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self.contents = OrderedDict(items or {})

    def __getitem__(self, key: str) -> Any:
        return self.contents[key]

    def __setitem__(self, key: str, item: Any) -> None:
        self.contents[key] = item

    def __delitem__(self, key: str) -> None:
        del self.contents[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class ModuleDict(_Mapping):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__(modules)

    @property
    def modules(self) -> OrderedDict[str, Module]:
        return self.contents


class ParameterDict(_Mapping):
    """Parameters by name."""

    def __init__(self, params: Mapping[str, Parameter] | None = None) -> None:
        super().__init__(params)
