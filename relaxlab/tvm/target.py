"""`tvm.target`: machines as TVM writes them, `"llvm -num-cores=2"` or a dictionary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from relaxlab.ir.target import Target as CoreTarget
from relaxlab.ir.target import parse_target

KINDS = {
    "llvm": "cpu", "c": "cpu", "cpu": "cpu", "cuda": "cuda", "nvidia/nvidia-a100": "cuda:sm_80",
    "nvidia/nvidia-h100": "cuda:sm_90", "nvidia/geforce-rtx-3090": "cuda:sm_86",
    "nvidia/nvidia-t4": "cuda:sm_75", "webgpu": "wgsl",
}  # fmt: skip
"""TVM's kinds and tags of targets, and what the core calls them."""


class Target:
    """A machine of a kind, with options such as `num-cores`."""

    _current: list[Target] = []

    def __init__(self, target: Any = "llvm", host: Any = None) -> None:
        if isinstance(target, Target):
            self.kind_name, self.attrs = target.kind_name, dict(target.attrs)
        elif isinstance(target, Mapping):
            self.attrs = {k: v for k, v in target.items() if k != "kind"}
            self.kind_name = str(target.get("kind", target.get("tag", "llvm")))
        elif str(target).lstrip().startswith("{"):
            self.__init__(json.loads(target))
        else:
            kind, *options = str(target).split()
            self.kind_name, self.attrs = kind, dict(_options(options))
        if self.kind_name not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"unknown target {self.kind_name!r}; known: {known}")
        self.host = None if host is None else Target(host)

    @property
    def kind(self) -> _Kind:
        """The kind, with its name."""
        return _Kind(KINDS[self.kind_name].partition(":")[0].replace("cpu", "llvm"))

    def description(self) -> dict[str, Any]:
        """The kind and the options, as scripts have them."""
        host = {} if self.host is None else {"host": self.host.description()}
        return {"kind": self.kind.name, **self.attrs, **host}

    @property
    def arch(self) -> str:
        """The architecture of a GPU."""
        return str(self.attrs.get("arch", "")) or KINDS[self.kind_name].partition(":")[2]

    @property
    def max_num_threads(self) -> int:
        """The number of threads of a block on a GPU."""
        return int(self.attrs.get("max_num_threads", 1024))

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target of `with target:`. Raises ValueError unless None is allowed."""
        if Target._current:
            return Target._current[-1]
        if allow_none:
            return None
        raise ValueError("there is no current target: write `with tvm.target.Target(...):`")

    def __enter__(self) -> Target:
        Target._current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Target._current.pop()

    def __str__(self) -> str:
        options = (f"-{k}={_text(v)}" for k, v in self.attrs.items())
        return " ".join([self.kind_name, *options])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class _Kind:
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _options(words: list[str]) -> Iterator[tuple[str, Any]]:
    for word in words:
        if not word.startswith("-"):
            raise ValueError(f"an option of a target begins with '-'; {word!r} does not")
        name, _, value = word.lstrip("-").partition("=")
        yield name, int(value) if value.isdigit() else value or True


def core_target(target: Any) -> CoreTarget:
    """The core's target for one of TVM; None: the current one, or this machine.

    Raises ValueError for a machine that the core does not know.
    """
    if isinstance(target, CoreTarget):
        return target
    chosen = Target.current() if target is None else Target(target)
    if chosen is None:
        return parse_target("cpu")
    name = KINDS[chosen.kind_name]
    if name == "cuda" and chosen.arch:
        name = f"cuda:{chosen.arch}"
    return parse_target(name)


__path__: list[str] = []  # which lets imports look for submodules, of which `hook` has the names
