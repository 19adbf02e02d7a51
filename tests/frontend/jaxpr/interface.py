"""What `relaxlab.from_jax` promises beside the values of primitives: functions that assert it, run
by `programs.py` in an environment with JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

import relaxlab as rl
from relaxlab.frontend.table import UnsupportedOperators


def trees_of_arguments_and_results() -> None:
    """Arguments are called as the function's, results have its form."""

    def model(params: Any, x: Any, *, scale: Any) -> Any:
        h = jnp.tanh(x @ params["w"]) * scale
        return {"hidden": h, "last": (h[-1],)}

    params = {"w": jax.ShapeDtypeStruct((4, "k"), "float32")}
    x = jax.ShapeDtypeStruct(("n", 4), "float32")
    program = rl.from_jax(model, params, x, scale=jax.ShapeDtypeStruct((), "float32"))
    main = program.module["main"]
    assert [p.name for p in main.params] == ["params_w", "x", "scale"]
    exe = program.compile()
    for n, k in ((3, 5), (1, 2)):
        given = {"w": np.ones((4, k), "float32")}, np.full((n, 4), 0.1, "float32")
        ours = exe(*given, scale=np.float32(2))
        theirs = model(given[0], jnp.asarray(given[1]), scale=2)
        np.testing.assert_allclose(ours["last"][0], theirs["last"][0], rtol=1e-5)
        assert ours["hidden"].shape == (n, k)
    turned = {"w": np.ones((5, 4), "float32").T}, np.ones((4, 3), "float32").T
    ours = exe(*turned, scale=np.float32(2))
    np.testing.assert_allclose(ours["hidden"], model(*turned, scale=2)["hidden"], rtol=1e-5)
    try:
        exe(given[0], given[1])
    except TypeError as error:
        assert "imported with arguments" in str(error)
    else:
        raise AssertionError("arguments of another form are taken")


def constants_keep_their_memory() -> None:
    """Arrays that a function closes over are parameters with values, and not copied."""
    w = jnp.arange(400.0).reshape(20, 20)
    program = rl.from_jax(lambda x: x @ w, jax.ShapeDtypeStruct(("n", 20), "float32"))
    (value,) = program.params.values()
    assert np.shares_memory(value, np.asarray(w))
    x = np.ones((3, 20), "float32")
    np.testing.assert_allclose(program.compile()(x), x @ np.asarray(w), rtol=1e-6)


def all_that_is_missing_is_reported() -> None:
    """With counts and lines of the user's program."""

    def hard(x: Any) -> Any:
        return lax.linalg.schur(x)[1].sum() + lax.igamma(x, x) + lax.linalg.schur(x.T)[1].sum()

    try:
        rl.from_jax(hard, jax.ShapeDtypeStruct((4, 4), "float32"))
    except UnsupportedOperators as error:
        text = str(error)
        assert "schur: it has no row in the table of JAX (2 calls)" in text, text
        assert "igamma" in text and "interface.py" in text and "lax.linalg.schur(x.T)" in text, text
    else:
        raise AssertionError("nothing was reported")


def refusals_of_rows_are_collected() -> None:
    """What a row cannot express is reported as well."""

    def hard(x: Any) -> Any:
        narrow = lax.bitcast_convert_type(x, "int8")
        return lax.reduce(x, np.int32(0), lambda a, b: a * 2 + b, (0,)), narrow

    try:
        rl.from_jax(hard, jax.ShapeDtypeStruct(("n",), "int32"))
    except UnsupportedOperators as error:
        assert {p.name for p in error.problems} == {"reduce", "bitcast_convert_type"}
    else:
        raise AssertionError("nothing was reported")


def symbols_keep_their_constraints() -> None:
    """JAX's own symbols: a stated constraint is a check of calls."""
    n, m = export.symbolic_shape("n, m", constraints=["n >= 3", "m == 2*n"])
    spec = jax.ShapeDtypeStruct((n, m), "float32")
    exe = rl.from_jax(lambda x: x[:3].sum() + x.shape[1] // 2, spec).compile()
    assert exe(np.ones((4, 8), "float32")) == 28
    for bad in ((2, 4), (4, 7)):
        try:
            exe(np.ones(bad, "float32"))
        except (rl.CheckFailed, rl.ArgumentError):
            continue
        raise AssertionError(f"{bad} is taken")


def places_are_lines_of_the_user() -> None:
    """Bindings know the line of the function that they are from."""
    x = jax.ShapeDtypeStruct(("n",), "float32")
    main = rl.from_jax(lambda x: jax.nn.softmax(x), x).module["main"]
    spans = [b.span for block in main.body.blocks for b in block.bindings if b.span is not None]
    assert any("jax.nn.softmax(x)" in s.source.line(s.line) for s in spans)


def functions_are_compiled_when_called() -> None:
    """Once for the first sizes, once more for symbols; JAX gets arrays of JAX back."""
    f = rl.jit(lambda x, w: jnp.tanh(x @ w))
    w = np.ones((4, 4), "float32")
    for n in (2, 3, 7, 5):
        x = np.full((n, 4), 0.1, "float32")
        ours = f(x, w)
        assert isinstance(ours, np.ndarray)
        np.testing.assert_allclose(ours, np.tanh(x @ w), rtol=1e-5)
    assert f.compilations == 2
    assert isinstance(f(jnp.asarray(x), w), jax.Array) and f.compilations == 2
    np.testing.assert_allclose(f(x.astype("float64"), w), np.tanh(x @ w), rtol=1e-5)
    assert f.compilations == 2 and repr(f) == "CompiledFunction(<lambda>, compiled 2 times)"
    assert rl.jit(lambda x, s: x * s)(x, 2.0).dtype == np.float32
    half = rl.jit(lambda x: (x * 2).astype("bfloat16"))(jnp.asarray(x))
    assert isinstance(half, jax.Array) and half.dtype == jnp.bfloat16
    np.testing.assert_array_equal(half, (x * 2).astype("bfloat16"))


CHECKS = (
    trees_of_arguments_and_results, constants_keep_their_memory, all_that_is_missing_is_reported,
    refusals_of_rows_are_collected, symbols_keep_their_constraints, places_are_lines_of_the_user,
    functions_are_compiled_when_called,
)  # fmt: skip
