"""Programs for other machines: object files and assembly, which do not run here."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.target import parse_target
from relaxlab.runtime.executable import Executable
from relaxlab.script import ir as I
from relaxlab.script import relax as R


@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor((4, 32), "float32"),
        h: R.Tensor(("n", 32), "float16"),
    ):
        with R.dataflow():
            y = R.nn.softmax(R.matmul(x, w))
            z = R.add(y, R.astype(R.exp(h), "float32"))
            R.output(z)
        return z


def elf_machine(code: bytes) -> int:
    assert code[:4] == b"\x7fELF"
    return int.from_bytes(code[18:20], "little")


def compiled(triple: str) -> Executable:
    return rl.compile(Layer, rl.Target(triple=triple), use_cache=False)


@pytest.mark.parametrize(
    ("triple", "machine", "instruction"),
    [
        ("aarch64-unknown-linux-gnu", 183, "fmla"),
        ("riscv64-unknown-linux-gnu", 243, "addi"),
        ("thumbv7em-none-eabi", 40, "ldr"),
    ],
)
def test_object_files_for_other_processors(triple: str, machine: int, instruction: str) -> None:
    exe = compiled(triple)
    assert not exe.runs_here
    assert elf_machine(exe.object()) == machine
    assert instruction in exe.assembly()
    shapes = (((3, 4), "float32"), ((4, 32), "float32"), ((3, 32), "float16"))
    with pytest.raises(rl.ExecutionError, match=f"compiled for generic, {triple}, and does not"):
        exe(*(np.ones(shape, dtype) for shape, dtype in shapes))


@pytest.mark.parametrize(
    ("name", "machine", "instruction"), [("aarch64", 183, "fmla\t"), ("riscv64", 243, "vfm")]
)
def test_usual_machines_by_their_names(name: str, machine: int, instruction: str) -> None:
    exe = rl.compile(Layer, name, use_cache=False)
    assert exe.target == parse_target(f"cpu:{name}") and not exe.runs_here
    assert exe.target.facts.vector_registers == 32
    assert elf_machine(exe.object()) == machine
    assert instruction in exe.assembly()


def test_machines_without_a_name() -> None:
    with pytest.raises(ValueError, match="'arm' is no machine that is known by its name; known: "):
        rl.compile(Layer, "cpu:arm")


def test_webassembly() -> None:
    assert compiled("wasm32-unknown-unknown").object()[:4] == b"\0asm"


def test_object_files_for_this_machine() -> None:
    exe = rl.compile(Layer, use_cache=False)
    assert exe.runs_here
    assert len(exe.object()) > 1000


def test_triples_without_a_code_generator() -> None:
    with pytest.raises(ValueError, match="LLVM generates no code for 'nonsense'; a triple is"):
        compiled("nonsense")


def test_assembly_of_arm_keeps_its_constants() -> None:
    """`#` begins a comment elsewhere."""
    text = compiled("aarch64-unknown-linux-gnu").assembly("main")
    assert re.search(r"stp x\d+, x\d+, \[sp, #-?\d+\]", text)
    assert "//" not in text


def test_libraries_are_for_linux(tmp_path: Path) -> None:
    with pytest.raises(rl.ExportError, match="linked on Linux for Linux; .* for thumbv7em-"):
        compiled("thumbv7em-none-eabi").export(tmp_path / "model.so")


def test_libraries_for_other_processors_need_their_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    message = r"\(riscv64-linux-gnu-gcc\): `apt-get install gcc-riscv64-linux-gnu`, or set CC"
    with pytest.raises(rl.ExportError, match=message):
        rl.compile(Layer, "riscv64").export(tmp_path / "model.so")
    assert not [*tmp_path.iterdir()]


def test_there_is_no_blas_for_other_processors(tmp_path: Path) -> None:
    pytest.importorskip("scipy_openblas64")
    pipeline = rl.cpu_pipeline().with_options("lower_to_libraries", use=rl.BLAS)
    exe = rl.compile(Layer, "aarch64", use_cache=False, pipeline=pipeline)
    with pytest.raises(rl.ExportError, match="calls BLAS, of which there is none here for aarch64"):
        exe.export(tmp_path / "model.so")
