"""LLVM IR text to machine code, through llvmlite."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.llvm.builder import SCHEDULED_LOOP, VECTOR_LOOP, YES
from relaxlab.ir.brief import Brief
from relaxlab.ir.target import Target

_ready = False
_PROCESS = ctypes.CDLL(None)


def llvm_lock() -> Any:
    """The lock by which llvmlite lets one thread at a time into LLVM, a `threading.RLock`."""
    ffi: Any = import_module("llvmlite.binding.ffi")
    return ffi.lib._lock._lock


def _free_llvm_lock() -> None:
    """In a child process after `fork` the thread that was inside of LLVM does not exist, and its
    lock would never be released."""
    lock = llvm_lock()
    if not lock._is_owned():
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_llvm_lock)


def _initialise() -> None:
    global _ready
    if not _ready:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # of the assembly that switches between stacks
        _ready = True


def runs_here(target: Target) -> bool:
    """True if this process can run code for the target: the same kind of processor and system, and
    the processor has the target's features."""
    mine, other = map(llvm.get_triple_parts, (llvm.get_process_triple(), target.triple))
    same = (mine.Arch, mine.OS) == (other.Arch, other.OS)
    return same and target.features <= Target.host().features


def target_machine(target: Target, level: int = 3) -> llvm.TargetMachine:
    """LLVM's description of the target, for code optimised to this level: to be loaded into this
    process, or position independent where the target is another machine.

    Raises ValueError for a triple that LLVM has no code generator for.
    """
    machine, features = _llvm_target(target), target.feature_string()
    if runs_here(target):
        return machine.create_target_machine(
            cpu=target.cpu, features=features, opt=level, jit=True, codemodel="jitdefault"
        )
    return machine.create_target_machine(cpu=target.cpu, features=features, opt=level, reloc="pic")


def intel_machine(target: Target) -> llvm.TargetMachine | None:
    """`target_machine`, which writes assembly in Intel's syntax; None where the processor has no
    such syntax. LLVM has one setting for the process, and a machine reads it when it is made."""
    if not target.triple.startswith(("x86_64", "i386", "i686")):
        return None
    llvm.set_option("", "--x86-asm-syntax=intel")
    try:
        return target_machine(target)
    finally:
        llvm.set_option("", "--x86-asm-syntax=att")


def _llvm_target(target: Target) -> llvm.Target:
    if runs_here(target):
        _initialise()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    try:
        return llvm.Target.from_triple(target.triple)
    except RuntimeError as error:
        raise ValueError(
            f"LLVM generates no code for {target.triple!r}; a triple is for example "
            "'aarch64-unknown-linux-gnu', 'riscv64-unknown-linux-gnu' or 'wasm32-unknown-unknown'"
        ) from error


def module_text(
    functions: Sequence[str],
    declarations: Mapping[str, str],
    target: Target,
    program: Sequence[str] = (),
) -> str:
    """Return an LLVM module: functions, declarations of their callees and of the other functions of
    the `program`, and the target's attributes."""
    features = target.feature_string()
    width = target.facts.vector_bits
    common = (
        f'nounwind "target-cpu"="{target.cpu}" "target-features"="{features}" '
        # LLVM prefers 256 bits on processors that lower their clock for 512, and would split the
        # vectors that schedules have made of `vector_bits`.
        f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    )
    # 0: whatever is to be fast; 1: long functions that are not.
    attributes = (
        # `noinline`: kernels inlined into the host function made it four times as long to compile
        # (NOTES, *LLVM's time*).
        f"attributes #0 = {{ noinline {common} }}\nattributes #1 = {{ noinline optnone {common} }}"
    )
    defined = _defined([*functions, *program])
    head = f'target triple = "{target.triple}"'
    # Sorted, so that equal programs have equal texts, and the cache finds them.
    used = [d for name, d in sorted(declarations.items()) if name not in defined]
    mine = set(functions)
    used += [_declaration(f) for f in program if f not in mine]
    scheduled = f'{SCHEDULED_LOOP}, !{{!"llvm.loop.isvectorized", i32 1}}'
    hints = (
        f"{YES} = !{{i32 1}}\n{VECTOR_LOOP} = distinct !{{{VECTOR_LOOP}}}\n"
        f"{SCHEDULED_LOOP} = distinct !{{{scheduled}}}"
    )
    return "\n\n".join([head, *functions, "\n".join(used), attributes, hints]) + "\n"


def _defined(functions: Sequence[str]) -> set[str]:
    return {f.split("@", 1)[1].split("(", 1)[0] for f in functions}


def _declaration(function: str) -> str:
    """The declaration of a function that another module defines."""
    return "declare" + function.split(" {\n", 1)[0].removeprefix("define")


def external_functions(
    functions: Sequence[str], declarations: Mapping[str, str]
) -> tuple[str, ...]:
    """Names of the C functions that a module calls."""
    called = {name for name, text in declarations.items() if text.startswith("declare")}
    return tuple(sorted(n for n in called - _defined(functions) if not n.startswith("llvm.")))


def optimise(text: str, target: Target) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """Parse, verify and optimise a module. Loops stay as scheduled, without vectors but those that
    the schedule leaves to LLVM, and unrolled as it asks for."""
    machine = target_machine(target)
    module = llvm.parse_assembly(text)
    if not runs_here(target):
        module.data_layout = str(machine.target_data)  # pointers may have another size
    module.verify()
    for function in module.functions:
        # LLVM gives the intrinsics it knows their attributes; compiling others would crash it.
        if function.name.startswith("llvm.") and not list(function.attributes):
            raise CodegenError(f"LLVM has no intrinsic {function.name!r}")
    # Schedules decide about vectors and unrolling; LLVM would decide again, and take longer (NOTES,
    # *LLVM's time*).
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = f"!llvm.loop {VECTOR_LOOP}" in text
    options.slp_vectorization = False
    options.loop_interleaving = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def compile_object(text: str, target: Target) -> tuple[bytes, bytes]:
    """Machine code as an object file for `LoadedObject`, and the optimised module as bitcode."""
    module, machine = optimise(text, target)
    return machine.emit_object(module), module.as_bitcode()


