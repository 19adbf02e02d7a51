"""Descriptions of target machines and of the floating-point arithmetic allowed on them, and the
registry of kinds of machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from typing import Any

from relaxlab.ir.arguments import methods_name_arguments, names_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.dtypes import bits_of
from relaxlab.ir.errors import expect, kind_of
from relaxlab.ir.facts import Facts
from relaxlab.ir.names import among

FIRST_KIND = "cpu"
FLOAT_OPTIONS = ("contract", "reassociate")
"""The options of `Target` for floating-point arithmetic."""


@methods_name_arguments
@dataclass(frozen=True, slots=True, repr=False)
class Target(Brief):
    """A machine to generate code for, of a registered kind (see `TargetKind`): a CPU, or a GPU
    (kind `cuda`), whose `cpu` is then its architecture (`sm_90`) or empty for that of the GPU that
    is there.

    `Target.host()` describes this machine, `Target.cuda()` a GPU. With the triple of another
    machine (`aarch64-unknown-linux-gnu`, `wasm32-unknown-unknown`) and its features, programs are
    compiled to object files, which do not run here. `facts` is what kernels are made for: widths,
    registers and caches. `caches` are the bytes of the data caches that one core uses, first level
    first; where they are not given, those of the CPU by a table.

    What may be done to floating-point arithmetic for speed: with `contract`, `a * b + c` may be
    rounded once instead of twice; with `reassociate`, reductions may be taken in any order, such as
    per vector lane. Both are on unless switched off. With both off, each addition, subtraction,
    multiplication, division and square root of float32 and float64 is the one that the loops say,
    rounded as IEEE 754 does. Integers are exact either way.
    """

    kind: str = FIRST_KIND
    triple: str = ""
    cpu: str = "generic"
    features: frozenset[str] = field(default_factory=lambda: frozenset[str]())
    contract: bool = True
    reassociate: bool = True
    caches: tuple[int, ...] = ()

    def __repr__(self) -> str:
        options = [f"{n}={'on' if getattr(self, n) else 'off'}" for n in FLOAT_OPTIONS]
        return f"Target({', '.join([self.kind, self.cpu or self.triple or 'any', *options])})"

    def __post_init__(self) -> None:
        for name in ("kind", "triple", "cpu"):
            expect(getattr(self, name), str, f"{name} of a target is a name")
        for name in FLOAT_OPTIONS:
            value: object = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"{name} of a target is True or False, not {value!r}")
        for name, kind, what in (("features", str, "names"), ("caches", int, "bytes")):
            given: Any = getattr(self, name)
            expect(given, (Set, list, tuple), f"{name} of a target are a collection of {what}")
            for one in given:
                expect(one, kind, f"{name} of a target are {what}")
            object.__setattr__(self, name, (frozenset if kind is str else tuple)(given))
        # Targets of the first kind are made before the table is filled.
        if self.kind != FIRST_KIND and self.kind not in _KINDS:
            _require_kind(self.kind)

    @property
    def facts(self) -> Facts:
        """The machine as rules, passes and code generation see it."""
        return _facts(self)

    def lanes(self, dtype: str) -> int:
        """Return the number of elements of `dtype` in a vector register."""
        return self.facts.vector_bits // bits_of(dtype)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON has them, for `from_json`."""
        return {**asdict(self), "features": sorted(self.features), "caches": [*self.caches]}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Target:
        """The target of these fields."""
        sets: dict[str, Any] = {
            "features": frozenset(fields["features"]), "caches": tuple(fields["caches"])
        }  # fmt: skip
        return Target(**{**fields, **sets})

    def feature_string(self) -> str:
        """LLVM's `+a,+b` spelling."""
        return ",".join(f"+{f}" for f in sorted(self.features))

    @staticmethod
    def host() -> Target:
        """The machine this process runs on."""
        return target_kind("cpu").target("")

    @staticmethod
    def cuda(arch: str = "") -> Target:
        """A GPU of architecture `arch`, such as `sm_80`. Raises ValueError for anything else."""
        return target_kind("cuda").target(arch)


GENERIC = Target()
"""A CPU without any known features."""


@cache
def _facts(target: Target) -> Facts:
    found = target_kind(target.kind).facts(target)
    expect(found, Facts, f"the function `facts` of {target.kind!r} returns an rl.Facts")
    return found


@dataclass(frozen=True, slots=True, repr=False)
class TargetKind(Brief):
    """A kind of machines: everything that the compiler does for it in another way than for others.
    `relaxlab/targets` has those of relaxlab, a file each; `register_target` adds others, most
    easily made of one of these by `dataclasses.replace`.

    The parts are functions, so that a package above this one is loaded when it is first needed.

    name:     of the kind, by which targets refer to it.
    machine:  (text) -> the target that `name:text` names, whatever kind it says; the text is empty
              for the name alone. Raises ValueError for another text.
    facts:    (target) -> what rules, passes and code generation know of the machine.
    rules:    () -> the rules that schedule kernels, (name, rule) each, in the order in which they
              are tried (`relaxlab.schedule.rules.base.Rule`).
    pipeline: (target) -> the default `Pipeline`, after which `lower_shapes` gives a host program.
    compile:  (`runtime.request.Request`) -> the executable that `relaxlab.compile` returns.
    forms:    (host program, target) -> the `runtime.check.forms.Forms` in which `relaxlab.check`
              runs it.
    code:     (name of a kernel, kernel, target) -> the `codegen.listing.Listing` that the code
              explorer shows.
    machines: texts that are known without the kind's name before them.
    devices:  names beside the kind's own that programs have for its devices
              (`R.hint_on_device`).
    llvm:     True if LLVM compiles the kernels, so that its passes can be shown.
    """

    name: str
    machine: Callable[[str], Target]
    facts: Callable[[Target], Facts]
    rules: Callable[[], Sequence[tuple[str, Any]]]
    pipeline: Callable[[Target], Any]
    compile: Callable[[Any], Any]
    forms: Callable[[Any, Target], Any]
    code: Callable[[str, Any, Target], Any]
    machines: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    llvm: bool = False

    def target(self, text: str) -> Target:
        """The target that `name:text` names. Raises ValueError where there is none."""
        return replace(self.machine(text), kind=self.name)


