"""propagate_devices, rename_device."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.passes.normalize import normalize
from relaxlab.passes.propagate_devices import propagate_devices
from relaxlab.passes.rename_device import rename_device
from relaxlab.testing.pass_check import check_pass

PROGRAM = """
I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 0)]})
@R.function
def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor((3,), "float32")):
    with R.dataflow():
        a = R.split(R.add(x, y), 3, axis=1)
        f = a[0]
        b = R.hint_on_device(f, R.device("cuda"))
        c = R.concat((b, a[1]), axis=1)
        d = R.to_vdevice(c, "llvm")
        e = R.exp(d)
        R.output(e)
    return e
"""
PLACED = (
    PROGRAM.replace('"n", 3), "float32"', '"n", 3), "float32", "cuda:0:global"')
    .replace('(3,), "float32"', '(3,), "float32", "cuda:0:global"')
    .replace('R.hint_on_device(f, R.device("cuda"))', "f")
)


def devices(mod: rl.Module) -> dict[str, str]:
    fn = mod.graph_functions()["main"]
    values = [*fn.params, *(b.var for b in fn.body.blocks[0].bindings)]
    return {v.name: getattr(v.ty, "vdevice", "") for v in values}


def test_values_are_where_hints_say() -> None:
    check_pass(propagate_devices, rl.parse(PROGRAM), rl.parse(PLACED))
    placed = devices(propagate_devices(normalize(rl.parse(PROGRAM))))
    assert {k: v.partition(":")[0] for k, v in placed.items() if k in "xybcde"} == {
        "x": "cuda", "y": "cuda", "b": "cuda", "c": "cuda", "d": "llvm", "e": "llvm",
    }  # fmt: skip


def test_hints_that_disagree() -> None:
    text = PROGRAM.replace("R.concat((b, a[1])", 'R.concat((R.hint_on_device(b, "llvm"), a[1])')
    with pytest.raises(DiagnosticError, match="to be on llvm:0:global and on cuda:0:global"):
        propagate_devices(normalize(rl.parse(text)))


def test_names_of_one_device() -> None:
    """Those of "cpu" and "llvm" are the same one."""
    text = PROGRAM.replace('R.hint_on_device(f, R.device("cuda"))', 'R.hint_on_device(f, "cpu")')
    text = text.replace('(3,), "float32"', '(3,), "float32", "llvm"')
    placed = devices(propagate_devices(normalize(rl.parse(text))))
    assert {placed[name] for name in "xyd"} == {"llvm:0:global"}


def test_functions_that_call_themselves() -> None:
    text = """
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("cuda", 0)]})
    @R.function
    def main(x: R.Tensor((3,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((3,), "float32"):
        a = R.hint_on_device(x, "cuda")
        if c:
            r = Module.main(a, c)
        else:
            r = R.exp(a)
        return r
"""
    placed = propagate_devices(normalize(rl.parse(text)))
    assert devices(placed)["x"] == "cuda:0:global"
    renamed = rename_device.with_options(index=0, new="wgsl")(placed)
    assert devices(renamed)["x"] == "wgsl:0:global"


def test_another_device_in_the_place_of_one() -> None:
    before = normalize(rl.parse(PLACED))
    after = rename_device.with_options(index=1, new="wgsl")(before)
    assert after.script() == before.script().replace("cuda", "wgsl")
    with pytest.raises(IndexError, match="has 2 virtual devices, none is 2"):
        rename_device.with_options(index=2, new="cuda")(before)


@pytest.mark.parametrize("hint", ['"cuda", "texture"', '"cuda:0:texture"',
                                  '"cuda:0:texture", memory_scope="texture"'])  # fmt: skip
def test_the_memory_of_a_device(hint: str) -> None:
    """It is part of the device, wherever it is named."""
    text = PROGRAM.replace('R.hint_on_device(f, R.device("cuda"))', f"R.hint_on_device(f, {hint})")
    before = normalize(rl.parse(text))
    placed = devices(propagate_devices(before))
    assert {placed[name] for name in "xybc"} == {"cuda:0:texture"}
    listed = before.script().replace('I.vdevice("cuda", 0, "global")',
                                     'I.vdevice("cuda", 0, "texture")')  # fmt: skip
    for script, device in ((before.script(), "cuda:0:texture"), (listed, "wgsl:0:global")):
        renamed = rename_device.with_options(index=1, new="wgsl")(normalize(rl.parse(script)))
        assert devices(propagate_devices(renamed))["x"] == device
    with pytest.raises(DiagnosticError, match="to be on cuda:0:global and on cuda:0:texture"):
        propagate_devices(
            normalize(rl.parse(text.replace("a[1])", 'R.hint_on_device(b, "cuda"))')))
        )


def test_a_device_in_two_memories() -> None:
    hint = 'R.hint_on_device(f, "cuda:0:texture", "local")'
    with pytest.raises(DiagnosticError, match="'cuda:0:texture' is not in the memory 'local'"):
        normalize(rl.parse(PROGRAM.replace('R.hint_on_device(f, R.device("cuda"))', hint)))
