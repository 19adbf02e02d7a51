"""`tvm.target`: machines as TVM writes them, `"llvm -num-cores=2"` or a dictionary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from relaxlab.ir.names import meant
from relaxlab.ir.target import Target as CoreTarget
from relaxlab.ir.target import parse_target

_NVIDIA = {
    "sm_75": "nvidia-t4 nvidia-titan-rtx geforce-rtx-2060 geforce-rtx-2070 geforce-rtx-2080 "
             "geforce-rtx-2080-ti quadro-rtx-4000 quadro-rtx-5000 quadro-rtx-6000 quadro-rtx-8000",
    "sm_80": "nvidia-a30 nvidia-a100",
    "sm_86": "nvidia-a2 nvidia-a10 nvidia-a10g nvidia-a16 nvidia-a40 rtx-a6000 geforce-rtx-3060 "
             "geforce-rtx-3070 geforce-rtx-3070-ti geforce-rtx-3080 geforce-rtx-3080-ti "
             "geforce-rtx-3090 geforce-rtx-3090-ti",
    "sm_87": "jetson-orin-nano jetson-agx-orin-32gb jetson-agx-orin-64gb",
    "sm_89": "geforce-rtx-4090",
    "sm_90a": "nvidia-h100",
    "sm_100a": "nvidia-b100",
    "sm_120": "geforce-rtx-5060-ti",
}  # fmt: skip
"""TVM's tags of GPUs, by their architecture."""
KINDS = {
    "llvm": "cpu", "c": "cpu", "cpu": "cpu", "cuda": "cuda", "webgpu": "wgsl",
    **{f"nvidia/{n}": f"cuda:{arch}" for arch, names in _NVIDIA.items() for n in names.split()},
}  # fmt: skip
"""TVM's kinds and tags of targets, and what the core calls them."""
_FACTS = {
    "llvm": {"keys": ("cpu",)},
    "cuda": {
        "keys": ("cuda", "gpu"), "max_num_threads": 1024, "max_threads_per_block": 1024,
        "thread_warp_size": 32, "max_shared_memory_per_block": 48 << 10,
    },
    "wgsl": {"keys": ("webgpu", "gpu"), "max_num_threads": 256},
}  # fmt: skip
"""Properties that programs ask targets of a kind for, where no option has them."""
_OPTIONS = ("mcpu", "mattr", "mtriple", "model", "libs")
"""Options that programs ask for, None where they are not given."""


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
            likely = meant(self.kind_name, list(KINDS))
            known = ", ".join(k for k in KINDS if "/" not in k)
            raise ValueError(
                f"unknown target {self.kind_name!r}{likely}; known: {known}, and tags of GPUs such "
                "as nvidia/nvidia-a100"
            )
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

    def __getattr__(self, name: str) -> Any:
        facts = _FACTS[self.kind.name] if "kind_name" in vars(self) else {}
        if name in facts or name in _OPTIONS:
            return self.attrs.get(name, facts.get(name))
        raise AttributeError(f"a target has no attribute {name!r}")

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
    """Options as `-name=value`, `-name value` or `-name`."""
    joined: list[str] = []
    for word in words:
        if word.startswith("-"):
            joined.append(word)
        elif joined and "=" not in joined[-1]:
            joined[-1] += f"={word}"
        else:
            raise ValueError(f"an option of a target begins with '-'; {word!r} does not")
    for word in joined:
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
