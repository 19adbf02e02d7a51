"""Every public callable, given a value of a wrong kind for each of its arguments, names what is
wrong: no error of Python's own leaves the package."""

from __future__ import annotations

import inspect
import re
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import arguments
from relaxlab.ir.arguments import UnknownArgument, WrongKind, names_arguments
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

MOD = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    return R.nn.relu(x)
""")
FUNC = rl.parse("""
@T.prim_func
def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.sblock("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
""")["double"]
WRONG: dict[str, Any] = {
    "None": None, "text": "text", "list": [1, "a"], "array": np.zeros((2, 3), "float32"),
    "float": 2.5, "function": lambda: None, "class": rl.nn.Linear, "dict": {"a": 1}, "int": -3,
}  # fmt: skip
RIGHT: dict[str, Any] = {
    **dict.fromkeys(("mod", "module", "program", "node", "root", "n"), MOD),
    **dict.fromkeys(("func", "fn", "subject"), FUNC), "trace": rl.trace(MOD), "name": "main",
    "source": "@R.function\ndef main(x: R.Tensor((4,))):\n    return x\n", "target": "cpu",
}  # fmt: skip
"""Values of the other arguments, by name."""
SEARCHES = {"rl.tune"}
"""Callables that would take long with right arguments: their options are left out."""
RECORDS = {
    "BlockKernel", "CheckReport", "Comparison", "CudaExecutable", "Diagnostic",
    "FusionPattern", "NoOptions", "Ragged", "SimtReport", "TargetKind",
    "TensorIntrin", "Timing", "Tuning",
}  # fmt: skip
"""Classes whose constructors are those that Python makes of their fields."""
TYPES = {"Activation", "Activations", "Cache"}
"""Names for annotations, which nobody calls."""
INNER = {
    "Decoder",
    "Executable",
    "TextGenerator",
    "Transcriber",
    "InterpretedExecutable",
    "belongs_to",
}
"""Constructors and a method that `load`, `from_pretrained` or `rl.compile` call."""


def objects(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    exe, tuned = rl.compile(MOD), rl.Database(folder / "tuned.jsonl")
    yield "Schedule", lambda: rl.Schedule(FUNC)
    yield "Executable", lambda: exe
    yield "Module", lambda: MOD
    yield "Trace", lambda: RIGHT["trace"]
    yield "Pipeline", rl.cpu_pipeline
    yield "View", lambda: rl.explore.graph(MOD)
    yield "BlockBuilder", rl.BlockBuilder
    yield "Database", lambda: tuned
    yield "nn.Linear", lambda: rl.nn.Linear(3, 4)
    yield "Target", lambda: rl.Target("cpu")
    yield "Ragged", lambda: rl.ragged([np.zeros(3, "float32")])


def public(prefix: str, home: Any, names: list[str]) -> Iterator[tuple[str, Any, Any]]:
    """Names, what is called, and what has the signature."""
    for name in names:
        value = getattr(home, name)
        is_error = inspect.isclass(value) and issubclass(value, BaseException)
        if callable(value) and not inspect.ismodule(value) and not is_error:
            yield f"{prefix}.{name}", value, value


def methods(label: str, make: Callable[[], Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in dir(type(make())):
        value = getattr(type(make()), name)
        # `relaxlab.tvm` adds methods of its names to classes.
        own = not str(getattr(value, "__module__", "")).startswith("relaxlab.tvm")
        if not name.startswith("_") and inspect.isroutine(value) and own:
            value = getattr(make(), name)
            again = lambda *a, _name=name, **k: getattr(make(), _name)(*a, **k)  # noqa: E731
            yield f"{label}.{name}", again, value


def of_namespace(prefix: str, home: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in dir(home):
        value = getattr(home, name)
        if not name.startswith("_") and callable(value):
            yield f"{prefix}.{name}", value, value
        elif inspect.ismodule(value) and prefix.count(".") < 2:
            yield from of_namespace(f"{prefix}.{name}", value)


def fits(parameter: inspect.Parameter, fn: Any, value: Any) -> bool:
    """True if an annotation allows a value: what comes of it is not asked here."""
    owner = fn.__init__ if inspect.isclass(fn) else getattr(fn, "__func__", fn)
    owner = inspect.unwrap(owner)
    if not hasattr(owner, "__module__") or parameter.annotation is parameter.empty:
        return False
    wanted = arguments._annotation(owner, parameter.annotation)
    return wanted is not Any and not arguments.wrong_kinds(value, wanted)


def finish(result: Any) -> None:
    """Exhaust a generator and enter a context manager, whose errors come only then."""
    if isinstance(result, types.GeneratorType):
        list(result)
    elif isinstance(result, AbstractContextManager) and not isinstance(result, rl.BlockBuilder):
        with result:
            pass


def bare(call: Callable[[], Any]) -> str:
    """The error that a call fails with, if no statement of the package raised it; "" if one did."""
    try:
        finish(call())
    except Exception as error:  # noqa: BLE001  any is looked at
        assert str(error)
        frames = traceback.extract_tb(error.__traceback__)
        # Python names the argument itself that is missing or unknown.
        binding = frames[-1].filename in (__file__, arguments.__file__)
        if not (arguments.is_raised_here(error) or binding and isinstance(error, TypeError)):
            return f"{type(error).__name__}: {error} ({frames[-1].filename}:{frames[-1].lineno})"
    return ""


def attempts(name: str, fn: Any, signature_of: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    try:
        params = [*inspect.signature(signature_of).parameters.values()]
    except ValueError:  # of a class written in C
        return
    needed = [p for p in params if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    named = [p for p in params if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    options = [p for p in params if p.default is not p.empty]
    known = name not in SEARCHES and all(p.name in RIGHT for p in (*needed, *named))
    for kind, value in WRONG.items():

        def given(
            changed: inspect.Parameter, some: list[inspect.Parameter], value: Any = value
        ) -> dict[str, Any]:
            return {p.name: value if p is changed else RIGHT.get(p.name, value) for p in some}

        for p in (*needed, *named):
            if not fits(p, signature_of, value):
                args, more = given(p, needed), given(p, named)
                yield f"{name}({p.name}={kind})", lambda a=args, m=more: fn(*a.values(), **m)
        for p in options if known else ():
            if not fits(p, signature_of, value) and p.kind is not p.POSITIONAL_ONLY:
                args, more = given(p, needed), given(p, named)
                more[p.name] = value
                yield f"{name}({p.name}={kind})", lambda a=args, m=more: fn(*a.values(), **m)


def failing(callables: Iterator[tuple[str, Any, Any]]) -> list[str]:
    found: list[str] = []
    count = 0
    for name, fn, signature_of in callables:
        if name.rpartition(".")[2] in TYPES | INNER:
            continue
        for text, call in attempts(name, fn, signature_of):
            count += 1
            error = bare(call)
            found += [f"{text}: {error}"] if error else []
    assert count > 100
    return found


def test_functions_and_classes_of_the_package(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert not failing(public("rl", rl, rl.__all__)), "see names_arguments"


def test_modules_explorers_and_computations() -> None:
    explorers = [n for n in dir(rl.explore) if not n.startswith("_")]
    assert not failing(public("rl.explore", rl.explore, explorers))
    modules = [n for n in dir(rl.nn) if not n.startswith("_")]
    assert not failing(public("nn", rl.nn, modules))
    own = [n for n, f in vars(rl.te).items() if getattr(f, "__module__", "") == rl.te.__name__]
    assert not failing(public("te", rl.te, [n for n in own if n[0].islower()]))


@pytest.mark.parametrize("label", [
    "Schedule", "Executable", "Module", "Trace", "Pipeline", "View", "BlockBuilder",
    "Database", "nn.Linear", "Target", "Ragged",
])  # fmt: skip
def test_methods(label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make = dict(objects(tmp_path))[label]
    calls = [
        call
        for name, fn, of in methods(label, make)
        if name.rpartition(".")[2] not in INNER
        for call in attempts(name, fn, of)
    ]
    found = [f"{text}: {error}" for text, call in calls if (error := bare(call))]
    assert calls and not found


@pytest.mark.parametrize(("prefix", "home"), [("R", R), ("T", T), ("I", I)])
def test_the_script_language(prefix: str, home: Any) -> None:
    found = [
        f"{text}: {error}"
        for name, fn, of in of_namespace(prefix, home)
        for text, call in attempts(name, fn, of)
        if (error := bare(call))
    ]
    assert not found


@names_arguments
def measured(counts: dict[str, list[int]], by: str | None = None, *names: str) -> int:
    return sum(counts[name][0] + 0 for name in names)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measured({"a": [None]}, None, "a"), "not a dict with None in it"),
        (lambda: measured(None, None, "a"), r"`counts` of measured is a dict.*, not None"),
        (lambda: measured({"a": [1]}, None, ["a"]), "`names` of measured is a string, not a list"),
        (lambda: rl.compile(MOD, use_cache="no"), "`use_cache` of compile is True or False, not"),
        (lambda: rl.te.compute(None, lambda i: i), "`shape` of compute is a Sequence.*, not None"),
        (lambda: rl.nn.Linear(3, 4).forward(3), "`x` of Linear.forward is a Tensor, not 3"),
        (lambda: rl.Module.of(None), "`functions` of Module.of is a dictionary of .*, not None"),
        (lambda: rl.explore.memory(MOD, [1]), "`name` of Explore.memory is a string or None"),
    ],
)  # fmt: skip
def test_messages(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(WrongKind, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rl.trace(MOD, targets="cpu"), "trace has no argument 'targets'; it has: program"),
        (lambda: rl.check(MOD, size=[3]), "did you mean 'sizes'?"),
        (lambda: rl.nn.Linear(3, 4, bais=True), "Linear has no argument 'bais'; it has: in"),
        (lambda: rl.explore(MOD, view=["graph"]), "Explore has no argument 'view'; it has:"),
        (lambda: rl.Target(contracts=False), "Target has no argument 'contracts'; it has: kind"),
        (lambda: rl.Sampler(temp=0.5), "did you mean 'temperature'?"),
        (lambda: measured(by="x", conts={}), "measured has no argument 'conts'; it has: counts"),
    ],
)  # fmt: skip
def test_unknown_arguments_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UnknownArgument, match=re.escape(message)):
        call()


def test_most_of_the_public_functions_name_unknown_arguments() -> None:
    """Those that do not are records, which the package makes, and what takes one argument."""
    unnamed = set[str]()
    for name, fn, of in public("rl", rl, rl.__all__):
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(of).parameters.values()):
            continue
        with pytest.raises(TypeError) as raised:
            fn(no_such_argument=1)
        if "unexpected keyword" in str(raised.value):
            unnamed.add(name.removeprefix("rl."))
    assert unnamed <= RECORDS | {"assert_structural_equal", "structural_equal", "walk", "is_const",
                                 "wildcard", "first_rewrites"}  # fmt: skip


def test_what_fits_or_fails_for_another_reason_keeps_its_error() -> None:
    assert measured({"a": [np.int64(2)]}, None, "a") == 2
    assert measured({"a": (2,)}, None, "a") == 2
    with pytest.raises(KeyError, match="b"):
        measured({"a": [1]}, None, "b")
    with pytest.raises(TypeError, match="missing 1 required"):
        measured()
    for value in (None, "main", 3, [MOD]):
        with pytest.raises(TypeError, match="expected a node: a module, a function, or a part"):
            list(rl.walk(value))
    kind = rl.target_kind("cpu")  # no node, and yet a dataclass
    assert rl.replace(kind, name="other").name == "other"
