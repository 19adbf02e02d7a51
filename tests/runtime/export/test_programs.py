"""C programs that use exported libraries: language models, sanitizers, the examples of the page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir.target import Target
from relaxlab.models.config import DecoderConfig
from relaxlab.models.decoder import Decoder
from relaxlab.models.generate import TextGenerator
from relaxlab.models.loader import open_model
from relaxlab.passes.lower_to_libraries import BLAS
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.export.params_file import read_params
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from tests.compiler import compiler
from tests.runtime.test_executable import Memory

pytestmark = pytest.mark.usefixtures("needs_compiler")

POSITIONS = 64
"""Positions in the caches of the programs in C, whole blocks of keys."""


@pytest.fixture(scope="module")
def plain() -> Executable:
    return rl.compile(Memory, use_cache=False, threads=2)


SOURCES = Path(__file__).parent / "c"
STRICT = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-std=c11"]


def compile_c(source: Path, library: Path, *flags: str) -> Path:
    """Build a C program that uses a library; its header is found beside it."""
    program = library.with_suffix(".exe")
    search = [f"-I{library.parent}", f"-Wl,-rpath,{library.parent}"]
    command = [*compiler(), *flags, str(source), str(library), *search, "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def outside(program: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a program where nothing of this Python can be found."""
    return subprocess.run(
        [str(program), *args], cwd="/", env={}, capture_output=True, text=True, timeout=300
    )


def logits_in_c(
    folder: Path, exe: Executable, config: DecoderConfig, prompt: int, ids: list[int]
) -> None:
    """Export a model with its weights, run it in C with one and two threads, and compare with what
    Python gets from the executable, bit for bit. `prompt` ids are read at once."""
    params, header, library = exe.export(folder / "model.so", bound=True)
    assert params.stat().st_size > 0
    sizes = {
        "MODEL_HEADER": f'"{header.name}"', "LAYERS": config.num_layers, "POSITIONS": POSITIONS,
        "HEADS": config.num_kv_heads, "HEAD_DIM": config.head_dim, "VOCABULARY": config.vocab_size,
    }  # fmt: skip
    program = compile_c(
        SOURCES / "decode.c", library, *STRICT, *(f"-D{k}={v}" for k, v in sizes.items())
    )
    want = [exe["prefill"](np.array([ids[:prompt]], "int32"), (0,))[0]] if prompt else []
    for past in range(prompt, len(ids)):
        want.append(exe["decode"](np.array([[ids[past]]], "int32"), (past,))[0])
    for threads in ("1", "2"):
        out = folder / f"logits{threads}"
        done = outside(program, str(out), threads, str(prompt), *map(str, ids))
        assert (done.returncode, done.stderr) == (0, "")
        got = np.fromfile(out, "float32").reshape(-1, config.vocab_size)
        np.testing.assert_array_equal(got, want)


def empty_cache(config: DecoderConfig) -> list[np.ndarray[Any, Any]]:
    shapes = nn.KVCache.shapes(config.num_kv_heads, config.head_dim, POSITIONS)
    return [np.zeros((1, *s), "float32") for _ in range(config.num_layers) for s in shapes]


def test_small_model_in_c(tmp_path: Path) -> None:
    """Two functions that share their weights and their cache; reading the prompt takes matrix
    tiles where there are any, which a process has to ask for."""
    generator = TextGenerator.load(
        "tiny", activations="q8", kv_dtype="float32", max_context=POSITIONS, threads=2,
    )  # fmt: skip
    ids = np.random.default_rng(3).integers(0, 300, 50).tolist()
    config = generator.checkpoint.config
    logits_in_c(tmp_path, generator.executable, config, 40, ids)
    stored = read_params(tmp_path / "model.params")
    assert len({name.split(".")[0] for name, _ in stored}) == 1
    again = rl.load(tmp_path / "model.so")
    got = again["prefill"](np.array([ids], "int32"), (0,), *empty_cache(config))
    np.testing.assert_array_equal(got[0], generator.logits(ids))


