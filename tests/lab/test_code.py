"""The code explorer: linked lines, facts about the code, and its controls in a browser."""

from __future__ import annotations

from itertools import accumulate

import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc, sass
from relaxlab.codegen.cuda.listing import ptx_bits, sass_bits
from relaxlab.lab import assets
from relaxlab.lab.code import code
from relaxlab.lab.payload import pack, unpack
from tests.lab.pipeline_programs import DENSE, HOSTILE, WRONG, dense

MATMUL, ADD, RELU, SOFTMAX = 10, 11, 12, 13


@pytest.fixture(scope="module")
def view():
    return code(dense())


def kernel_of(view, name):
    state = unpack(pack(view.state))
    kernel = next(k for k in state["kernels"] if k["name"] == name)
    table = state["table"]
    panes = {
        p["key"]: [
            (table[i], loop)
            for i, loop in zip(accumulate(p["lines"]), accumulate(p["loop"]), strict=True)
        ]
        for p in kernel["panes"]
    }
    rows = [(no, table[i]) for no, i in state["script"]]
    return kernel, panes, rows


def test_every_kernel_is_there_in_each_language(view):
    assert [k["name"] for k in view.state["kernels"]] == list(
        rl.trace(dense()).result.loop_functions()
    )
    kernel, panes, rows = kernel_of(view, "softmax")
    assert list(panes) == ["loops", "emitted", "optimised", "assembly"]
    assert "def softmax(" in panes["loops"][1][0]
    # The compiler's own notes say nothing about the loops.
    assert not any("s_tir" in text or "op_pattern" in text for text, *_ in panes["loops"])
    assert panes["optimised"][0][0].startswith("define void @rl.softmax(")
    assert panes["assembly"][0][0] == "rl.softmax:"
    lines = DENSE.rstrip("\n").split("\n")
    shown = lines.index("@I.ir_module")
    assert rows[1:] == [*enumerate(lines, 1)][shown:], "the module alone, not what is around it"
    assert any("on vectors" in f for f in kernel["facts"]) and not kernel["error"]


def test_lines_of_the_script_lead_to_what_they_became(view):
    kernel, panes, rows = kernel_of(view, "fused_matmul_add_relu")
    by_script = {}
    for loop, places in kernel["origins"]:
        for row in places:
            by_script.setdefault(rows[row][0], set()).add(panes["loops"][loop - 1][0].strip())
    assert any("* w[vk, vj]" in text for text in by_script[MATMUL])
    assert all("T.max(" in t for t in by_script[ADD] if t.startswith("out["))
    assert any(t.startswith("out[") for t in by_script[ADD] & by_script[RELU])
    assert SOFTMAX not in by_script
    assert kernel["via"] == ["legalize_ops, fuse_tir"]
    assert {rows[r][0] for _, places in kernel["origins"] for r in places} == {MATMUL, ADD, RELU}


SHARED = """\
from relaxlab.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.matmul(b, w)
            d = R.nn.relu(c)
            e = R.exp(d)
            R.output(e)
        return e
"""


def test_calls_that_share_a_loop_function_keep_their_own_lines():
    view = code(SHARED)
    found = {}
    for kernel in view.state["kernels"]:
        _, _, rows = kernel_of(view, kernel["name"])
        found[kernel["name"]] = {rows[r][0] for _, places in kernel["origins"] for r in places}
    assert found == {"fused_matmul_relu": {9, 10}, "fused_matmul_relu_exp": {11, 12, 13}}


def test_assembly_in_the_syntax_of_intel(view):
    state = unpack(pack(view.state))
    pane = state["kernels"][0]["panes"][-1]
    att, intel = ([state["table"][i] for i in accumulate(pane[key])] for key in ("lines", "intel"))
    assert len(att) == len(intel) and any("%" in line for line in att)
    assert not any("%" in line for line in intel) and any("ptr [" in line for line in intel)
    same = [[line.split()[0][:2] for line in lines] for lines in (att, intel)]
    assert same[0] == same[1], "line by line the same instructions"
    assert "%" in rl.compile(dense()).assembly(), "the process still writes AT&T's"
    arm = rl.Target(triple="aarch64-unknown-linux-gnu")
    assert "intel" not in code(dense(), arm).state["kernels"][0]["panes"][-1]


