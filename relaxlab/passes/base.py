"""Passes, which are pure functions Module -> Module under a name, and pipelines of them.

A pass returns the object it was given when it changes nothing, so "did it change?" is `is`.
Decisions are recorded with `relaxlab.tracing.remark`. A pass may declare which passes it needs
before it, and which have nothing to do after it; a `Pipeline` in an impossible order cannot be
built.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pkgutil import iter_modules
from typing import Any

from relaxlab.analysis.well_formed import check_graphs
from relaxlab.ir.arguments import methods_name_arguments, names_arguments, require_field
from relaxlab.ir.brief import Brief, cut
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import NestedTooDeeply, UserError, expect, kind_of
from relaxlab.ir.module import Module
from relaxlab.ir.names import among, meant
from relaxlab.ir.node import Attrs
from relaxlab.tracing import PassRecord, Trace, recording


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a pass that has none."""


@dataclass(frozen=True, slots=True, repr=False)
class Pass(Brief):
    """A named pass with its options (a frozen dataclass); call it on a module.

    needs: the passes that must have run before. ends: those that find nothing to do, or do harm,
    after this one.
    """

    name: str
    function: Callable[[Module, Any], Module]
    options: Any
    needs: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()

    def brief(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Pass({cut(str(self), 200)})"

    def __call__(self, mod: Module) -> Module:
        after = self.function(mod, self.options)
        if not isinstance(after, Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            got = kind_of(after)
            raise TypeError(f"pass {self.name!r} returned {got}; a pass returns a module")
        return after

    def with_options(self, **changes: Any) -> Pass:
        """The same pass with some options changed. Raises TypeError for an unknown option and for
        a value of another kind."""
        known = [f.name for f in dataclasses.fields(self.options)]
        for name, value in changes.items():
            if name not in known:
                raise TypeError(
                    f"pass {self.name!r} has no option {name!r}; it has: {among(name, known)}"
                )
            require_field(self.options, name, value, self.name)
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **changes))

    def __str__(self) -> str:
        if type(self.options).__str__ is not object.__str__:  # options that say it better
            return f"{self.name}({self.options})"
        shown = [
            f"{f.name}={getattr(self.options, f.name)}"
            for f in dataclasses.fields(self.options)
            if f.default is dataclasses.MISSING or getattr(self.options, f.name) != f.default
        ]
        return f"{self.name}({', '.join(shown)})" if shown else self.name


_REGISTRY: dict[str, Pass] = {}


@names_arguments
def module_pass(
    name: str,
    options: type[Any] = NoOptions,
    *,
    needs: tuple[str, ...] = (),
    ends: tuple[str, ...] = (),
) -> Callable[[Callable[[Module, Any], Module]], Pass]:
    """Register a function `(module, options) -> module` as the pass `name` (see `Pass` for `needs`
    and `ends`).

    Raises ValueError when the name is taken by another file's pass, TypeError for a function that
    does not take the two arguments.
    """

    for given in (needs, ends):
        expect(given, (tuple, list), 'needs and ends are names of passes, such as ("normalize",)')

    def register(function: Callable[[Module, Any], Module]) -> Pass:
        try:
            signature(function).bind(None, None)
        except TypeError as error:
            raise TypeError(
                f"pass {name!r}: a pass is a function of two arguments, (module, options), and "
                f"{function.__name__}{signature(function)} is not: {error}"
            ) from None
        known = _REGISTRY.get(name)
        if known is not None and known.function.__module__ != function.__module__:
            other = known.function.__module__
            raise ValueError(f"pass {name!r} is one of {other}; give yours another name")
        _REGISTRY[name] = Pass(name, function, options(), tuple(needs), tuple(ends))
        return _REGISTRY[name]

    return register


@names_arguments
def find_pass(name: str) -> Pass:
    """The pass of that name: one of the compiler's, or one that `module_pass` registered.

    Raises KeyError naming the known ones.
    """
    expect(name, str, "a pass is found by its name")
    if name not in _REGISTRY and name.isidentifier() and find_spec(f"relaxlab.passes.{name}"):
        import_module(f"relaxlab.passes.{name}")  # each pass is in the file of its name
    if name not in _REGISTRY:
        for found in iter_modules(import_module("relaxlab.passes").__path__, "relaxlab.passes."):
            import_module(found.name)
        raise KeyError(f"unknown pass {name!r}; known: {among(name, sorted(_REGISTRY))}")
    return _REGISTRY[name]


class PassFailed(Displayed, UserError):
    """A pass raised, or left an ill-formed module; `trace` ends with the failing pass."""

    def __init__(self, name: str, reason: str, trace: Trace) -> None:
        super().__init__(f"pass {name!r} failed: {reason}")
        self.trace = trace


class PipelineError(UserError, ValueError):
    """The passes of a pipeline cannot do their work in this order."""


