"""CUDA C and PTX with the lines that they come from."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.cuda.listing import list_cuda

PROGRAM = """\
from relaxlab.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")):
        with R.dataflow():
            s = R.nn.softmax(x, axis=-1)
            R.output(s)
        return s
"""


@pytest.fixture(scope="module")
def listing():
    func = rl.trace(rl.parse(PROGRAM), "cuda").result.loop_functions()["softmax"]
    return list_cuda(func, "softmax", "sm_80")


def test_cuda_lines_know_their_statement(listing):
    exponent = [line for line in listing.cuda if "expf(" in line.text]
    assert len(exponent) == 1
    assert "T.exp(" in listing.loops[exponent[0].loop - 1].text
    assert {s.line for s in listing.origins[exponent[0].loop]} == {9}
    assert listing.cuda[0].loop == 0 and listing.cuda[0].text.startswith('extern "C"')


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC (pip install 'relaxlab[cuda]')")
def test_ptx_lines_know_the_line_of_cuda(listing):
    pairs = zip(listing.ptx, listing.ptx_lines, strict=True)
    shuffles = [number for line, number in pairs if "shfl" in line.text]
    assert shuffles
    for number in shuffles:
        assert "__shfl_xor_sync" in listing.cuda[number - 1].text
    stores = [line for line in listing.ptx if "st.global" in line.text]
    assert len(stores) == 1
    assert listing.loops[stores[0].loop - 1].text.strip().startswith("T_softmax_norm[")
    assert listing.resources["softmax_kernel"].registers > 0


def test_without_nvrtc_there_is_cuda_alone(monkeypatch):
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    func = rl.trace(rl.parse(PROGRAM), "cuda").result.loop_functions()["softmax"]
    found = list_cuda(func, "softmax", "sm_80")
    assert found.cuda and not found.ptx and not found.resources