_KINDS: dict[str, TargetKind] = {}


@names_arguments
def register_target(kind: TargetKind, *, override: bool = False) -> TargetKind:
    """Add a kind of machines; with `override` it may replace an earlier one of that name.

    Raises ValueError when the name is taken, and for a kind of relaxlab itself always: keys of the
    artifact cache do not cover its parts.
    """
    for field_ in fields(kind):
        if field_.type.startswith("Callable"):
            given: object = getattr(kind, field_.name)
            if not callable(given):
                what = f"{field_.name} of the kind of targets {kind.name!r} is a function"
                raise TypeError(f"{what}, not {kind_of(given)}")
    if kind.name in _KINDS and (not override or is_builtin(kind.name)):
        way_out = "give yours another name" if is_builtin(kind.name) else (
            "override=True replaces the first")  # fmt: skip
        raise ValueError(f"the kind of targets {kind.name!r} is registered already; {way_out}")
    _KINDS[kind.name] = kind
    _facts.cache_clear()
    return kind


@cache
def _builtin() -> frozenset[str]:
    """Fill the table: the packages that read it may not import the one that writes it."""
    return frozenset(k.name for k in import_module("relaxlab.targets").KINDS)


def is_builtin(name: str) -> bool:
    """True if relaxlab has the kind itself."""
    return name in _builtin()


def target_kinds() -> tuple[TargetKind, ...]:
    """All kinds: relaxlab's own, then those that were registered."""
    _builtin()
    return tuple(_KINDS.values())


@names_arguments
def target_kind(name: str) -> TargetKind:
    """The kind of a name. Raises ValueError naming those that there are."""
    if name not in _KINDS:
        _builtin()
    if name not in _KINDS:
        raise ValueError(f"no kind of targets {name!r}; known: {among(name, _KINDS)}")
    return _KINDS[name]


def _require_kind(name: str) -> None:
    """Raise ValueError for what is no kind of targets, naming what is unknown in it."""
    _builtin()
    if name not in _KINDS:
        parse_target(name)
        raise ValueError(
            f"{name!r} is a whole target, not a kind of targets: use it as it is, target={name!r}"
        )


def parse_target(target: str | Target) -> Target:
    """`"cpu"` means the host, `"aarch64"` a usual machine of that architecture, `"cuda"` the GPU
    that is there, `"cuda:sm_90"` one of that architecture. Options follow:
    `"cpu,contract=off,reassociate=off"`. Raises ValueError for anything not known."""
    if isinstance(target, Target):
        return target
    expect(target, str, "a target is a name such as 'cpu' or 'cuda', or an rl.Target")
    machine, *options = target.split(",")
    return replace(_machine(machine), **dict(_option(text, target) for text in options))


def _machine(text: str) -> Target:
    name, _, rest = text.partition(":")
    for kind in target_kinds():
        if kind.name == name:
            return kind.target(rest)
        if text in kind.machines:
            return kind.target(text)
    names = [n for kind in target_kinds() for n in (kind.name, *kind.machines)]
    meant = _MEANT.get(text.lower(), "")
    known = among("" if meant else text.strip().lower(), names)
    raise ValueError(
        f"unknown target {text!r}; {meant and f'{meant}; '}known: cuda:sm_80 and its like, {known}"
    )


_CPU = "relaxlab compiles for CPUs through LLVM: write 'cpu'"
_NONE = "relaxlab has no code generator for it"
_MEANT = {
    "gpu": "relaxlab's GPUs are NVIDIA's: write 'cuda'", "nvidia": "write 'cuda'",
    "llvm": _CPU, "x86": _CPU, "x86_64": _CPU, "arm": _CPU, "host": _CPU,
    "c": "write 'cpu', and Executable.export makes a library with a C interface",
    "webgpu": "write 'wgsl'", "metal": _NONE, "vulkan": _NONE, "opencl": _NONE, "rocm": _NONE,
    "hip": _NONE,
}  # fmt: skip
"""Names that other compilers use for targets, and what to write here."""


def _option(text: str, target: str) -> tuple[str, bool]:
    name, _, value = text.strip().partition("=")
    if name not in FLOAT_OPTIONS or value not in ("on", "off"):
        known = among(text.strip(), (f"{n}={v}" for n in FLOAT_OPTIONS for v in ("on", "off")))
        raise ValueError(f"unknown option {text!r} of the target {target!r}; known: {known}")
    return name, value == "on"
