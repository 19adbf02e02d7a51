"""Errors that name the argument of a public function that is of the wrong kind, as annotated."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache, wraps
from numbers import Integral, Real
from opcode import opmap
from typing import Any, ParamSpec, TypeVar

from relaxlab.ir.errors import BRIEF, PACKAGE, UserError, brief, kind_of, show_briefly
from relaxlab.ir.names import among

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
_WIDER = {int: Integral, float: Real, bool: Integral, tuple: (tuple, list)}
"""The types that are taken in the place of others: NumPy's numbers, and lists for tuples."""
_UNIONS = (typing.Union, types.UnionType)
_LONGEST = 60
"""Characters of a text or a number that a message shows."""


class WrongKind(UserError, TypeError):
    """An argument of a public function is of a kind that it does not take."""


class UnknownArgument(UserError, TypeError):
    """A public function has no argument of that name."""


def names_arguments(fn: Callable[P, R]) -> Callable[P, R]:
    """A function that raises WrongKind, with the name of the argument and what it may be, where
    Python fails on an argument, or an element of one, that its annotation excludes; and
    UnknownArgument, with the names that there are, for one that it does not have.

    Arguments are only checked where the call fails, and what is like the annotated kind is taken.
    They are checked before the call where a text stands for True or False, which Python would take
    for True, and before a generator begins. Annotations that name what only type checkers see
    exclude nothing. Errors of `brief` functions stay without the compiler's frames, and notebooks
    show those that the package raises without them.
    """
    if fn in BRIEF:
        return brief(names_arguments(vars(fn)["__wrapped__"]))
    signature = inspect.signature(fn)
    first = inspect.isgeneratorfunction(inspect.unwrap(fn))
    flags = [p.name for p in signature.parameters.values() if p.annotation == "bool"]

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if first or (flags and any(isinstance(kwargs.get(name), str) for name in flags)):
            _look_at(fn, signature, args, kwargs, None)
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            if isinstance(error, WrongKind) or not is_raised_here(error):
                _look_at(fn, signature, args, kwargs, error)
            elif not sys.flags.dev_mode and not isinstance(error, UserError):
                show_briefly(error)
            raise

    return call


def methods_name_arguments(cls: type[C]) -> type[C]:
    """The class, whose constructor and public methods are as `names_arguments` makes functions."""
    member: Any
    for name, member in [*vars(cls).items()]:
        if name in ("__init__", "__call__") or not name.startswith("_"):
            if type(member) in (staticmethod, classmethod):
                setattr(cls, name, type(member)(names_arguments(member.__func__)))
            elif inspect.isfunction(member):
                setattr(cls, name, names_arguments(member))
    return cls


def is_raised_here(error: Exception) -> bool:
    """True for an error that a statement of this package raised, with a message of its own."""
    if isinstance(error, UserError):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not last.tb_frame.f_code.co_filename.startswith(PACKAGE):
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] == opmap["RAISE_VARARGS"]