def test_smollm2_in_c(tmp_path: Path) -> None:
    try:
        checkpoint = open_model("smollm2-135m")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    model = Decoder(checkpoint.config, checkpoint.formats, max_context=POSITIONS)
    module, names = model.build(methods=["decode"])
    exe = rl.compile(module, threads=2)
    weights = exe["decode_transform_params"](tuple(checkpoint.weights(model, names)))
    exe["decode"].bind(*empty_cache(checkpoint.config), *weights)
    ids = checkpoint.tokenizer.encode("The capital of France is Paris, and that of Italy is")
    logits_in_c(tmp_path, exe, checkpoint.config, 0, ids)
    last = np.fromfile(tmp_path / "logits2", "float32")[-checkpoint.config.vocab_size :]
    assert checkpoint.tokenizer.decode([int(last.argmax())]) == " Rome"


def test_imports_of_a_library(plain: Executable, tmp_path: Path) -> None:
    """Nothing but the C library."""
    plain.export(tmp_path / "model.so")
    source = tmp_path / "libraries.c"
    source.write_text("""
        #include <link.h>
        #include <stdio.h>
        #include "model.h"
        static int show(struct dl_phdr_info *info, size_t size, void *data) {
            (void)size, (void)data;
            return puts(info->dlpi_name) < 0;
        }
        int main(void) {
            model_context *context;
            if (model_open(NULL, &context)) return 1;
            model_close(context);
            return dl_iterate_phdr(show, NULL);
        }
    """)
    done = outside(compile_c(source, tmp_path / "model.so", "-D_GNU_SOURCE"))
    names = {Path(line).name.partition(".so")[0] for line in done.stdout.split()}
    allowed = {"linux-vdso", "ld-linux-x86-64", "ld-linux-aarch64", "libc", "libm", "libdl"}
    assert done.returncode == 0
    assert {"model"} <= names <= allowed | {"model", "libpthread"}


@I.ir_module
class Squares:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        e = R.multiply(x, x)
        t = R.sum(e)
        return R.add(R.multiply(e, R.const(2, "float32")), R.multiply(t, R.const(0, "float32")))


def test_threads_that_come_and_go(tmp_path: Path) -> None:
    """Teams of changing sizes, more threads than processors, threads that end, and a fork."""
    rl.compile(Squares, use_cache=False).export(tmp_path / "model.so")
    program = compile_c(SOURCES / "threads.c", tmp_path / "model.so", "-pthread")
    done = outside(program)
    assert (done.returncode, done.stdout) == (0, "right\n")


@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 48), "float32")):
        return R.nn.relu(R.matmul(x, w))


def test_a_program_that_calls_blas_takes_it_along(tmp_path: Path) -> None:
    pytest.importorskip("scipy_openblas64")
    pipeline = cpu_pipeline().with_options("lower_to_libraries", use=BLAS)
    exe = rl.compile(Product, use_cache=False, pipeline=pipeline)
    written = exe.export(tmp_path / "model.so")
    assert sorted(f.name for f in written) == ["libscipy_openblas64_.so", "model.h", "model.so"]
    program = compile_c(SOURCES / "product.c", tmp_path / "model.so", *STRICT)
    done = outside(program)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "0 3008 128\n" * 3)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in written:
        file.rename(moved / file.name)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s).astype("float32") for s in ((33, 64), (64, 48))]
    np.testing.assert_array_equal(rl.load(moved / "model.so")["main"](*args), exe["main"](*args))
    (moved / "libscipy_openblas64_.so").unlink()
    text = f"import relaxlab as rl; rl.load({str(moved / 'model.so')!r})"
    alone = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert "cannot be loaded: libscipy_openblas64_.so" in alone.stderr


def test_header_is_cpp_too(plain: Executable, tmp_path: Path) -> None:
    plain.export(tmp_path / "model.so")
    source = tmp_path / "use.cpp"
    source.write_text('#include "model.h"\nint main() { model_close(nullptr); }\n')
    if subprocess.run([*compiler(), "-x", "c++", "-E", os.devnull], capture_output=True).returncode:
        pytest.skip("the C compiler does not know C++")
    assert outside(compile_c(source, tmp_path / "model.so", "-Werror")).returncode == 0


