"""Kinds of targets: one value holds all that is peculiar to one, and users register theirs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.host import HostProgram
from relaxlab.ir.target import parse_target, target_kinds
from relaxlab.schedule.rules import rules
from relaxlab.schedule.rules.base import blocks_of
from relaxlab.schedule.rules.context import Context
from tests.test_repo import PACKAGE_FILES, ROOT

PROGRAM = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((16, 8), "float32")):
    y = R.linear(R.hint_on_device(x, "toy"), w)
    z = R.nn.softmax(y)
    return z
"""
INTERPRETER = rl.target_kind("interpreter")


def one_by_one(sch: rl.Schedule, context: Context) -> rl.Schedule | str:
    """A rule that leaves loops as they are, unless the machine is a large one."""
    return "the machine is large" if context.target.cpu == "large" else sch


TOY = replace(
    INTERPRETER, name="toy", facts=lambda target: rl.Facts(vector_bits=512),
    rules=lambda: (("one_by_one", one_by_one), *rules()),
)  # fmt: skip


def arguments() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(5, 8)).astype("float32"), rng.normal(size=(16, 8)).astype("float32")


def test_no_kind_is_told_by_its_name() -> None:
    """Code outside of `relaxlab/targets` asks the kind, so that one more needs no change there."""
    names = "|".join(kind.name for kind in target_kinds())
    asks = re.compile(rf"""\.kind (==|!=|in|not in) .*["']({names})["']""")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in PACKAGE_FILES for line in path.read_text("utf-8").splitlines()
        if asks.search(line)
    ]  # fmt: skip
    assert not found


def test_a_kind_of_ones_own() -> None:
    rl.register_target(TOY)
    target = parse_target("toy:small,contract=off")
    assert (target.kind, target.cpu, target.contract) == ("toy", "small", False)
    assert target.lanes("float32") == 16
    exe = rl.compile(rl.parse(PROGRAM), target="toy")
    x, w = arguments()
    y = x @ w.T
    want = np.exp(y) / np.exp(y).sum(1, keepdims=True)
    np.testing.assert_allclose(exe["main"](x, w), want, rtol=1e-5)
    assert isinstance(exe, rl.InterpretedExecutable) and isinstance(exe.program, HostProgram)
    assert "def linear" in exe.source("linear") and "def main" in exe.source()
    with pytest.raises(KeyError, match="no function named 'other'; there are: main"):
        exe["other"]


def test_its_rules_are_tried_in_order() -> None:
    rl.register_target(TOY)
    for machine, wanted in (("toy", {"one_by_one"}), ("toy:large", {"matmul", "rows"})):
        trace = rl.trace(rl.parse(PROGRAM), machine)
        reasons = [r.reason for r in trace.find("schedule_kernels").remarks if r.applied]
        assert {r.removeprefix("scheduled by the rule ") for r in reasons} == wanted


def test_checks_and_views_know_it() -> None:
    rl.register_target(TOY)
    mod = rl.parse(PROGRAM)
    assert rl.check(mod, target="toy", runs=1).ok
    with pytest.raises(rl.DiagnosticError, match="is to be on toy, the program is for cpu"):
        rl.compile(mod)
    view = rl.explore.code(mod, target="toy")
    assert [k["error"] for k in view.state["kernels"]] == ["", ""]
    assert [p["key"] for p in view.state["kernels"][0]["panes"]] == ["loops"]
    choice = next(c for c in view.controls if c.name == "target")
    assert choice.choices == ("toy", *(k.name for k in target_kinds() if k.name != "toy"))
    with pytest.raises(ValueError, match="LLVM makes the code of CPUs"):
        rl.explore.llvm(mod, target="toy")