def _look_at(
    fn: Callable[..., Any], signature: inspect.Signature, args: Any, kwargs: Any,
    error: Exception | None,
) -> None:  # fmt: skip
    """Raise WrongKind for the first argument that its annotation excludes, UnknownArgument for one
    that the function does not have."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        _look_at_names(fn, signature, kwargs)
        if error is not None:  # Python says which argument is missing, or given twice
            show_briefly(error)
        return
    for name, value in given.items():
        parameter = signature.parameters[name]
        wanted = _annotation(fn, parameter.annotation)
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        for one in value if parameter.kind is parameter.VAR_POSITIONAL else (value,):
            # A default is right whatever the annotation says.
            wrong = [] if one is parameter.default else wrong_kinds(one, wanted)
            if wrong:
                text = _message(_title(fn), name, wanted, one, wrong[0])
                raise WrongKind(text) from error


def require_field(record: Any, name: str, value: object, title: str) -> None:
    """Raise WrongKind for a value that the annotation of a dataclass's field excludes. title: what
    the field is an option of."""
    (annotation,) = (f.type for f in fields(record) if f.name == name)
    wanted = _annotation(record.__class__, annotation)
    if wrong := wrong_kinds(value, wanted):
        raise WrongKind(_message(title, name, wanted, value, wrong[0]))


def _look_at_names(
    fn: Callable[..., Any], signature: inspect.Signature, kwargs: Iterable[str]
) -> None:
    parameters = signature.parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in kwargs:
        if name not in known:
            names = among(name, (n for n in known if n != "self"))
            text = f"{_title(fn)} has no argument {name!r}; it has: {names}"
            raise UnknownArgument(text) from None


def _title(fn: Callable[..., Any]) -> str:
    """The name by which a function, or the class or object that it belongs to, is called."""
    return fn.__qualname__.removesuffix(".__init__").removesuffix(".__call__")


def _message(title: str, name: str, wanted: Any, value: object, wrong: object) -> str:
    got = repr(value) if isinstance(value, str | int | float) else ""
    got = got if 0 < len(got) <= _LONGEST else kind_of(value)
    within = "" if wrong is value else f" with {kind_of(wrong)} in it"
    return f"`{name}` of {title} is {_words(wanted)}, not {got}{within}"


@cache
def _annotation(fn: Callable[..., Any], annotation: Any) -> Any:
    """The meaning of an annotation where the function was defined."""
    if not isinstance(annotation, str):
        return Any if annotation is inspect.Parameter.empty else annotation
    names = ChainMap(vars(sys.modules[fn.__module__]), _Public())
    try:
        return eval(annotation, {}, names)  # of this package
    except (NameError, TypeError):  # TypeError: a union with a name in quotes
        return Any


class _Public(dict[str, Any]):
    """The public names, for annotations by what only type checkers see."""

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(sys.modules["relaxlab"], name)
        except AttributeError:
            raise KeyError(name) from None


def wrong_kinds(value: Any, wanted: Any) -> list[object]:
    """The value, or the element of it, that an annotation excludes; empty where it fits."""
    origin, args = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in _UNIONS:
        found = [wrong_kinds(value, one) for one in args]
        inner = [one for one in found if one and one[0] is not value]
        return [] if not all(found) else (inner or found)[0]
    if origin is typing.Literal:
        return [] if any(type(one) is type(value) for one in args) else [value]
    kind = type(None) if wanted is None else origin or wanted
    if not isinstance(kind, type) or kind is Any or getattr(kind, "_is_protocol", False):
        return []
    if not _is_of(value, kind):
        return [value]
    for one, of in _elements(value, args):
        if wrong := wrong_kinds(one, of):
            return wrong
    return []


def _is_of(value: Any, kind: type) -> bool:
    is_container = kind.__module__ == "collections.abc" and kind.__name__ != "Callable"
    if is_container and isinstance(value, str | bytes):
        return False  # the sequence of its characters is never meant
    if is_container and getattr(value, "ndim", 0):
        return not issubclass(kind, Mapping)
    wider: Any = _WIDER.get(kind, kind)
    return isinstance(value, wider)


def _elements(value: Any, args: tuple[Any, ...]) -> Iterable[tuple[Any, Any]]:
    """The elements of a list, tuple or dictionary, each with its annotation."""
    if issubclass(type(value), Mapping) and len(args) == 2:
        return [pair for k, v in value.items() for pair in ((k, args[0]), (v, args[1]))]
    if issubclass(type(value), list | tuple) and args:
        if len(args) == 1 or args[1] is Ellipsis:
            return [(one, args[0]) for one in value]
        return zip(value, args, strict=False)
    return ()


_WORDS = {
    "str": "a string", "int": "a whole number", "float": "a number", "bool": "True or False",
    "PathLike": "a pathlib.Path", "Callable": "a function", "NoneType": "None", "Any": "anything",
    "Function": "a graph function", "PrimFunc": "a loop function",
}  # fmt: skip


def _words(wanted: Any) -> str:
    """An annotation in words."""
    origin, args = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in _UNIONS:
        *first, last = dict.fromkeys(map(_words, args))
        return f"{', '.join(first)} or {last}" if first else last
    if origin is typing.Literal:
        return " or ".join(map(repr, args))
    kind = type(None) if wanted is None else origin or wanted
    name = getattr(kind, "__name__", str(kind))
    if name in _WORDS:
        return _WORDS[name]
    words = f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
    if isinstance(kind, type) and issubclass(kind, Mapping) and len(args) == 2:
        return f"a dictionary of ({_words(args[0])}: {_words(args[1])})"
    of = [_words(one) for one in args if one is not Ellipsis]
    return f"{words} of ({', '.join(of)})" if of else words
