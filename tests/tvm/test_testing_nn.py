"""Modules of relax.testing.nn: what they emit runs."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.tvm import relax
from relaxlab.tvm.relax.testing import nn


def test_modules_build_a_program_that_runs() -> None:
    bb = relax.BlockBuilder()
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False), nn.LogSoftmax())
    with bb.function("main"):
        data = nn.Placeholder((2, 4), name="data")
        out = model(data)
        bb.emit_func_output(out, params=[data, *model.parameters()])
    mod = bb.get()
    assert len(model.parameters()) == 3
    weights = nn.init_params(mod)
    assert [w.shape for w in weights] == [(4, 3), (3,), (3, 2)]
    got = rl.interpret(mod, "main", np.ones((2, 4), "float32"), *(w.numpy() for w in weights))
    np.testing.assert_allclose(got, np.full((2, 2), -np.log(2)), rtol=1e-6)


def test_checkpoints_and_wrong_use() -> None:
    bb = relax.BlockBuilder()
    with bb.function("main"):
        x = nn.Placeholder((2,), name="x")
        with bb.dataflow():
            y = nn.emit_checkpoint(lambda v: relax.op.exp(v), x)
            z = bb.emit_output(nn.checkpoint(lambda v: [relax.op.sin(v)], y)[0])
        bb.emit_func_output(z, params=[x])
    text = bb.get().script()
    assert text.count("R.grad.start_checkpoint") == text.count("R.grad.end_checkpoint") == 2
    assert "x_scp" in text
    with pytest.raises(ValueError, match="no function is being built"):
        nn.emit(relax.op.exp(x))
    with pytest.raises(TypeError, match="a shape is a list or tuple, not 3"):
        nn.Placeholder(3)
    with pytest.raises(NotImplementedError, match=r"Module\.forward"):
        nn.Module()(x)
