"""An executable as text: its LLVM IR, its assembly, and the module that they were made from."""

from __future__ import annotations

from typing import Any

from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.jit import compile_shared, read_bitcode
from relaxlab.codegen.llvm.listing import read_assembly, read_llvm
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.passes.pipeline import pipeline_for
from relaxlab.runtime.native.loaded import LoadedProgram


def llvm(exe: LoadedProgram, name: str | None) -> str:
    """The LLVM IR of an executable, or of one function of it."""
    module, _ = read_bitcode(_bitcode(exe), exe.target)
    text = str(module)
    if name is None:
        return text
    symbol = _symbol(name, module)
    return "\n".join(line.text for line in read_llvm(text, symbol, {}))


def assembly(exe: LoadedProgram, name: str | None) -> str:
    """The assembly of an executable, or of one function of it."""
    module, machine = read_bitcode(_bitcode(exe), exe.target)
    text = machine.emit_assembly(module)
    if name is None:
        return text
    symbol = _symbol(name, module)
    return "\n".join(line.text for line in read_assembly(text, symbol))


def object_file(exe: LoadedProgram) -> bytes:
    """The machine code of an executable as a position-independent object file."""
    return compile_shared(_bitcode(exe), exe.target)


def source(exe: LoadedProgram, name: str | None) -> str:
    """The script of the module that an executable's code was made from, or of one function."""
    if exe.compiled_from is None:
        raise ValueError("this executable was loaded from a file, which does not keep its program")
    mod, pipeline = exe.compiled_from
    result = pipeline_for(exe.target, pipeline).run(mod).result
    return (result if name is None else Module.of({name: result[name]}, result.attrs)).script()


def _bitcode(exe: LoadedProgram) -> bytes:
    if not exe.artifact.bitcode:
        raise ValueError("this executable was loaded from a file, which keeps machine code alone")
    return exe.artifact.bitcode


def _symbol(name: str, module: Any) -> str:
    """The symbol of a function of the program. Raises KeyError naming what there is."""
    symbols = {f.name for f in module.functions if not f.is_declaration}
    if symbol_of(name) in symbols:
        return symbol_of(name)
    prefix = symbol_of("")
    found = (s.removeprefix(prefix) for s in symbols if s.startswith(prefix))
    names = sorted(n for n in found if not n.endswith((".entry", ".team")))
    known = among(name, names)
    raise KeyError(f"the executable has no code of a function {name!r}; it has: {known}")
