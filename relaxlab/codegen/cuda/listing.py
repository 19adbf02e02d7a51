"""A loop function's CUDA C, PTX and machine code with the lines that they are from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.cuda import sass as sass_text
from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.listing import source_lines
from relaxlab.codegen.listing import Line, Listing, Pane, locate, loops_pane
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.span import Span
from relaxlab.ir.target import Target


@dataclass(frozen=True, slots=True)
class CudaListing:
    """One loop function in four languages. `ptx` and `resources` are empty where NVRTC is not
    installed, `sass` also where the disassembler is not. `ptx_lines[i]` is the line of `cuda` (from
    1) that line i of `ptx` is from, or 0; `sass_lines` likewise."""

    loops: tuple[Line, ...]
    cuda: tuple[Line, ...]
    ptx: tuple[Line, ...]
    ptx_lines: tuple[int, ...]
    sass: tuple[Line, ...]
    sass_lines: tuple[int, ...]
    origins: dict[int, tuple[Span, ...]]
    resources: dict[str, nvrtc.Resources]


def list_cuda(func: PrimFunc, name: str, arch: str, *, contract: bool = True) -> CudaListing:
    """Write and compile one scheduled loop function, keeping track of lines.

    Raises CodegenError for what CUDA cannot express, NvrtcError for a source that NVRTC refuses.
    """
    located = locate(func, name)
    cuda, source = source_lines(located.func, name, CUDA_C, Target.cuda(arch).facts)
    ptx, sass = (), ()
    ptx_lines, sass_lines = (), ()
    resources: dict[str, nvrtc.Resources] = {}
    if nvrtc.is_available():
        compiled = nvrtc.compile_cuda(source, arch, contract=contract, line_info=True)
        first = source.rstrip("\n").count("\n") + 1 - len(cuda)
        ptx, ptx_lines = read_ptx(compiled.ptx, first, cuda)
        resources = compiled.resources
        if sass_text.is_available():
            sass, sass_lines = _sass(compiled.cubin, first, cuda)
    loops = located.numbered()
    return CudaListing(loops, cuda, ptx, ptx_lines, sass, sass_lines, located.origins, resources)


def _sass(
    cubin: bytes, first: int, cuda: Sequence[Line]
) -> tuple[tuple[Line, ...], tuple[int, ...]]:
    """The instructions of machine code below the names of their kernels, and the line of `cuda`,
    which begins below line `first` of the compiled source, of each."""
    lines: list[Line] = []
    places: list[int] = []
    for name, instructions in sass_text.disassemble(cubin).items():
        lines.append(Line(f"{name}:"))
        places.append(0)
        for instruction in instructions:
            at = instruction.line - first
            at = at if 1 <= at <= len(cuda) else 0
            lines.append(Line(f"    {instruction.text}", cuda[at - 1].loop if at else 0))
            places.append(at)
    return tuple(lines), tuple(places)


def kernel_listing(name: str, func: PrimFunc, target: Target) -> Listing:
    """A kernel in its languages, and what it takes of a GPU. Raises what `list_cuda` raises."""
    arch = target.cpu or nvrtc.DEFAULT_ARCH
    found = list_cuda(func, name, arch, contract=target.contract)
    facts: list[str] = []
    for kernel, r in found.resources.items():
        spills = r.spill_stores + r.spill_loads
        facts.append(
            f"{kernel} on {arch}: {r.registers} registers per thread, "
            + (f"{spills} bytes of spills" if spills else "no spills")
            + f", {r.stack} bytes of stack, {r.shared} bytes of shared memory"
        )
    panes = (loops_pane(found.loops), Pane("cuda", "CUDA C", found.cuda))
    if not found.ptx:
        missing = "PTX needs NVRTC, which is not installed: pip install 'relaxlab[cuda]'"
        return Listing(panes, found.origins, tuple(facts), (missing,))
    bits = tuple(ptx_bits(line.text) for line in found.ptx)
    ptx = Pane("ptx", "PTX", found.ptx, bits=bits, origins=found.ptx_lines)
    if not found.sass:
        missing = "SASS needs nvdisasm, which is not installed: pip install 'relaxlab[cuda]'"
        return Listing((*panes, ptx), found.origins, tuple(facts), (missing,))
    widths = tuple(sass_bits(line.text) for line in found.sass)
    ptx = replace(ptx, hidden=True)  # what comes between CUDA C and what the GPU runs
    sass = Pane("sass", f"SASS of {arch}", found.sass, bits=widths, origins=found.sass_lines)
    return Listing((*panes, ptx, sass), found.origins, tuple(facts))


def ptx_bits(text: str) -> int:
    """The width of a wide memory access of PTX (`ld.global.v4.f32`), in bits; 0 for others."""
    parts = text.strip().split(" ")[0].split(".")
    count = next((int(p[1:]) for p in parts if p in ("v2", "v4")), 0)
    digits = "".join(c for c in parts[-1] if c.isdigit())
    return count * int(digits) if count and digits else 0


def sass_bits(text: str) -> int:
    """The width of a wide memory access of SASS (`LDG.E.128`), in bits; 0 for others."""
    parts = next((w for w in text.split() if not w.startswith("@")), "").split(".")
    wide = parts[0] in ("LDG", "STG", "LDS", "STS", "LDGSTS") and {"64", "128"} & set(parts)
    return max(map(int, wide)) if wide else 0


_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')


def read_ptx(
    text: str, first: int, cuda: Sequence[Line]
) -> tuple[tuple[Line, ...], tuple[int, ...]]:
    """Return the instructions of PTX text, and for each the line of `cuda`, which begins below line
    `first` of the compiled source. Inlined code counts for the line that it was inlined at."""
    ours = {m[1] for m in map(_FILE.match, text.split("\n")) if m and m[2].endswith("relaxlab.cu")}
    lines: list[Line] = []
    places: list[int] = []
    inside, place = False, 0
    for raw in text.split("\n"):
        bare = " ".join(raw.split("//")[0].split())
        inside = inside or bare.startswith((".visible .entry", ".entry"))
        where = _LOC.match(raw)
        if where:
            file, line = (where[3], where[4]) if where[3] else (where[1], where[2])
            at = int(line) - first
            place = at if file in ours and 1 <= at <= len(cuda) else 0
        if not inside or not bare or bare.startswith((".loc", ".file", ".section")):
            continue
        if bare.startswith((".visible .entry", ".entry")):
            place = 0
        code = bare.endswith(";") and not bare.startswith(".")
        at = place if code else 0
        lines.append(Line("    " * code + bare, cuda[at - 1].loop if at else 0))
        places.append(at)
        if bare == "}":
            inside = False
    return tuple(lines), tuple(places)