@methods_name_arguments
@dataclass(frozen=True, slots=True, repr=False)
class Pipeline(Displayed, Brief):
    """Passes in order; print it to see them. `check` gives what is wrong with a module, after each
    pass that changed it; without one, graph functions are verified after passes that are not
    relaxlab's own.

    A pipeline with `normalize` in it starts from a program, and has all passes that its passes
    need. One without continues where another stopped: only the order is checked.
    Raises PipelineError naming each pass that is out of place, and where it belongs.
    """

    passes: tuple[Pass, ...]
    check: Callable[[Module], Iterable[Any]] | None = None

    def __repr__(self) -> str:
        names = cut(", ".join(p.name for p in self.passes), 200)
        return f"Pipeline({len(self.passes)} passes: {names})"

    def __post_init__(self) -> None:
        expect(self.passes, Iterable, "a pipeline is made of a list of passes")
        object.__setattr__(self, "passes", tuple(self.passes))  # of a list or a generator
        for one in self.passes:
            if not isinstance(one, Pass):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(_no_pass(one))
        problems = list(_out_of_order(self.passes))
        if problems:
            raise PipelineError("\n  ".join(["this pipeline cannot work:", *problems]))

    def __str__(self) -> str:
        return "\n".join(f"{i:3} {one}" for i, one in enumerate(self.passes, 1))

    def before(self, name: str, *new: Pass) -> Pipeline:
        """The pipeline with passes inserted before the first one of that name."""
        return self._inserted(self._places(name)[0], new)

    def after(self, name: str, *new: Pass) -> Pipeline:
        """The pipeline with passes inserted after the last one of that name."""
        return self._inserted(self._places(name)[-1] + 1, new)

    def without(self, name: str) -> Pipeline:
        """The pipeline without the passes of that name."""
        gone = self._places(name)
        kept = tuple(p for i, p in enumerate(self.passes) if i not in gone)
        return dataclasses.replace(self, passes=kept)

    def with_options(self, name: str, **changes: Any) -> Pipeline:
        """The pipeline with options changed of the passes of that name."""
        at = self._places(name)
        new = (p.with_options(**changes) if i in at else p for i, p in enumerate(self.passes))
        return dataclasses.replace(self, passes=tuple(new))

    def _inserted(self, at: int, new: tuple[Pass, ...]) -> Pipeline:
        return dataclasses.replace(self, passes=(*self.passes[:at], *new, *self.passes[at:]))

    def _places(self, name: str) -> list[int]:
        found = [i for i, p in enumerate(self.passes) if p.name == name]
        if not found:
            names = among(name, (p.name for p in self.passes))
            raise KeyError(f"the pipeline has no pass {name!r}; it has: {names}")
        return found

    def run(self, mod: Module) -> Trace:
        """Run all passes, recording before, after, decisions and time of each.

        Raises `PassFailed` (its `trace` holds what ran) when `check` finds something; a pass's own
        `DiagnosticError` about the user's program passes through unchanged.
        """
        trace, error = self.attempt(mod)
        if error is not None:
            raise error
        return trace

    def attempt(self, mod: Module) -> tuple[Trace, Exception | None]:
        """Like `run`, but return an error beside the trace so far, whose last record is that of the
        failing pass, instead of raising it."""
        Module.require(mod)
        records: list[PassRecord] = []
        current = mod
        for one in self.passes:
            current, record, error = self._run_one(one, current)
            records.append(record)
            if record.error is not None:
                trace = Trace(mod, tuple(records))
                return trace, error or PassFailed(one.name, record.error, trace)
        return Trace(mod, tuple(records)), None

    def _fault(self, one: Pass, after: Module) -> str | None:
        """Return the fault of the module that a pass made, None where none is found."""
        check = self.check
        if check is None:
            # The passes of relaxlab are verified by its tests: compiling need not take the time.
            if one.function.__module__.partition(".")[0] == "relaxlab":
                return None
            check = _graph_problems
        found = list(check(after))
        if found:
            return "the result is not well-formed:" + str(DiagnosticError(found))
        return None

    def _run_one(self, one: Pass, mod: Module) -> tuple[Module, PassRecord, Exception | None]:
        after, text, failure = mod, None, None
        start = time.perf_counter()
        with recording() as remarks:
            try:
                after = one(mod)
            except RecursionError:  # a thousand frames of the compiler would say less
                text = str(NestedTooDeeply())
            except Exception as error:  # noqa: BLE001  `run` raises it again
                failure, text = error, str(error) or type(error).__name__
        seconds = time.perf_counter() - start
        if after is not mod:
            text = self._fault(one, after) or text
        options = Attrs({f.name: getattr(one.options, f.name) for f in _fields(one.options)})
        record = PassRecord(one.name, options, mod, after, seconds, tuple(remarks), text)
        return after, record, failure


def _graph_problems(mod: Module) -> list[Diagnostic]:
    # Between a schedule that changed the layout of parameters and `rewrite_layouts`, calls do not
    # fit the functions that they call.
    waiting = any(f.attrs.get("layout_rewrites") for f in mod.loop_functions().values())
    return [] if waiting else check_graphs(mod)


def _no_pass(value: object) -> str:
    if callable(value):
        name = getattr(value, "__name__", "my_pass")
        return (
            f"a pipeline is made of passes, and {name} is a plain function: "
            f'module_pass("{name}")({name}) makes a pass of a function (module, options) -> module'
        )
    return f"a pipeline is made of passes, not of {value!r}"


def _out_of_order(passes: tuple[Pass, ...]) -> Iterator[str]:
    """Yield the faults of the order, one line each."""
    names = [p.name for p in passes]
    for i, one in enumerate(passes):
        place = f"`{one.name}` (pass {i + 1})"
        for needed in one.needs:
            if needed in names[:i]:
                continue
            if needed in names[i:]:
                later = names.index(needed, i) + 1
                yield f"{place} needs `{needed}` before it, which is pass {later}: swap them"
            elif "normalize" in names:
                found = "missing: add it" if _is_pass(needed) else f"no pass{meant(needed, names)}"
                yield f"{place} needs `{needed}` before it, which is {found}"
        for earlier, other in enumerate(passes[:i]):
            if one.name in other.ends:
                yield (
                    f"{place} comes after `{other.name}` (pass {earlier + 1}), which leaves "
                    "nothing for it: move it to the front"
                )


def _is_pass(name: str) -> bool:
    try:
        find_pass(name)
    except KeyError:
        return False
    return True


def _fields(options: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(options)
