"""A kernel's LLVM IR and assembly with the lines of its loop function, through debug metadata.

The code is that of `relaxlab.codegen.program`: LLVM carries the metadata along and changes nothing
for it. Kernels that are compiled to be run have none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import llvmlite.binding as llvm

from relaxlab.codegen.listing import Line, Listing, Pane, locate, loops_pane
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.codegen.llvm.support import support_functions
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.span import Span
from relaxlab.ir.target import Target


@dataclass(frozen=True, slots=True)
class KernelListing:
    """One kernel in four languages. `intel`: the lines of `assembly` in Intel's syntax, or None
    where the processor has one syntax; `origins`: where in the user's program the loop function's
    lines come from; `stack` in bytes; `vector_bits` the widest register that arithmetic is done
    in."""

    loops: tuple[Line, ...]
    emitted: tuple[Line, ...]
    optimised: tuple[Line, ...]
    assembly: tuple[Line, ...]
    intel: tuple[Line, ...] | None
    origins: dict[int, tuple[Span, ...]]
    stack: int
    vector_bits: int


def list_kernel(func: PrimFunc, name: str, target: Target) -> KernelListing:
    """Compile one scheduled loop function, keeping track of lines.

    Raises CodegenError for a function that the target cannot express.
    """
    located = locate(func, name)
    declarations: dict[str, str] = {}
    texts = support_functions(declarations, target)
    emitted = emit_kernel(located.func, name, declarations, target, debug=True).text
    texts.append(emitted)
    count = len(located.lines)
    text = jit.module_text(texts, declarations, target) + debug_metadata(name, count)
    module, machine = jit.optimise(text, target)
    optimised = str(module)
    assembly, intel = (
        None if m is None else _assembly_of(module.clone(), m, symbol_of(name))
        for m in (machine, jit.intel_machine(target))
    )
    assert assembly is not None
    return KernelListing(
        located.numbered(),
        read_llvm(emitted, symbol_of(name), {n: n for n in range(count + 1)}),
        read_llvm(optimised, symbol_of(name), _locations(optimised)),
        assembly,
        intel,
        located.origins,
        stack_bytes(assembly),
        vector_bits(assembly),
    )


def kernel_listing(name: str, func: PrimFunc, target: Target) -> Listing:
    """A kernel in its four languages, and facts about its assembly. Raises what `list_kernel`
    raises."""
    found = list_kernel(func, name, target)
    widths = tuple(line_bits(line.text) for line in found.assembly)
    instructions = [w for w, line in zip(widths, found.assembly, strict=True)
                    if line.text.startswith(" ")]  # fmt: skip
    spills = sum(bool(line.remark) for line in found.assembly)
    wide = sum(width > 0 for width in instructions)
    facts = (
        f"{len(instructions)} instructions, {wide} of them on vectors",
        f"vectors of up to {found.vector_bits} bits" if found.vector_bits else "no vectors",
        f"{spills} spills and reloads" if spills else "no spills",
        f"{found.stack} bytes of stack",
    )
    panes = (
        loops_pane(found.loops),
        Pane("emitted", "LLVM IR as emitted", found.emitted, hidden=True),
        Pane("optimised", "LLVM IR, optimised", found.optimised),
        Pane("assembly", "Assembly", found.assembly, bits=widths, spellings=found.intel),
    )
    return Listing(panes, found.origins, facts)


def _assembly_of(
    module: llvm.ModuleRef, machine: llvm.TargetMachine, symbol: str
) -> tuple[Line, ...]:
    """The assembly of a function; the module is changed by it."""
    machine.set_asm_verbosity(True)
    return read_assembly(machine.emit_assembly(module), symbol)


def debug_metadata(name: str, lines: int) -> str:
    """Return LLVM metadata for a function `!0` over a source of `lines` lines, whose places are
    `!1`, …"""
    n = lines + 1
    places = [f"!{k} = !DILocation(line: {k}, scope: !0)" for k in range(1, n)]
    return "\n".join([
        f"!llvm.dbg.cu = !{{!{n}}}",
        f"!llvm.module.flags = !{{!{n + 1}, !{n + 2}}}",
        f'!0 = distinct !DISubprogram(name: "{name}", scope: !{n + 3}, file: !{n + 3}, line: 1, '
        f"type: !{n + 4}, unit: !{n}, spFlags: DISPFlagDefinition | DISPFlagOptimized)",
        *places,
        f"!{n} = distinct !DICompileUnit(language: DW_LANG_C99, file: !{n + 3}, "
        'producer: "relaxlab", isOptimized: true, runtimeVersion: 0, '
        "emissionKind: LineTablesOnly)",
        f'!{n + 1} = !{{i32 2, !"Debug Info Version", i32 3}}',
        f'!{n + 2} = !{{i32 7, !"Dwarf Version", i32 4}}',
        f'!{n + 3} = !DIFile(filename: "{name}", directory: "")',
        f"!{n + 4} = !DISubroutineType(types: !{n + 5})",
        f"!{n + 5} = !{{null}}",
    ]) + "\n"  # fmt: skip


_DBG = re.compile(r",? !dbg !(\d+)")
_LOCATION = re.compile(r"^!(\d+) = !DILocation\(line: (\d+)", re.MULTILINE)


def _locations(text: str) -> dict[int, int]:
    """Return the line of each number of metadata."""
    return {int(number): int(line) for number, line in _LOCATION.findall(text)}


def read_llvm(text: str, symbol: str, places: dict[int, int]) -> tuple[Line, ...]:
    """The function `symbol` of a module, its metadata turned into lines."""
    found: list[Line] = []
    inside = False
    for raw in text.split("\n"):
        if raw.startswith("define "):
            inside = f"@{symbol}(" in raw or f'@"{symbol}"(' in raw
        if not inside:
            continue
        match = _DBG.search(raw)
        place = places.get(int(match[1]), 0) if match and not raw.startswith("define") else 0
        found.append(Line(_DBG.sub("", raw).rstrip(), place))
        if raw == "}":
            break
    return tuple(found)


_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)")
_COMMENT = re.compile(r"(?://|@\s|#(?![-\d:])).*")
"""A comment of LLVM's assembly. On Arm, where comments begin otherwise, `#` is before constants."""
_REMARK = re.compile(r"\b(\d+-byte (?:Folded )?(?:Spill|Reload))")


