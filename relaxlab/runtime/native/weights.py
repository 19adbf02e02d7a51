"""Weights in the layouts of the source program, packed into the layouts of the compiled kernels.

`lift_transform_params` moves computations on weights alone to a function of its own. This module
calls that function for callers that pass the weights of the program as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from weakref import ref

from relaxlab.ir import graph
from relaxlab.ir.brief import cut
from relaxlab.ir.errors import kind_of
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.runtime.native.arguments import ArgumentError

Run: TypeAlias = Callable[..., Any]
"""Runs the function of a name with arguments."""


def transform_of(mod: Module, name: str) -> str | None:
    """The name of the function that transforms the weights of a function; None where none does."""
    func = mod.get(name)
    return func.attrs.get("transform_params") if isinstance(func, graph.Function) else None


def transforms_of(mod: Module) -> dict[str, str]:
    """The functions that transform weights, by the functions that take these."""
    found = ((name, transform_of(mod, name)) for name in mod.graph_functions())
    return {name: by for name, by in found if by is not None}


def weights_of(mod: Module, name: str) -> tuple[graph.Var, ...]:
    """The parameters of a graph function that are weights: those after its first `num_input`."""
    func = mod.get(name)
    if not isinstance(func, graph.Function) or "num_input" not in func.attrs:
        return ()
    return func.params[func.attrs["num_input"] :]


def parameter_name(path: str) -> str:
    """The name of the parameter for a weight with this dotted path; an identifier where the path
    is made of identifiers and numbers."""
    name = path.replace(".", "_")
    return f"_{name}" if name[:1].isdigit() else name


class Transform:
    """The function `name` of an executable, which packs weights, `count` of them. Its results are
    recognised for as long as their arrays live: packed weights may have the types of the others,
    and would be packed again.
    """

    def __init__(self, name: str, count: int, pack: Callable[..., Any]) -> None:
        self.name, self.count, self.pack = name, count, pack
        self._results: dict[tuple[int, ...], tuple[ref[Any], ...]] = {}

    def __call__(self, *args: Any) -> Any:
        return self.noted(self.pack(*args))

    def noted(self, result: Any) -> Any:
        """A result of the function, which is recognised from now on."""
        # By identity, since packed weights may have the shapes of others; `forget` keeps a key from
        # outliving its arrays, whose ids are used again.
        key, results = tuple(map(id, result)), self._results

        def forget(_: ref[Any]) -> None:
            results.pop(key, None)

        results[key] = tuple(ref(value, forget) for value in result)
        return result

    def returned(self, values: Sequence[Any]) -> bool:
        """Return whether these very arrays are one result."""
        return tuple(map(id, values)) in self._results


class Weights:
    """The weights of a function: `names` in the program that was compiled, and how they become
    those that the compiled function takes, behind its `inputs`."""

    def __init__(
        self, function: str, inputs: int, names: Sequence[str], transform: Transform | None
    ) -> None:
        self.names, self.inputs = tuple(names), inputs
        self._function, self._transform = function, transform

    @property
    def are_packed(self) -> bool:
        """True if the compiled function takes others than the program does."""
        return self._transform is not None

    def packed(self, weights: Sequence[Any]) -> tuple[Any, ...]:
        """The weights of the program as the compiled function takes them."""
        if self._transform is None:
            return tuple(weights)
        try:
            return self._transform(tuple(weights))
        except ArgumentError as error:
            raise ArgumentError(self._named(str(error))) from None

    def _named(self, message: str) -> str:
        """A message about a place in the tuple that is packed, about the weight there instead."""
        assert self._transform is not None
        for number, name in enumerate(self.names):
            place = f"argument `params[{number}]` of `{self._transform.name}`"
            message = message.replace(place, f"the weight `{name}` of `{self._function}`")
        return message

    def for_binding(self, last: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the last arguments of a call with packed weights instead of those of the program,
        as `adapt` does for all arguments. Raises ArgumentError for some of the weights alone."""
        count = len(self.names)
        if self._transform is None or not last:
            return last
        if len(last) < count:
            raise ArgumentError(
                f"`{self._function}` packs its {count} weights ({cut(', '.join(self.names), 60)}) "
                f"together: bind all of them, not the last {len(last)}"
            )
        inputs, weights = last[:-count], last[-count:]
        return last if self._transform.returned(weights) else (*inputs, *self.packed(weights))

    def adapt(self, args: tuple[Any, ...], run: Run | None = None) -> tuple[Any, ...]:
        """Return the arguments of a call with packed weights instead of those of the program;
        `run` runs the transformation in another way than calls do. The result of the executable's
        own transformation is taken as it is. Raises ArgumentError for a call without weights."""
        if self.names and len(args) == self.inputs:
            raise ArgumentError(
                f"`{self._function}` was given no weights ({cut(', '.join(self.names), 60)}): "
                "`exe.load(weights)` binds them once, and calls take the inputs alone then"
            )
        if self._transform is None or len(args) != self.inputs + len(self.names):
            return args
        inputs, weights = args[: self.inputs], args[self.inputs :]
        if self._transform.returned(weights):
            return args
        # Nobody else gets to see the result.
        pack = self._transform.pack if run is None else partial(run, self._transform.name)
        try:
            return (*inputs, *pack(weights))
        except ArgumentError as error:
            raise ArgumentError(self._named(str(error))) from None