def test_sanitizers_find_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses, undefined behaviour and leaks, with the library's C part instrumented."""
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
    probe = [*compiler(), *flags, "-x", "c", "-", "-o", str(tmp_path / "probe")]
    built = subprocess.run(probe, input="int main(void) { return 0; }", text=True,
                           capture_output=True)  # fmt: skip
    if built.returncode or outside(tmp_path / "probe").returncode:
        pytest.skip("the C compiler has no sanitizers")
    monkeypatch.setenv("CC", shlex.join([*compiler(), *flags]))
    exe = rl.compile(Memory, use_cache=False)
    exe["update"].bind(np.int64(3))
    exe.export(tmp_path / "model.so", bound=True)
    done = outside(compile_c(SOURCES / "memory.c", tmp_path / "model.so", *STRICT))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "argument `x` of `several` has 2 dimensions (2, 2), expected " \
        "R.Tensor((n,), 'float32')\n"  # fmt: skip


WATCHED = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.softmax(a)
        parts = R.split(b, 3, axis=0)
        c = R.exp(parts[0])
        d = R.permute_dims(R.add(a, R.flip(x, axis=1)))
        e = R.mean(d, axis=0)
        f = R.cumsum(R.concat((x, b), axis=0), axis=0)
        g = R.std(R.matmul(d, x), axis=1)
        R.output(c, e, f, g)
    return c, e, f, g
"""


def watched(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the program of `sizes.c` under valgrind; threads that wait when it ends are no leak."""
    program = compile_c(SOURCES / "sizes.c", folder / "model.so", *STRICT, *flags)
    leaks = ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]
    command = ["valgrind", "-q", "--error-exitcode=9", *leaks, str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.skipif("avx2" not in Target.host().features, reason="the target has AVX2")
def test_valgrind_finds_nothing(tmp_path: Path) -> None:
    """Every access of the machine code, on memory of the exact size; valgrind knows no AVX-512."""
    v3 = "avx avx2 bmi bmi2 f16c fma lzcnt movbe popcnt sse sse2 sse3 sse4.1 sse4.2 ssse3".split()
    target = Target("cpu", Target.host().triple, "x86-64-v3", frozenset(v3))
    exe = rl.compile(rl.parse(WATCHED), target, use_cache=False)
    exe.export(tmp_path / "model.so")
    done = watched(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    short = watched(tmp_path, "-DMISSING=1")
    assert short.returncode == 9 and "Invalid read" in short.stderr
    w = (np.arange(64) % 5 - 2).astype("float32").reshape(8, 8)
    for line in done.stdout.splitlines():
        n, *sums = line.split()
        x = (np.arange(int(n) * 8) % 7 - 3).astype("float32").reshape(-1, 8)
        got = [float(np.sum(r, dtype="float64")) for r in exe["main"](x, w)]
        np.testing.assert_allclose([float(s) for s in sums], got, atol=2e-3, rtol=1e-4)
    assert len(done.stdout.splitlines()) == 8


PAGE = (Path(__file__).parents[3] / "docs/export.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```(python|c|sh)\n(.*?)^```", PAGE, re.M | re.S)
"""The examples of docs/export.md; the last two are for another processor."""


def test_the_page(tmp_path: Path) -> None:
    """The examples for this machine, in order, in one folder."""
    blocks = EXAMPLES[:-2]
    assert [kind for kind, _ in blocks] == ["python", "c", "sh", "python", "python"]
    (tmp_path / "page.py").write_text("\n".join(code for kind, code in blocks if kind == "python"))
    (tmp_path / "use.c").write_text(blocks[1][1])
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "[[4. 4.]]\n")
    cc = "cc() { command " + shlex.join(compiler()) + ' "$@"; }\n'
    done = subprocess.run(
        ["sh", "-e", "-c", cc + blocks[2][1]],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert f"prints `{done.stdout.strip()}`" in PAGE


@pytest.mark.skipif(
    not all(map(shutil.which, ("qemu-riscv64", "riscv64-linux-gnu-gcc"))),
    reason="needs `apt-get install qemu-user gcc-riscv64-linux-gnu`",
)
def test_the_page_on_another_processor(tmp_path: Path) -> None:
    """The C program prints there what it prints here."""
    (python, first), (c, use), *_, (other, export), (shell, commands) = EXAMPLES
    assert (python, c, other, shell) == ("python", "c", "python", "sh")
    (tmp_path / "page.py").write_text(f"{first}\n{export}")
    (tmp_path / "use.c").write_text(use)
    for command in ([sys.executable, "page.py"], ["sh", "-e", "-c", commands]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
    assert f"prints `{done.stdout.strip()}`" in PAGE and done.stdout.strip()
