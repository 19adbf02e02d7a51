"""Programs that are built by calls: `with recorder: with T.prim_func(): ...`.

Calls of the namespaces' members are recorded as the text of a script, which is read when the
program is asked for: what a member means, and which errors there are, has one place. An expression
is a `Recorded` piece of text; a value that has a name holds a `Name` in it, which may be changed
until then. Nodes and other objects from outside are names in the text, with their values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, ClassVar, cast

import numpy as np

from relaxlab.ir.dtypes import is_dtype
from relaxlab.ir.plain import plain
from relaxlab.script.members import MEMBERS, SHORT_DTYPES

_MARK = "\0{}\0"
_MARKED = re.compile("\0(\\d+)\0")


@dataclass(eq=False)
class Name:
    """A name in a recorded program, unique once the text is written. `declared` is the member that
    declares it where it is first used, for a symbol: `T.int64`."""

    wanted: str
    declared: str = ""


@dataclass
class Line:
    """A line of a program, with its depth."""

    depth: int
    text: str


class Recorded:
    """An expression, or what else a member of a namespace gives, as text of the script."""

    def __init__(self, text: str, name: Name | None = None) -> None:
        self.text, self.name_ = text, name

    def __getattr__(self, member: str) -> Recorded:
        if member.startswith("__"):
            raise AttributeError(member)
        return Recorded(f"{self.text}.{member}")

    def __getitem__(self, index: Any) -> Recorded:
        many = index if isinstance(index, tuple) else (index,)  # type: ignore[reportUnknownVariableType]
        return Recorded(f"{self.text}[{', '.join(map(text_of, many)) or '()'}]")  # type: ignore[reportUnknownArgumentType]

    def __call__(self, *args: Any, **kwargs: Any) -> Recorded:
        return Recorded(f"{self.text}({_arguments(args, kwargs)})")

    def __bool__(self) -> bool:
        raise TypeError("a value of the program is not known while it is built: write T.If or R.If")

    __hash__ = object.__hash__


def _operator(symbol: str, *, swapped: bool = False) -> Any:
    def apply(a: Recorded, b: Any) -> Recorded:
        sides = (text_of(b), a.text) if swapped else (a.text, text_of(b))
        return Recorded(f"({sides[0]} {symbol} {sides[1]})")

    return apply


def _prefix(symbol: str) -> Any:
    def apply(a: Recorded) -> Recorded:
        return Recorded(f"({symbol}{a.text})")

    return apply


_ARITHMETIC = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
for _name, _symbol in _ARITHMETIC.items():
    setattr(Recorded, f"__{_name}__", _operator(_symbol))
    setattr(Recorded, f"__r{_name}__", _operator(_symbol, swapped=True))
for _name, _symbol in _COMPARISONS.items():
    setattr(Recorded, f"__{_name}__", _operator(_symbol))
for _name, _symbol in {"neg": "-", "invert": "~"}.items():
    setattr(Recorded, f"__{_name}__", _prefix(_symbol))


def text_of(value: Any) -> str:
    """The text of an argument; an object that has none of its own gets a name."""
    match value:
        case Recorded():
            return value.text
        case Namespace():
            return value.path
        case np.generic():  # of which some are floats and strings of Python, too
            return text_of(plain(value))
        case None | bool() | int() | str():
            return repr(value)
        case float():
            return repr(value) if np.isfinite(value) else f'float("{value}")'
        case slice(start=start, stop=stop, step=step):  # type: ignore[reportUnknownVariableType]
            ends = (start, stop) if step is None else (start, stop, step)  # type: ignore[reportUnknownVariableType]
            return ":".join("" if e is None else text_of(e) for e in cast("tuple[Any, ...]", ends))
        case tuple() | list():
            items = cast("Sequence[Any]", value)
            texts = ", ".join(map(text_of, items))
            return f"[{texts}]" if type(items) is list else f"({texts}{',' * (len(items) == 1)})"
        case Mapping():
            pairs = cast("Mapping[Any, Any]", value)
            return f"{{{', '.join(f'{text_of(k)}: {text_of(v)}' for k, v in pairs.items())}}}"
        case _:
            return Recorder.current().given(value)


def _arguments(args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*map(text_of, args), *(f"{k}={text_of(v)}" for k, v in kwargs.items())])


@dataclass(eq=False)
class Signature:
    """The function that is being built."""

    namespace: str
    options: dict[str, Any]
    name: str = "main"
    params: list[tuple[Name, str]] = field(default_factory=list[tuple[Name, str]])
    ret: str = ""
    first: int = 0  # the number of its first line


class Recorder:
    """A program that is being built; the innermost one is the current one."""

    open: ClassVar[list[Recorder]] = []

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.names: list[Name] = []
        self.values: dict[str, Any] = {}
        self.depth = 0
        self.function: Signature | None = None
        self.last: Recorded | None = None  # the value that was bound last
        self.open_branches: list[Branches] = []
        self.dataflow: Dataflow | None = None  # the block that was entered last

    def __enter__(self) -> Recorder:
        Recorder.open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Recorder.open.pop()

    @staticmethod
    def current() -> Recorder:
        """The innermost program that is being built. Raises ValueError outside of one."""
        if not Recorder.open:
            raise ValueError("no program is being built: enter `with IRBuilder():` first")
        return Recorder.open[-1]

    def line(self, text: str) -> None:
        """Record a line of the program."""
        self.lines.append(Line(self.depth, text))

    def named(self, wanted: str, declared: str = "") -> Recorded:
        """An expression that is a name of its own, `wanted` if no other one is it."""
        self.names.append(Name(wanted, declared))
        return Recorded(_MARK.format(len(self.names) - 1), self.names[-1])

    def bound(self, value: str, wanted: str) -> Recorded:
        """The name of a value, which a line of the program defines."""
        made = self.named(wanted)
        self.line(f"{made.text} = {value}")
        self.last = made
        return made

    def given(self, value: Any) -> str:
        """The name by which the program knows an object from outside."""
        for name, known in self.values.items():
            if known is value:
                return name
        name = f"given_{len(self.values)}"
        self.values[name] = value
        return name

    def finish_function(self, f: Signature) -> None:
        """Put the header of a function before its body, and declare its symbols."""
        body, self.lines = self.lines[f.first :], self.lines[: f.first]
        inside = "".join(chain((line.text for line in body), (t for _, t in f.params), [f.ret]))
        used = {int(n) for n in _MARKED.findall(inside)}
        params = {id(n) for n, _ in f.params}
        symbols = [i for i in sorted(used) if self.names[i].declared]
        symbols = [i for i in symbols if id(self.names[i]) not in params]
        texts = [f"{_MARK.format(self.names.index(n))}: {t}" for n, t in f.params]
        kind = "@T.prim_func" if f.namespace == "T" else "@R.function"
        brackets = [_MARK.format(i) for i in symbols if f.namespace == "R"]
        lead = f"[{', '.join(brackets)}]" if brackets else ""
        arrow = f" -> {f.ret}" if f.ret else ""
        self.line(f"{kind}({_arguments((), f.options)})")
        self.line(f"def {f.name}{lead}({', '.join(texts)}){arrow}:")
        for i in symbols if f.namespace == "T" else ():
            text = f"{_MARK.format(i)} = {self.names[i].declared}()"
            self.lines.append(Line(self.depth + 1, text))
        self.lines += body or [Line(self.depth + 1, "pass")]

    def text(self) -> str:
        """The text of the program, in which every name is its own."""
        taken: set[str] = {*self.values}
        final: list[str] = []
        for name in self.names:
            tries = chain([name.wanted], (f"{name.wanted}_{i}" for i in count(1)))
            final.append(next(t for t in tries if t not in taken))
            taken.add(final[-1])
        lines = ("    " * line.depth + line.text for line in self.lines)
        return _MARKED.sub(lambda m: final[int(m[1])], "\n".join(lines)) + "\n"


class Frame:
    """A part of a program that a `with` statement builds: its header, its lines one step further
    in, and what entering it gives."""

    def __init__(self, header: str, gives: Any = None) -> None:
        self.header, self.gives = header, gives

    def __enter__(self) -> Any:
        recorder = Recorder.current()
        recorder.line(self.header)
        recorder.depth += 1
        self.first = len(recorder.lines)
        return self.gives

    def __exit__(self, *_: object) -> None:
        recorder = Recorder.current()
        if len(recorder.lines) == self.first:
            recorder.line("pass")
        recorder.depth -= 1


class Dataflow(Frame):
    """A dataflow block; `output_vars` are the variables that are known after it."""

    def __init__(self) -> None:
        super().__init__("with R.dataflow():", self)
        self.output_vars: list[Recorded] = []

    def __enter__(self) -> Any:
        Recorder.current().dataflow = self
        return super().__enter__()

    def output(self, *values: Recorded) -> None:
        """Make variables known after the block."""
        Recorder.current().line(f"R.output({', '.join(v.text for v in values)})")
        self.output_vars += values


class FunctionFrame:
    """The function that a `with` statement builds."""

    def __init__(self, namespace: str, **options: Any) -> None:
        self.signature = Signature(namespace, options)

    def __enter__(self) -> FunctionFrame:
        recorder = Recorder.current()
        self.signature.first = len(recorder.lines)
        recorder.function, recorder.depth = self.signature, recorder.depth + 1
        return self

    def __exit__(self, *_: object) -> None:
        recorder = Recorder.current()
        recorder.depth -= 1
        recorder.function = None
        recorder.finish_function(self.signature)


def signature() -> Signature:
    """The function that is being built. Raises ValueError outside of one."""
    found = Recorder.current().function
    if found is None:
        raise ValueError("no function is being built: enter `with T.prim_func():` or R.function")
    return found


def parameter(name: str, ty: Any) -> Recorded:
    """A parameter of the function, of a type, or of a symbol such as `T.int64()`."""
    f, recorder = signature(), Recorder.current()
    if isinstance(ty, Recorded) and ty.name_ is not None and ty.name_.declared:
        ty.name_.wanted = name
        f.params.append((ty.name_, ty.name_.declared))
        return ty
    made = recorder.named(name)
    assert made.name_ is not None
    f.params.append((made.name_, text_of(ty)))
    return made


_WITH = ("T.launch_thread", "T.attr")


class Namespace:
    """`T`, `R` or `I` while a program is built: members record what they are called with."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, member: str) -> Namespace:
        if member.startswith("__"):
            raise AttributeError(member)
        path = f"{self.path}.{member}"
        short = SHORT_DTYPES.get(member) if self.path == "T" else None
        known = path in MEMBERS or short is not None or is_dtype(member)
        if self.path == "T" and not known and not any(m.startswith(f"{path}.") for m in MEMBERS):
            raise AttributeError(f"the script has no {path}")
        return Namespace(path if short is None else f"T.{short}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        text = f"{self.path}({_arguments(args, kwargs)})"
        recorder, row = Recorder.current(), MEMBERS.get(self.path)
        last = self.path.rpartition(".")[2]
        if self.path.startswith("T.") and is_dtype(last) and not args and last != "handle":
            return recorder.named("n", declared=self.path)
        match "" if row is None else row.gives:
            case "statement":
                return recorder.line(text)
            case "context":
                return Frame(f"with {text}:")
            case "loop" if self.path == "T.env_thread":
                return recorder.bound(text, "thread")
            case "loop" if self.path in _WITH:
                made = recorder.named("thread")
                named = f" as {made.text}" if self.path == "T.launch_thread" else ""
                return Frame(f"with {text}{named}:", made)
            case "loop":
                many = len(args) if self.path == "T.grid" else 1
                made = [recorder.named("i") for _ in range(many)]
                header = f"for {', '.join(m.text for m in made)} in {text}:"
                return Frame(header, made if self.path == "T.grid" else made[0])
            case "axis" if self.path == "T.axis.remap":
                made = [recorder.named("v") for _ in args[0]]
                recorder.line(f"{', '.join(m.text for m in made)}{',' * (len(made) == 1)} = {text}")
                return made if len(made) > 1 else made[0]
            case "axis":
                return recorder.bound(text, "v")
            case "buffer" if self.path != "T.Buffer":
                return recorder.bound(text, "buffer")
            case _:
                return Recorded(text)


class Branches:
    """`R.If` while a program is built: `var` is the value that both branches end with."""

    def __init__(self, condition: Any) -> None:
        self.condition = text_of(condition)
        self.var: Recorded | None = None

    def __enter__(self) -> Branches:
        recorder = Recorder.current()
        self.var = recorder.named("gv")
        recorder.open_branches.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Recorder.current().open_branches.pop()


class Branch(Frame):
    """`R.Then` or `R.Else`: the value bound last in it is that of the `R.If`."""

    def __init__(self, *, then: bool) -> None:
        self.branches = Recorder.current().open_branches[-1]
        super().__init__(f"if {self.branches.condition}:" if then else "else:")

    def __exit__(self, *_: object) -> None:
        recorder = Recorder.current()
        assert self.branches.var is not None
        if recorder.last is not None:
            recorder.line(f"{self.branches.var.text} = {recorder.last.text}")
        recorder.last = self.branches.var
        super().__exit__()