def find_weights(
    mod: Module, transforms: Mapping[str, Transform], transforms_by: Mapping[str, str],
    parameters: Mapping[str, int],
) -> dict[str, Weights]:  # fmt: skip
    """The weights of the functions of a compiled program. mod: what was compiled. transforms_by: by
    the name of a function, that of the one which transforms its weights. parameters: how many a
    compiled function takes."""
    found: dict[str, Weights] = {}
    for name in mod.graph_functions():
        names = [w.name for w in weights_of(mod, name)]
        if names and name in parameters:
            transform = transforms.get(transforms_by.get(name, ""))
            packed = len(names) if transform is None else transform.count
            found[name] = Weights(name, parameters[name] - packed, names, transform)
    return found


def packed_by_function(
    weights: Mapping[str, Weights], params: Mapping[str, Any] | Sequence[Any]
) -> dict[str, tuple[Any, ...]]:
    """The weights of each function as it takes them, packed once for all that share them.

    Raises ArgumentError naming arrays that are missing or that no function takes.
    """
    if not weights:
        raise ArgumentError(
            "no function of this executable declares weights: `num_input` among a function's "
            "attributes says how many of its parameters are none, as `nn.Module.export` does"
        )
    if not isinstance(params, Mapping | Sequence):
        raise TypeError(
            f"weights are a dictionary of arrays by name, or a list of them, not {kind_of(params)}"
        )
    used: set[str] = set()
    bound: dict[str, tuple[Any, ...]] = {}
    packed: dict[tuple[Transform | None, tuple[str, ...]], tuple[Any, ...]] = {}
    for name, one in weights.items():
        key = (one._transform, one.names)
        if key not in packed:
            packed[key] = one.packed(_in_order(name, one.names, params, used))
        bound[name] = packed[key]
    if isinstance(params, Mapping):
        unknown = [n for n in params if not used & _parameter_names(n)]
        if unknown:
            raise ArgumentError(
                f"no function has a weight {unknown[0]!r} ({len(unknown)} in all); the weights "
                f"are: {among(unknown[0], sorted(used))}"
            )
    return bound


def _in_order(
    function: str, names: Sequence[str], params: Mapping[str, Any] | Sequence[Any], used: set[str]
) -> list[Any]:
    """Return the arrays in the order of a function's weights. In a mapping, dots replace the `_` of
    the parameters' names, as in the paths of `nn` modules."""
    if not isinstance(params, Mapping):
        if len(params) != len(names):
            raise ArgumentError(
                f"`{function}` has {len(names)} weights ({', '.join(names)}), got {len(params)}"
            )
        return list(params)
    by_name = {name: value for key, value in params.items() for name in _parameter_names(key)}
    missing = [n for n in names if n not in by_name]
    if missing:
        raise ArgumentError(
            f"the weight `{missing[0]}` of `{function}` is missing ({len(missing)} in all); "
            f"given are: {', '.join(params) or 'none'}"
        )
    used.update(names)
    return [by_name[n] for n in names]


def _parameter_names(key: str) -> set[str]:
    """The names of the parameter that a key of a mapping may mean: a plain matrix is a module with
    `data` of its own in `nn`, and nothing but a name in PyTorch."""
    name = parameter_name(key)
    return {name, f"{name}_data"}
