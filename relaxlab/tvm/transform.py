"""`tvm.transform`: passes, sequences of them, and the context that they run in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

from relaxlab.ir.module import Module
from relaxlab.ir.node import replace


@dataclass(frozen=True)
class PassInfo:
    """The name of a pass, and from which level of optimisation on it runs in a sequence."""

    opt_level: int
    name: str
    required: tuple[str, ...] = ()
    traceable: bool = False


class PassContext:
    """Options of the passes that run inside `with PassContext(...)`; `instruments` are told before
    and after each pass."""

    _current: ContextVar[PassContext | None] = ContextVar("relaxlab_tvm_context", default=None)

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = list(required_pass or ())
        self.disabled_pass = list(disabled_pass or ())
        self.instruments = list(instruments or ())
        self.config = dict(config or {})
        self._tokens: list[Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or one with the defaults."""
        return PassContext._current.get() or PassContext()

    def __enter__(self) -> PassContext:
        self._tokens.append(PassContext._current.set(self))
        self.tell("enter_pass_ctx")
        return self

    def __exit__(self, *_: object) -> None:
        self.tell("exit_pass_ctx")
        PassContext._current.reset(self._tokens.pop())

    def override_instruments(self, instruments: Sequence[Any]) -> None:
        """Replace the instruments."""
        self.tell("exit_pass_ctx")
        self.instruments = list(instruments)
        self.tell("enter_pass_ctx")

    def tell(self, event: str, *args: Any) -> None:
        """Call the method `event` of each instrument that has it."""
        for instrument in self.instruments:
            if hasattr(instrument, event):
                getattr(instrument, event)(*args)

    def wants(self, mod: Module, info: PassInfo) -> bool:
        """True unless an instrument refuses the pass."""
        return (
            all(
                i.should_run(mod, info) is not False
                for i in self.instruments
                if hasattr(i, "should_run")
            )
            and info.name not in self.disabled_pass
        )

    def enables(self, info: PassInfo) -> bool:
        """True if a sequence runs the pass."""
        return info.name in self.required_pass or self.opt_level >= info.opt_level


class Pass:
    """A function from module to module under a name."""

    def __init__(self, run: Callable[[Module, PassContext], Module], info: PassInfo) -> None:
        self._run, self.info = run, info

    def __call__(self, mod: Module) -> Module:
        context = PassContext.current()
        if not context.wants(mod, self.info):
            return mod
        context.tell("run_before_pass", mod, self.info)
        after = self._run(mod, context)
        if not isinstance(after, Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = type(after).__name__
            raise TypeError(f"pass {self.info.name!r} returned {kind}, not a module")
        context.tell("run_after_pass", after, self.info)
        return after

    def __repr__(self) -> str:
        return f"Pass({self.info.name})"


ModulePass = Pass


class Sequential(Pass):
    """Passes one after the other."""

    def __init__(
        self,
        passes: Iterable[Callable[[Module], Module]] = (),
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> None:
        self.passes = list(passes)
        super().__init__(self._all, PassInfo(opt_level, name, tuple(required or ())))

    def _all(self, mod: Module, context: PassContext) -> Module:
        for one in self.passes:
            info = getattr(one, "info", None)
            if not isinstance(info, PassInfo) or context.enables(info):
                mod = one(mod)
        return mod


def changed_by(change: Callable[[Any], Any], func: Any, name: str) -> Any:
    """The result of `change` for a function of a module, which has its name there as an attribute
    if it is public, as TVM's functions do."""
    if func.private or "global_symbol" in func.attrs:
        return change(func)
    made = change(replace(func, attrs=func.attrs.with_(global_symbol=name)))
    if made is None or made.attrs.get("global_symbol") != name:
        return made
    return replace(made, attrs=made.attrs.with_(global_symbol=None))


def as_pass(
    given: Any, opt_level: int | None, name: str | None, run: Callable[..., Any], method: str
) -> Any:
    """A pass of what a decorator is above: a function, or a class with the method `method`.

    `run(body, mod, context)` applies the decorated function to a module.
    """
    if opt_level is None:
        raise ValueError("a pass needs an opt_level")
    if not inspect.isclass(given):
        info = PassInfo(opt_level, name or given.__name__)
        return Pass(lambda mod, context: run(given, mod, context), info)

    class Decorated(Pass):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            held = given(*args, **kwargs)
            info = PassInfo(opt_level, name or given.__name__)
            body = getattr(held, method)
            super().__init__(lambda mod, context: run(body, mod, context), info)
            self._held = held

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self.__dict__["_held"], attribute)

    update_wrapper(Decorated, given, updated=())
    return Decorated


def decorator(run: Callable[..., Any], method: str) -> Callable[..., Any]:
    """A decorator of passes, with options or without."""

    def decorate(
        pass_func: Any = None,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> Any:
        if pass_func is None:
            return lambda given: as_pass(given, opt_level, name, run, method)
        return as_pass(pass_func, opt_level, name, run, method)

    return decorate


module_pass = decorator(lambda body, mod, context: body(mod, context), "transform_module")
"""Makes a pass of a function `(mod, context) -> mod`, or of a class with `transform_module`."""


def PrintIR(header: str = "", show_meta_data: bool = False) -> Pass:  # noqa: N802
    """A pass that prints the module and leaves it."""

    def run(mod: Module, _: PassContext) -> Module:
        print(header, mod.script(), sep="\n" if header else "")
        return mod

    return Pass(run, PassInfo(0, "PrintIR"))
