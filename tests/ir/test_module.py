"""Modules as values: their functions, changes that make new modules, and errors for wrong
requests."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.ir.graph import ExternFunc, Function
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.node import Attrs

MOD = rl.parse(
    """
@I.ir_module
class Layer:
    @T.prim_func
    def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[v]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return R.exp(x)
"""
)


def test_it_is_a_mapping_in_order() -> None:
    assert list(MOD) == ["copy", "main"] and len(MOD) == 2 and "main" in MOD
    assert "other" not in MOD and MOD.get("other") is None and MOD.get("copy") is MOD["copy"]
    assert dict(MOD.items()) == {"copy": MOD["copy"], "main": MOD["main"]}
    assert list(MOD.graph_functions()) == ["main"] and list(MOD.loop_functions()) == ["copy"]
    assert isinstance(MOD.main, Function) and isinstance(MOD.copy, PrimFunc)
    assert {"main", "copy", "script"} <= set(dir(MOD))


def test_changes_make_new_modules() -> None:
    more = MOD.with_functions({"lib": ExternFunc("lib"), "copy": MOD["main"]})
    assert list(more) == ["copy", "main", "lib"] and more["copy"] is MOD["main"]
    assert isinstance(MOD["copy"], PrimFunc), "as it was"
    assert MOD.with_functions({"main": MOD["main"]}) is MOD and MOD.with_functions({}) is MOD
    assert list(more.without("copy", "other")) == ["main", "lib"] and MOD.without("other") is MOD
    assert more.attrs == MOD.attrs and more.name_hint == MOD.name_hint == "Layer"


def test_fresh_names() -> None:
    assert MOD.fresh_name("exp") == "exp" and MOD.fresh_name("main") == "main1"
    assert MOD.with_functions({"main1": MOD["main"]}).fresh_name("main") == "main2"


def test_functions_know_their_names() -> None:
    copy = MOD["copy"]
    assert name_of(copy) == "copy" and name_of(MOD["main"]) == "main"
    demanded = Module.of({"other": rl.parse(copy.script())["copy"]})["other"]
    assert name_of(demanded) == "copy", "it keeps the name under which it was defined"
    named = Function((), MOD["main"].body, attrs=Attrs(global_symbol="entry"))  # type: ignore
    assert name_of(named) == "entry"
    assert name_of(Function((), MOD["main"].body)) == "main"  # type: ignore


def test_wrong_questions() -> None:
    with pytest.raises(KeyError, match="no function named 'mian' .* it has: copy, main"):
        MOD["mian"]
    with pytest.raises(KeyError, match="it has: none"):
        Module.of({})["main"]
    with pytest.raises(AttributeError, match="no attribute or function 'mian'; .* copy, main"):
        MOD.mian  # noqa: B018
    with pytest.raises(AttributeError, match="'_private'$"):
        MOD._private  # noqa: B018
    with pytest.raises(TypeError, match="a module holds functions, and 'x' is a str"):
        Module.of({"x": "text"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="expected a module, got a str; rl.parse"):
        Module.require("text")
    torch = type("Linear", (), {"__module__": "torch.nn.modules.linear"})
    with pytest.raises(TypeError, match=r"got a Linear; rl.from_torch\(...\) imports it"):
        Module.require(torch())
    with pytest.raises(TypeError, match=r"got a Mine; rl.from_torch\(...\) imports it"):
        Module.require(type("Mine", (torch,), {})())
    keras = type("Model", (), {"__module__": "keras.models"})
    with pytest.raises(TypeError, match="got a Model; there is no importer for it: write"):
        Module.require(keras())