def test_kinds_derived_from_cpus_have_no_place_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key does not say which rules they have."""
    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path))
    mine = replace(rl.target_kind("cpu"), name="mine", machines=())
    rl.register_target(mine)
    mod = rl.parse(PROGRAM.replace('R.hint_on_device(x, "toy")', "x"))
    exe = rl.compile(mod, target="mine")
    assert exe.key is None and exe.target.kind == "mine"
    x, w = arguments()
    np.testing.assert_allclose(exe(x, w), rl.compile(mod)(x, w), rtol=1e-6)


def test_names_that_are_taken() -> None:
    rl.register_target(TOY)
    with pytest.raises(ValueError, match="'toy' is registered already; override=True replaces"):
        rl.register_target(TOY)
    other = replace(TOY, facts=lambda target: rl.Facts(vector_bits=1024))
    rl.register_target(other, override=True)
    assert parse_target("toy").facts.vector_bits == 1024
    with pytest.raises(ValueError, match="'cuda' is registered already; give yours another name"):
        rl.register_target(replace(TOY, name="cuda"), override=True)
    with pytest.raises(ValueError, match="no kind of targets 'abacus'; known: cpu, cuda, wgsl"):
        rl.target_kind("abacus")


def test_options_of_cpus_are_refused() -> None:
    mod = rl.parse(PROGRAM.replace("toy", "interpreter"))
    with pytest.raises(ValueError, match="threads are of CPUs"):
        rl.compile(mod, target="interpreter", threads=2)
    with pytest.raises(ValueError, match="debug builds are for CPUs"):
        rl.compile(mod, target="interpreter", checks="all")


def test_private_buffers_fit_the_memories_of_the_machine() -> None:
    """A rule whose result does not fit is passed over."""

    def tile(sch: rl.Schedule, context: Context) -> rl.Schedule | str:
        first, *others = blocks_of(sch.func)
        if others:
            return "it has several blocks"
        sch.cache_read(sch.get_block(first.name), 1, "pad")
        return sch

    small = replace(
        INTERPRETER, name="padded", rules=lambda: (("tile", tile), *rules()),
        facts=lambda target: rl.Facts(scratchpads=(("pad", int(target.cpu)),)),
    )  # fmt: skip
    rl.register_target(small)
    mod = rl.parse(PROGRAM.replace('R.hint_on_device(x, "toy")', "x"))
    for room, fits in ((512, True), (511, False)):
        remarks = rl.trace(mod, f"padded:{room}").find("schedule_kernels").remarks
        mine = [r.reason for r in remarks if r.subject == "linear"]
        assert ("scheduled by the rule tile" in mine) == fits
        assert any("the memory `pad` would take 512 bytes, of 511" in r for r in mine) != fits


def test_a_memory_that_the_machine_does_not_have_is_named() -> None:
    """A misspelled storage scope would be taken for a place without a limit."""

    def tile(sch: rl.Schedule, context: Context) -> rl.Schedule:
        sch.cache_read(sch.get_block(blocks_of(sch.func)[0].name), 1, "pads")
        return sch

    facts = rl.Facts(scratchpads=(("pad", 1 << 20),))
    rl.register_target(
        replace(
            INTERPRETER, name="scoped", rules=lambda: (("tile", tile), *rules()),
            facts=lambda target: facts,
        )  # fmt: skip
    )
    mod = rl.parse(PROGRAM.replace('R.hint_on_device(x, "toy")', "x"))
    reasons = [r.reason for r in rl.trace(mod, "scoped").find("schedule_kernels").remarks]
    assert any("no memory `pads`; it has: pad; did you mean 'pad'?" in r for r in reasons)


def test_parts_of_another_kind_are_named() -> None:
    listed = replace(INTERPRETER, name="mine", rules=(("one", one_by_one),))
    with pytest.raises(TypeError, match="rules of the kind of targets 'mine' is a function, not a"):
        rl.register_target(listed)
    rl.register_target(replace(INTERPRETER, name="mine", facts=lambda target: None))
    with pytest.raises(TypeError, match="the function `facts` of 'mine' returns an rl.Facts, not"):
        rl.trace(rl.parse(PROGRAM.replace('R.hint_on_device(x, "toy")', "x")), "mine")
    silent = lambda: (("silent", lambda sch, context: None),)  # noqa: E731
    rl.register_target(replace(INTERPRETER, name="mine", rules=silent), override=True)
    with pytest.raises(TypeError, match="the rule 'silent' returns its schedule, or says in words"):
        rl.trace(rl.parse(PROGRAM.replace('R.hint_on_device(x, "toy")', "x")), "mine")
    with pytest.raises(TypeError, match="has no argument 'scratchpad'; .* mean 'scratchpads'"):
        rl.Facts(scratchpad=())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cpu,nope", "unknown option 'nope' of the target 'cpu,nope'; known: contract=on"),
        ("cpuu", "unknown target 'cpuu'; .*; did you mean 'cpu'?"),
        ("cpu,contract=off", "is a whole target, not a kind of targets: use it as it is"),
        ("gpu", "write 'cuda'; known: cuda:sm_80"),
    ],
)
def test_a_target_of_an_unknown_kind_is_refused(kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rl.Target(kind)


def test_features_and_caches_of_a_target_are_checked() -> None:
    assert rl.Target(features=["avx2"]) == rl.Target(features=frozenset({"avx2"}))
    for fields in ({"features": "avx2"}, {"features": [2]}, {"caches": 32}, {"caches": ["32k"]}):
        with pytest.raises(TypeError, match="of a target are"):
            rl.Target(**fields)
