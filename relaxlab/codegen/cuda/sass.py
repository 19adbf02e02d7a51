"""Machine code of NVIDIA's GPUs as text (SASS), by `nvdisasm`; no GPU is needed.

It comes from the wheel `nvidia-cuda-nvdisasm`: `pip install 'relaxlab[cuda]'`, or with a CUDA
toolkit.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.codegen.cuda.toolkit import find_program
from relaxlab.ir.errors import UserError


class SassError(UserError):
    """The disassembler is not there, or refuses the machine code. The message has its output."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a kernel: its `text` (`LDG.E.128 R4, desc[UR4][R2.64]`), with a predicate
    before it where it has one, and the line of the CUDA source that it is for, or 0, where it was
    inlined if it comes from an inlined function."""

    text: str
    line: int = 0

    @property
    def opcode(self) -> str:
        """The name of the operation, with its modifiers: `LDG.E.128`."""
        words = self.text.split()
        return words[1] if words[0].startswith("@") else words[0]


def disassemble(cubin: bytes) -> dict[str, tuple[Instruction, ...]]:
    """Return the instructions of each kernel of a compiled source, by name.

    Raises SassError without a disassembler, or where it fails.
    """
    program = find_program("nvdisasm")
    if program is None:
        raise SassError(
            "nvdisasm, which disassembles CUDA machine code, is not installed; "
            "run: pip install 'relaxlab[cuda]'"
        )
    with tempfile.NamedTemporaryFile(prefix="relaxlab-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [program, "--print-code", "--print-line-info-inline", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SassError(f"nvdisasm failed: {done.stderr.strip()}")
    return read_sass(done.stdout)


def is_available() -> bool:
    """True if the disassembler is installed."""
    return find_program("nvdisasm") is not None


def opcodes(instructions: Sequence[Instruction]) -> Counter[str]:
    """The number of instructions of each operation, by name without modifiers, and by the
    whole name: `LDG` and `LDG.E.128`."""
    counts: Counter[str] = Counter()
    for instruction in instructions:
        opcode = instruction.opcode
        counts.update({opcode, opcode.partition(".")[0]})
    return counts


_KERNEL = re.compile(r"\s*\.text\.(\w+):")
_PLACE = re.compile(r'\s*//## File ".*?", line (\d+)(?: inlined at ".*?", line (\d+))?')
_CODE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")


def read_sass(text: str) -> dict[str, tuple[Instruction, ...]]:
    """The instructions in the output of `nvdisasm`, by kernel."""
    kernels: dict[str, list[Instruction]] = {}
    found: list[Instruction] = []
    line = 0
    for row in text.splitlines():
        if begin := _KERNEL.match(row):
            found = kernels.setdefault(begin[1], [])
            line = 0
        elif place := _PLACE.match(row):
            # An inlined place is followed by those that it was inlined at, the outermost last.
            line = int(place[2] or place[1])
        elif code := _CODE.match(row):
            found.append(Instruction(" ".join(code[1].split()), line))
    return {name: tuple(code) for name, code in kernels.items()}
