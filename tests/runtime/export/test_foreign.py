"""Libraries for other processors, run by QEMU's user emulation: they give what the interpreter
gives, and are made of the processors' vector instructions."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.artifact import ArtifactError
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.export.export import ExportError, find_compiler
from relaxlab.runtime.export.params_file import DTYPES
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from tests.runtime.export.test_programs import SOURCES, STRICT

Arrays = Sequence[np.ndarray[Any, Any]]

VECTORS = {"aarch64": r"\tfmla\tv|\taddv\t|v\d+\.4s", "riscv64": r"\tvset"}
"""Vector instructions of machines in assembly: NEON's on vectors of 128 bits, and the one that
configures RISC-V's vectors."""
PROCESSORS = {
    "aarch64": "max",
    "riscv64": "rv64,v=true,vext_spec=v1.0,zba=true,zbb=true,zbs=true,Zfhmin=true",
}
"""Processors that have what the targets have, as QEMU before 8.2 names them; later ones have `max`
for RISC-V, too."""


@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor(("n", 19), "float32"), w: R.Tensor((19, 40), "float32"),
             b: R.Tensor((40,), "float32")):  # fmt: skip
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w) + b)
            R.output(y)
        return y


@I.ir_module
class Rows:
    """Softmax, a reduction over rows, and one over columns."""

    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        with R.dataflow():
            y = (R.nn.softmax(x), R.mean(x, axis=1), R.max(x, axis=0))
            R.output(y)
        return y


@I.ir_module
class Quantized:
    """A product of integers in blocks; rows come quantised, since QEMU 7.2 has an assertion fail on
    RISC-V's vfncvt.rtz, of which `dynamic_quantize` is made."""

    @R.function
    def main(q: R.Tensor(("n", 2, 32), "int8"), scale: R.Tensor(("n", 2), "float32"),
             total: R.Tensor(("n", 2), "float32"), d: R.Tensor((24, 2), "float16"),
             qs: R.Tensor((24, 2, 16), "uint8")):  # fmt: skip
        with R.dataflow():
            y = R.quantized_linear(q, scale, total, (d, qs), format="Q4_0")
            R.output(y)
        return y


def normal(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def quantized(n: int) -> Arrays:
    """Arguments of `Quantized` with n rows."""
    rng = np.random.default_rng(n)
    q, qs = (rng.integers(0, 256, s).astype("uint8") for s in ((n, 2, 32), (24, 2, 16)))
    total = q.view("int8").sum(2).astype("float32")
    return q.view("int8"), np.ones((n, 2), "float32"), total, normal(24, 2, dtype="float16"), qs


CASES: dict[str, tuple[rl.Module, list[Arrays]]] = {
    "product": (Product, [(normal(n, 19), normal(19, 40), normal(40)) for n in (1, 7)]),
    "rows": (Rows, [(normal(5, 67),), (normal(33, 16),)]),
    "quantized": (Quantized, [quantized(1), quantized(9)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("machine", VECTORS)
def test_libraries_on_emulated_processors(machine: str, case: str, tmp_path: Path) -> None:
    mod, calls = CASES[case]
    exe = rl.compile(mod, machine, use_cache=False)
    kernels = kernels_in(exe.assembly())
    assert kernels
    for kernel, code in kernels.items():
        assert re.search(VECTORS[machine], code), kernel
    program = linked(exe, machine, tmp_path)
    for args in calls:
        want = rl.interpret(mod, "main", *args)
        want = want if isinstance(want, tuple) else (want,)
        for ours, data in zip(want, outputs(program, machine, args), strict=True):
            theirs = np.frombuffer(data, ours.dtype).reshape(ours.shape)
            np.testing.assert_allclose(theirs, ours, rtol=2e-5, atol=2e-5)


def kernels_in(assembly: str) -> dict[str, str]:
    """The kernels of a program and their code, that of their versions together."""
    found: dict[str, str] = {}
    for name, code in re.findall(r"^rl\.(\w+)\S*:\n(.*?)^\t\.size", assembly, re.M | re.S):
        found[name] = found.get(name, "") + code
    return {name: code for name, code in found.items() if name != "main"}


def linked(exe: Executable, machine: str, folder: Path) -> Path:
    """A program that calls the exported library; a skip that names what is not installed."""
    try:
        compiler = find_compiler(exe.target)
    except ExportError as error:
        pytest.skip(str(error))
    if not shutil.which(f"qemu-{machine}"):
        pytest.skip(f"there is no qemu-{machine} to run programs: apt-get install qemu-user")
    *_, library = exe.export(folder / "model.so")
    with pytest.raises(ArtifactError, match="model.so is for another kind of processor"):
        rl.load(library)
    program = folder / "run"
    flags = [*STRICT, f"-I{folder}", "-Wl,-rpath,$ORIGIN", "-o", str(program)]
    subprocess.run([*compiler, *flags, str(SOURCES / "run.c"), str(library)], check=True)
    return program


def outputs(program: Path, machine: str, args: Arrays) -> list[bytes]:
    """The bytes of each result of a call in an emulated process."""
    given: list[str] = []
    for number, array in enumerate(args):
        file = program.with_name(f"argument{number}")
        array.tofile(file)
        given.append(",".join(map(str, (DTYPES.index(array.dtype.name), *array.shape, file))))
    qemu = f"qemu-{machine}"
    known = subprocess.run([qemu, "-cpu", "help"], capture_output=True, text=True, check=False)
    processor = "max" if re.search(r"\bmax\b", known.stdout) else PROCESSORS[machine]
    # The folder in which Debian keeps the C library of another architecture.
    emulator = [qemu, "-cpu", processor, "-L", f"/usr/{machine}-linux-gnu"]
    out = program.with_name("result")
    command = [*emulator, str(program), str(out), *given]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return [file.read_bytes() for file in sorted(out.parent.glob("result.*"))]
