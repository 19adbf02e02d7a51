"""The assembly that switches between stacks, on each architecture, by a program in C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from relaxlab.codegen.llvm.fibers import SWITCH, registers_of, switch
from relaxlab.ir.target import Target
from relaxlab.runtime.export.export import ExportError, find_compiler
from relaxlab.targets.machines import MACHINES

PROGRAM = """
#include <stdio.h>

extern void SWITCH(void *recorder, long *leave, long *enter);
static long caller, own, stack[4096];
static volatile long whole = 3;
static volatile double real = 0.5;

/* More values than there are registers that calls keep, all of them in use across a switch. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define READ(n) long a##n = whole + n; double d##n = real * (n + 1);
#define CHANGE(n) a##n += 1; d##n += 0.25;
#define SUM(n) + a##n + d##n

static void body(void *recorder) {
  double *results = recorder;
  EACH(READ)
  for (;;) {
    *results++ = 0 EACH(SUM);
    EACH(CHANGE)
    SWITCH(recorder, &own, &caller);
  }
}

int main(void) {
  double results[4];
  long first = ((long)(stack + 4096) / 16 * 16 - 16 - SIZE) / 8 * 8;
  *(long *)(first + RETURN_AT) = (long)body;
  own = first;
  EACH(READ)
  for (int i = 0; i < 4; i++) {
    SWITCH(results, &caller, &own);
    EACH(CHANGE)
  }
  for (int i = 0; i < 4; i++) printf("%g ", results[i]);
  printf("%g", 0 EACH(SUM));
  return 0;
}
"""
COUNT = 14
FIRST = sum(3 + n + 0.5 * (n + 1) for n in range(COUNT))
"""The sum of all values at the beginning; each round adds 1.25 for each pair."""


@pytest.mark.parametrize("machine", ["host", *MACHINES])
def test_a_switch_keeps_what_functions_keep(machine: str, tmp_path: Path) -> None:
    target = MACHINES.get(machine, Target.host())
    try:
        compiler = find_compiler(target)
    except ExportError as error:
        pytest.skip(str(error))
    here = machine == "host"
    if not here and not shutil.which(f"qemu-{machine}"):
        pytest.skip(f"there is no qemu-{machine} to run programs: apt-get install qemu-user")
    registers = registers_of(target)
    lines = [f".globl {SWITCH}", f"{SWITCH}:", *registers.assembly, "ret"]
    source = tmp_path / "switch.c"
    assembly = "".join(f'  "{line}\\n"\n' for line in lines)
    source.write_text(f"{PROGRAM}\n__asm__(\n{assembly});\n")
    given = {"SWITCH": SWITCH, "SIZE": registers.size, "RETURN_AT": registers.return_at}
    flags = ["-O2", *(f"-D{name}={value}" for name, value in given.items())]
    program = tmp_path / "switch"
    subprocess.run([*compiler, *flags, "-o", str(program), str(source)], check=True)
    # The folder in which Debian keeps the C library of another architecture.
    emulator = [] if here else [f"qemu-{machine}", "-L", f"/usr/{machine}-linux-gnu"]
    ran = subprocess.run([*emulator, str(program)], capture_output=True, text=True, check=True)
    sums = [FIRST + 1.25 * COUNT * round_ for round_ in (0, 1, 2, 3, 4)]
    assert [float(number) for number in ran.stdout.split()] == pytest.approx(sums)


def test_an_architecture_without_a_switch_is_named() -> None:
    wasm = Target("cpu", "wasm32-unknown-unknown", "generic", frozenset())
    with pytest.raises(ValueError, match="cannot wait for tensors on wasm32, only on aarch64"):
        switch(wasm)