def test_a_scheduled_function_alone_and_one_by_name(view):
    func = rl.trace(dense()).result["softmax"]
    assert [k["name"] for k in code(func, name="mine").state["kernels"]] == ["mine"]
    sch = rl.Schedule(func)
    assert [k["name"] for k in code(sch).state["kernels"]] == ["softmax"]
    assert [k["name"] for k in code(dense(), name="softmax").state["kernels"]] == ["softmax"]
    with pytest.raises(KeyError, match="no loop function 'nothing' after the passes; there are"):
        code(dense(), name="nothing")
    with pytest.raises(ValueError, match="banana"):
        code(dense(), "banana")


def test_programs_that_fail_are_shown_as_such():
    view = code(WRONG)
    assert view.state["kernels"] == [] and view.state["failure"]["diagnostics"]
    func = rl.trace(dense(), "cuda").result["softmax"]  # bound to threads of a GPU
    found = code(func).state["kernels"][0]
    assert "thread_binding" in found["error"] and found["panes"] == []
    odd = code(rl.trace(dense()).result["softmax"], name=HOSTILE).state["kernels"][0]
    assert "cannot define a function named" in odd["error"]


def test_many_kernels_are_cut_with_a_note(monkeypatch):
    monkeypatch.setattr("relaxlab.lab.code.MOST_LINES", 100)
    view = code(dense())
    assert len(view.state["kernels"]) == 1
    assert "Only 1 of 2 kernels can be chosen" in view.state["notes"][0]


def test_cuda_with_ptx_and_its_lines():
    view = code(dense(), "cuda")
    kernel, panes, _ = kernel_of(view, "softmax")
    compiled = ["ptx"] * nvrtc.is_available() + ["sass"] * sass.is_available()
    assert list(panes) == ["loops", "cuda", *compiled]
    exponent = next(loop for text, loop in panes["cuda"] if "expf(" in text)
    assert "T.exp(" in panes["loops"][exponent - 1][0]
    if nvrtc.is_available():
        assert "registers per thread" in kernel["facts"][0]
    else:
        assert "PTX needs NVRTC" in view.state["notes"][0]


def test_wide_accesses_of_gpus():
    assert sass_bits("    @!P0 LDG.E.128 R4, desc[UR4][R2.64]") == 128
    assert sass_bits("    FADD R4, R4, R5") == sass_bits("softmax_kernel:") == 0
    assert ptx_bits("    ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];") == 128
    assert ptx_bits("    st.shared.v2.f64 [%rd1], {%fd1, %fd2};") == 128
    assert ptx_bits("    ld.global.f32 %f1, [%rd1];") == 0


def test_a_live_view_offers_the_program_and_the_target(view):
    assert [c.name for c in view.controls] == ["program", "target"]
    assert view.again is not None
    assert view.again(program=DENSE, target="cuda").state["target"] == "cuda"


def test_it_is_small_enough(view):
    assert len(assets.compressed("code")) <= 25_000
    assert len(view.html()) <= 250_000


# In a browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_line_lights_those_it_belongs_to(open_view, audit, view, scheme):
    page = open_view(view, scheme)
    page.get_by_label("kernel").select_option("fused_matmul_add_relu")
    loops = page.get_by_role("region", name="Scheduled loops")
    loops.get_by_text("T.max").first.click()
    script = page.get_by_role("region", name="Script")
    lit = [t.split()[0] for t in script.locator(".linked").all_inner_texts()]
    assert lit == [str(ADD), str(RELU)]
    assembly = page.get_by_role("region", name="Assembly")
    assert any("max" in t for t in assembly.locator(".linked").all_inner_texts())
    assert "lines of Assembly" in page.locator(".picked").inner_text()
    assert audit(page) == []