def compile_quickly(text: str, target: Target) -> tuple[bytes, bytes]:
    """Compile a module without optimising it, for code where that would take longer than it saves;
    return what `compile_object` does."""
    module = llvm.parse_assembly(text)
    module.verify()
    return target_machine(target, 0).emit_object(module), module.as_bitcode()


def compile_shared(bitcode: bytes, target: Target) -> bytes:
    """Machine code as a position-independent object file, for a linker to put into a library."""
    machine = _llvm_target(target).create_target_machine(
        cpu=target.cpu, features=target.feature_string(), opt=3, reloc="pic", codemodel="small"
    )
    return machine.emit_object(llvm.parse_bitcode(bitcode))


def read_bitcode(bitcode: bytes, target: Target) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """Read an optimised module from bitcode; return it and a machine to write its assembly."""
    return llvm.parse_bitcode(bitcode), target_machine(target)


def assembly(text: str, target: Target) -> str:
    """The assembly that `compile_object` encodes."""
    module, machine = optimise(text, target)
    return machine.emit_assembly(module)


_ELF_SYMBOL = np.dtype([("name", "u4"), ("kind", "u2"), ("section", "u2"), ("place", "u8", 2)])


def _symbols(code: llvm.ObjectFileRef) -> tuple[set[str], set[str]]:
    """Names that an object file defines, and that it takes from elsewhere; of ELF files (others:
    none are known). MCJIT would call address 0 for a name that it cannot resolve."""
    tables = (b".strtab", b".symtab")
    found = {s.name(): s.data() for s in code.sections() if s.name() in tables}
    names, symbols = (found.get(name, b"") for name in tables)
    symbols = np.frombuffer(symbols, _ELF_SYMBOL)

    def named(chosen: np.ndarray[Any, Any]) -> set[str]:
        starts = symbols["name"][chosen & (symbols["name"] > 0)]
        return {names[int(i) :].split(b"\0", 1)[0].decode() for i in starts}

    return named(symbols["section"] != 0), named(symbols["section"] == 0)


class LoadedObject(Brief):
    """Machine code mapped into this process, of object files that may call each other's functions;
    lives as long as this value does.

    Raises ImportError when the code calls a function that no library loaded into this process has:
    one of `externs`, or one of the compiler's own that LLVM brought in.
    """

    def __init__(self, code: Sequence[bytes], target: Target, externs: Sequence[str] = ()) -> None:
        _initialise()
        object_files = [llvm.ObjectFileRef.from_data(c) for c in code]
        symbols = [_symbols(o) for o in object_files]
        undefined = {name for _, names in symbols for name in names}
        defined = {name for names, _ in symbols for name in names}
        for name in {*externs, *undefined} - defined:
            if llvm.address_of_symbol(name) is None and not hasattr(_PROCESS, name):
                raise ImportError(
                    f"compiled code calls the C function {name!r}, which is not in this process; "
                    "load its library first: ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)"
                )
        machine = target_machine(target)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for object_file in object_files:
            self._engine.add_object_file(object_file)
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """The address of a function. Raises KeyError."""
        found = self._engine.get_function_address(symbol)
        if not found:
            raise KeyError(f"no function {symbol!r} in the compiled object")
        return found


def release_pages() -> None:
    """Release the memory pages with LLVM's instructions and read-only data: the system reads them
    from the library's file again when they are used. Does nothing where that cannot be asked for.

    Loading a program touches 60 MB of them, which is as much as a small model takes.
    """
    if not sys.platform.startswith("linux"):
        return
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as mappings:
        for mapping in mappings:
            addresses, permissions, offset, *_, path = mapping.split(maxsplit=5)
            name = path.strip()
            is_llvm = permissions[0] == "r" and os.path.basename(name).startswith("libllvmlite.")
            # By the file: tables of addresses are changed when the library is loaded, and made
            # read-only afterwards.
            if is_llvm and int(offset, 16) in _read_only_offsets(name):
                start, end = (int(address, 16) for address in addresses.split("-"))
                size = ctypes.c_size_t(end - start)
                _PROCESS.madvise(ctypes.c_void_p(start), size, mmap.MADV_DONTNEED)


@cache
def _read_only_offsets(path: str) -> frozenset[int]:
    """Offsets of the pages at which the segments of a 64-bit ELF file begin that nothing writes to;
    none for another kind of file, or one that is gone."""
    try:
        with open(path, "rb") as file:
            head = file.read(mmap.PAGESIZE)
    except OSError:
        return frozenset()
    if head[:6] != b"\x7fELF\x02\x01":
        return frozenset()
    (table,), (size, count) = (
        struct.unpack_from("<Q", head, 32),
        struct.unpack_from("<HH", head, 54),
    )
    load, writable = 1, 2
    segments = [struct.unpack_from("<IIQ", head, table + size * i) for i in range(count)]
    return frozenset(
        offset // mmap.PAGESIZE * mmap.PAGESIZE
        for kind, flags, offset in segments
        if kind == load and not flags & writable
    )


def add_symbol(name: str, address: int) -> None:
    """Make a C function known to code loaded later."""
    _initialise()
    llvm.add_symbol(name, address)