def read_assembly(text: str, symbol: str) -> tuple[Line, ...]:
    """The labels and instructions of one function, with the lines that `.loc` directives give."""
    found: list[Line] = []
    inside, place = False, 0
    for raw in text.split("\n"):
        code = _COMMENT.sub("", raw).rstrip()
        bare = code.strip().strip('"')
        if bare in (f"{symbol}:", f'{symbol}":'):
            inside = True
        if not inside:
            continue
        if bare.startswith(".Lfunc_end"):
            break
        where = _LOC.match(raw)
        if where:
            place = int(where[1])
        is_label = bare.endswith(":")
        if not bare or (bare.startswith(".") and not is_label):
            continue
        if is_label and not bare.startswith((".LBB", symbol)):
            continue
        remark = _REMARK.search(raw)
        text_ = code.strip() if is_label else "    " + " ".join(code.split())
        found.append(Line(text_, 0 if is_label else place, remark[1] if remark else ""))
    return tuple(found)


_STACK = re.compile(r"^\s*sub(?:q)?\s+\$(\d+), %rsp|^\s*sub\s+sp, sp, #(\d+)")


def stack_bytes(assembly: tuple[Line, ...]) -> int:
    """Return the bytes that a function reserves on the stack, spills and private buffers
    together."""
    found = [_STACK.match(line.text) for line in assembly]
    return max((int(m[1] or m[2]) for m in found if m), default=0)


def vector_bits(assembly: tuple[Line, ...]) -> int:
    """The widest vector register that the instructions use, in bits; 0 where there is none. A
    scalar instruction on a vector register (`vaddss`) does not count."""
    return max((line_bits(line.text) for line in assembly), default=0)


_SCALAR = re.compile(r"^\s*v?\w*(?:ss|sd|sh)\b|^\s*v?(?:mov[dq]|cvt\w*)\b")
_ARM = re.compile(r"\bv\d+\.(\d+)([bhsd])\b")
_ARM_BITS = {"b": 8, "h": 16, "s": 32, "d": 64}


def line_bits(text: str) -> int:
    """Return the width of the widest vector that an instruction works on, in bits."""
    for register, bits in (("%tmm", 8192), ("%zmm", 512), ("%ymm", 256)):
        if register in text:
            return bits
    if "%xmm" in text:
        return 0 if _SCALAR.match(text) else 128
    arm = [int(count) * _ARM_BITS[item] for count, item in _ARM.findall(text)]
    return max(arm, default=0)