def test_lines_by_keyboard_and_panes_on_and_off(open_view, view):
    page = open_view(view)
    script = page.get_by_role("region", name="Script")
    script.focus()
    assert f"Script, line {SOFTMAX}: " in page.locator(".picked").inner_text(), "at first"
    page.keyboard.press("k")
    assert "nothing is linked with this line" in page.locator(".picked").inner_text()
    page.keyboard.press("j")
    assert f"Script, line {SOFTMAX}: " in page.locator(".picked").inner_text()
    assert page.get_by_role("region", name="Assembly").locator(".linked").count() > 0
    assert page.get_by_role("region", name="LLVM IR as emitted").count() == 0
    page.get_by_role("checkbox", name="LLVM IR as emitted").check()
    assert (
        "define void @rl.softmax"
        in page.get_by_role("region", name="LLVM IR as emitted").inner_text()
    )
    page.get_by_role("button", name="next vector in Assembly").click()
    assert "mm" in page.get_by_role("region", name="Assembly").locator(".here").inner_text()


def test_the_syntax_of_the_assembly_is_chosen(open_view, view):
    page = open_view(view)
    assembly = page.get_by_role("region", name="Assembly")
    assert "%rbp" in assembly.inner_text()
    page.get_by_role("checkbox", name="Intel syntax").check()
    assert "push rbp" in assembly.inner_text() and "%" not in assembly.inner_text()
    assert assembly.locator(".ln[title*=': ']").count() > 0, "instructions are explained"


def test_lines_have_the_colours_of_the_script_and_can_be_copied(open_view, view):
    page = open_view(view)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_label("kernel").select_option("1")

    script = page.get_by_role("region", name="Script").locator("[class*=' c']")
    assert {int(no) for no in script.locator(".no").all_inner_texts()} == {MATMUL, ADD, RELU}
    assembly = page.get_by_role("region", name="Assembly").locator("[class*=' c0']")
    assert assembly.count() > 0
    plain = page.get_by_role("region", name="Assembly").locator(".ln:not([class*=' c'])").first
    before = assembly.first.evaluate("e => getComputedStyle(e).backgroundColor")
    assert before != plain.evaluate("e => getComputedStyle(e).backgroundColor")
    page.get_by_role("checkbox", name="colours").uncheck()
    assert before != assembly.first.evaluate("e => getComputedStyle(e).backgroundColor")
    page.get_by_role("button", name="copy Script").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "class Module:" in copied and "R.matmul" in copied
    assert page.get_by_role("region", name="Assembly").locator(".ln[title*=': ']").count() > 0


@pytest.mark.parametrize(("language", "exchange"), [("PTX", "shfl"), ("SASS of sm_80", "SHFL")])
def test_code_of_a_gpu_leads_to_its_one_line_of_cuda(open_view, language, exchange):
    if not (nvrtc.is_available() and sass.is_available()):
        pytest.skip("needs NVRTC and nvdisasm (pip install 'relaxlab[cuda]')")
    page = open_view(code(dense(), "cuda"))
    cuda = page.get_by_role("region", name="CUDA C")
    if language == "PTX":
        page.get_by_role("checkbox", name="PTX").check()
    page.get_by_role("region", name=language).get_by_text(exchange).first.click()
    linked = cuda.locator(".linked").all_inner_texts()
    assert len(linked) == 1 and "__shfl_xor_sync" in linked[0]


def test_a_line_of_the_script_leads_to_its_kernel(open_view, view):
    page = open_view(view)
    assert page.get_by_label("kernel").input_value() == "0"
    page.get_by_role("region", name="Script").get_by_text("matmul").click()
    assert "nothing is linked with this line" in page.locator(".picked").inner_text()
    page.get_by_role("button", name="in fused_matmul_add_relu").click()
    assert page.get_by_label("kernel").input_value() == "1"
    assert f"Script, line {MATMUL}: " in page.locator(".picked").inner_text()
    assert page.get_by_role("region", name="Assembly").locator(".linked").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_text_stays_text(open_view, scheme):
    text = DENSE.replace("class Module:", f"class Module:  # {HOSTILE}")
    page = open_view(code(text), scheme)
    assert HOSTILE in page.get_by_role("region", name="Script").inner_text()
    assert page.evaluate("window.bad") is None
    page = open_view(code(text.replace("R.add", f"R.nosuch  # {HOSTILE}\n            #")), scheme)
    assert page.get_by_role("alert").count() == 1
    assert page.evaluate("window.bad") is None
