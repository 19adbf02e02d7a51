"""CUDA C and PTX with the lines that they come from."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc, sass
from relaxlab.codegen.cuda.listing import list_cuda
from relaxlab.codegen.errors import CodegenError
from tests.disassembler import needs_disassembler

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
    assert len(stores) == 2  # 64 values of a row, 32 threads
    assert "in T.vectorized(2)" in "".join(listing.loops[s.loop - 1].text for s in stores)
    assert listing.resources["softmax_kernel"].registers > 0


@needs_disassembler
def test_machine_code_knows_the_line_of_cuda(listing):
    pairs = zip(listing.sass, listing.sass_lines, strict=True)
    shuffles = [number for line, number in pairs if "SHFL" in line.text]
    assert shuffles
    for number in shuffles:
        assert "__shfl_xor_sync" in listing.cuda[number - 1].text
    assert listing.sass[0].text == "softmax_kernel:"


def test_output_of_the_disassembler_is_read():
    found = sass.read_sass(
        """
.text.first:
\t//## File "a.cu", line 7 inlined at "a.cu", line 21
\t//## File "a.cu", line 21
        /*0000*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_1:
        /*0010*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
.text.second:
        /*0000*/                   EXIT ;
"""
    )
    first = found["first"]
    assert [(i.opcode, i.line) for i in first] == [("LDG.E.128", 21), ("HMMA.16816.F32.BF16", 21)]
    assert [(i.text, i.line) for i in found["second"]] == [("EXIT", 0)]
    assert sass.opcodes(first)["LDG"] == sass.opcodes(first)["LDG.E.128"] == 1


def test_without_a_disassembler(monkeypatch):
    monkeypatch.setattr(sass, "find_program", lambda name: None)
    with pytest.raises(sass.SassError, match="nvdisasm.*pip install"):
        sass.disassemble(b"")


def test_a_kernel_takes_the_shared_memory_of_its_architecture(monkeypatch):
    """Slices in 147456 bytes of shared memory, which not every GPU has."""
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)  # test_tensor_matmul compiles such
    product = """
from relaxlab.script import ir as I, relax as R
@R.function
def main(x: R.Tensor((8192, 8192), "bfloat16"), w: R.Tensor((8192, 8192), "bfloat16")):
    return R.matmul(x, w)
"""
    func = rl.trace(rl.parse(product), "cuda:sm_90").result.loop_functions()["matmul"]
    cuda = list_cuda(func, "matmul", "sm_90").cuda
    assert any("mma_m16n8k16" in line.text for line in cuda)
    with pytest.raises(CodegenError, match="takes 147456 bytes of shared memory .* 101376 are"):
        list_cuda(func, "matmul", "sm_86")
    with pytest.raises(CodegenError, match="takes 147456 bytes"):
        list_cuda(func, "matmul", "sm_75")


def test_without_nvrtc_there_is_cuda_alone(monkeypatch):
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    func = rl.trace(rl.parse(PROGRAM), "cuda").result.loop_functions()["softmax"]
    found = list_cuda(func, "softmax", "sm_80")
    assert found.cuda and not found.ptx and not found.resources
