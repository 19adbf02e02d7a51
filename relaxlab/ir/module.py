"""A module: functions of both levels under their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.display import script_of
from relaxlab.ir.errors import kind_of
from relaxlab.ir.graph import ExternFunc, Function
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.names import among, fresh_name
from relaxlab.ir.node import NO_ATTRS, Attrs, Node, hint_field, node, replace

BaseFunc = Function | PrimFunc | ExternFunc

GLOBAL_INFOS = "global_infos"
"""The attribute of a module that holds what its functions share: its virtual devices, each a
target, its number and the kind of its memory."""
_SHOWN = 12
"""Functions that the `repr` of a module names."""
_IMPORTERS = {"torch": "from_torch", "jax": "from_jax", "onnx": "from_onnx"}
_WITHOUT_IMPORTER = ("tensorflow", "keras")
"""Packages whose models people give where a module is expected."""


def name_of(func: BaseFunc) -> str:
    """Return the name of a function on its own: its `global_symbol`, else the name under which it
    was defined, else `main`."""
    demanded = func.attrs.get("global_symbol") if isinstance(func, Function | PrimFunc) else None
    return str(demanded or getattr(func, "name_hint", "") or "main")


@methods_name_arguments
@node
class Module(Node):
    """Named functions in definition order; immutable: the `with_` methods return new modules.

    >>> Module.of({})
    Module()
    """

    functions: tuple[tuple[str, BaseFunc], ...]
    attrs: Attrs = NO_ATTRS
    name_hint: str = hint_field(default="")

    def __post_init__(self) -> None:
        if isinstance(self.functions, Mapping):
            raise TypeError("Module.of(functions) makes a module of a dictionary of functions")
        for name, function in self.functions:
            if isinstance(function, Function | PrimFunc):
                if not function.name_hint:  # so that it has its name when it is taken out
                    object.__setattr__(function, "name_hint", name)
            elif not isinstance(function, ExternFunc):  # pyright: ignore[reportUnnecessaryIsInstance]
                kind = type(function).__name__
                raise TypeError(f"a module holds functions, and {name!r} is a {kind}")

    def brief(self) -> str:
        return f"{self.name_hint or 'Module'}({', '.join(self)})"

    def __repr__(self) -> str:
        kinds = {Function: "graph function", PrimFunc: "loop function", ExternFunc: "external"}
        texts = [f"{name}: {kinds[type(f)]}" for name, f in self.functions[:_SHOWN]]
        more = [f"… {len(self)} functions in all"] if len(self) > _SHOWN else []
        return f"{self.name_hint or 'Module'}({', '.join([*texts, *more])})"

    def __str__(self) -> str:
        return self.script()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raise TypeError: a module is a program, and what is compiled of it is called."""
        name = self.name_hint or "mod"
        raise TypeError(
            f"{name} is a program: compile it and call that, `rl.compile({name})(...)`, or run it "
            f'in NumPy, `rl.interpret({name}, "main", ...)`'
        )

    @staticmethod
    def require(value: object) -> None:
        """Raise TypeError for a value that is no module."""
        if not isinstance(value, Module):
            advice = "rl.parse(text) makes one of a script"
            # A user's own model is a class of a framework's class.
            packages = {c.__module__.partition(".")[0] for c in type(value).__mro__}
            importers = [importer for name, importer in _IMPORTERS.items() if name in packages]
            if isinstance(value, type):
                advice = f"write @I.ir_module above `class {value.__name__}`"
            elif isinstance(value, FunctionType):
                advice = f"write @R.function or @T.prim_func above `def {value.__name__}`"
            elif hasattr(value, "export") and "relaxlab" in packages:
                advice = "`mod, names = model.export(...)` makes one of a model"
            elif importers:
                advice = f"rl.{importers[0]}(...) imports it"
            elif packages & {*_WITHOUT_IMPORTER}:
                advice = "there is no importer for it: write the model with rl.nn, or as a script"
            raise TypeError(f"expected a module, got {kind_of(value)}; {advice}")

    @staticmethod
    def of(functions: Mapping[str, BaseFunc], attrs: Attrs = NO_ATTRS) -> Module:
        """A module from a dictionary."""
        return Module(tuple(functions.items()), attrs)

    def __getitem__(self, name: str) -> BaseFunc:
        for key, fn in self.functions:
            if key == name:
                return fn
        names = among(name, (k for k, _ in self.functions))
        raise KeyError(f"no function named {name!r} in the module; it has: {names}")

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self.functions)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    if not TYPE_CHECKING:  # there, misspelt methods are to be seen

        def __getattr__(self, name: str) -> BaseFunc:
            """`mod.main` is `mod["main"]` for names that are no attribute of modules."""
            if name.startswith("_") or name not in self:
                names = ", ".join(self) if not name.startswith("_") else ""
                has = f"; its functions: {names}" if names else ""
                raise AttributeError(f"the module has no attribute or function {name!r}{has}")
            return self[name]

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *filter(str.isidentifier, self)})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def get(self, name: str) -> BaseFunc | None:
        """The function of that name, or None."""
        return next((fn for key, fn in self.functions if key == name), None)

    def items(self) -> tuple[tuple[str, BaseFunc], ...]:
        """Pairs of name and function."""
        return self.functions

    def graph_functions(self) -> dict[str, Function]:
        """The graph functions by name."""
        return {k: f for k, f in self.functions if isinstance(f, Function)}

    def loop_functions(self) -> dict[str, PrimFunc]:
        """The loop functions by name."""
        return {k: f for k, f in self.functions if isinstance(f, PrimFunc)}

    def with_functions(self, updates: Mapping[str, BaseFunc]) -> Module:
        """A module with the functions in `updates` replaced in place, new ones appended."""
        if all(self.get(k) is f for k, f in updates.items()):
            return self
        return replace(self, functions=tuple({**dict(self.functions), **updates}.items()))

    def without(self, *names: str) -> Module:
        """A module without the named functions."""
        kept = tuple((k, f) for k, f in self.functions if k not in names)
        return self if len(kept) == len(self.functions) else replace(self, functions=kept)

    def fresh_name(self, hint: str) -> str:
        """`hint`, or `hint1`, `hint2`, … when it is taken."""
        return fresh_name(hint, self.__contains__, separator="")

    def script(self, **options: Any) -> str:
        """The module as a runnable script; see `relaxlab.script.printer.print_module`."""
        return script_of(self, **options)
