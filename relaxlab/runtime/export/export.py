"""Compiled programs as shared libraries that need neither Python nor LLVM (docs/export.md).

The code of the program is emitted once more, position independent, and linked with a small C
source that checks arguments as `Executable` does. The system's C compiler does the linking: it is
the one linker that knows where the system keeps its C library.

Threads are the library's own (c/team.c), so that it needs no OpenMP runtime and does not spin like
one. A program that calls BLAS takes a copy of it along, and finds it where the library is.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.codegen.artifact import Artifact
from relaxlab.codegen.llvm.context import BLOCK_HEADER, CONTEXT
from relaxlab.codegen.llvm.jit import compile_shared
from relaxlab.ir.c_libraries import libraries_of
from relaxlab.ir.errors import UserError, path_of
from relaxlab.ir.target import Target
from relaxlab.runtime.export.params_file import MAX_NDIM, layout_of, write_params
from relaxlab.runtime.export.source import (
    FIXED,
    GIVEN,
    RESERVED,
    Leaf,
    Library,
    Plan,
    c_identifier,
    header_text,
    source_text,
    taken_names,
    template,
)
from relaxlab.runtime.native.arguments import count_leaves, leaves_of
from relaxlab.runtime.native.function import NativeFunction
from relaxlab.runtime.native.loaded import LoadedProgram
from relaxlab.runtime.native.openmp import SYMBOLS

FORMAT = 1
"""Version of what `relaxlab.load` reads from a library."""

Array = np.ndarray[Any, Any]


class ExportError(UserError):
    """The program cannot be exported; the message has the reason and the way out."""


def export(
    exe: LoadedProgram,
    functions: Mapping[str, NativeFunction],
    path: str | os.PathLike[str],
    *,
    bound: bool,
) -> tuple[Path, ...]:
    """Write `model.so`, `model.h` and, if there are arrays to store, `model.params`.

    See `Executable.export`, which calls this.
    """
    library = path_of(path, "the path of an exported library").absolute()
    _check(exe, library)
    arrays = [(f"constant_{i}", a) for i, a in enumerate(exe.artifact.constants)]
    plans = tuple(_plan(f, arrays, bound) for f in functions.values())
    try:
        with tempfile.TemporaryDirectory(dir=library.parent, prefix=f".{library.name}.") as work:
            written = _write(exe, Path(work), library, plans, arrays)
            taken = [file for file in written if file.is_dir()]
            if taken:
                raise IsADirectoryError(errno.EISDIR, f"{taken[0].name} is a folder")
            for file in written:
                os.replace(Path(work) / file.name, file)
    except OSError as e:
        raise ExportError(f"cannot write {library}: {e.strerror or e}") from e
    return written


def _write(
    exe: LoadedProgram,
    work: Path,
    path: Path,
    plans: tuple[Plan, ...],
    arrays: Sequence[tuple[str, Array]],
) -> tuple[Path, ...]:
    """Make all files in the folder `work`; returns where they belong, the library last."""
    params, header = path.with_suffix(".params"), path.with_suffix(".h")
    layout = write_params(work / params.name, arrays) if arrays else layout_of(arrays)
    code = compile_shared(exe.artifact.bitcode, exe.target)
    description = _description(exe, plans, code, params.name if arrays else None, layout.crc)
    library = Library(
        path.stem, exe.artifact, exe.target, plans, len(arrays), layout.crc, description
    )
    (work / header.name).write_text(header_text(library), encoding="utf-8")
    (work / "library.c").write_text(source_text(library), encoding="utf-8")
    (work / "team.c").write_text(template("team.c"), encoding="utf-8")
    (work / "code.o").write_bytes(code)
    found = [library.find() for library in libraries_of(exe.artifact.externs)]
    extra = [work / file.name for file in found]
    for file, copy in zip(found, extra, strict=True):
        shutil.copyfile(file, copy)
    _link(work, path.name, library.prefix, extra, find_compiler(exe.target))
    beside = (path.with_name(file.name) for file in extra)
    return (*([params] if arrays else []), *beside, header, path)


# -- what is exported ------------------------------------------------------------------------------


def _check(exe: LoadedProgram, path: Path) -> None:
    """Raise ExportError for what cannot be exported."""
    artifact = exe.artifact
    if path.suffix != ".so":
        raise ExportError(f"{path.name} is no name of a shared library; let it end in .so")
    if sys.platform != "linux" or "-linux" not in exe.target.triple:
        raise ExportError(
            f"libraries are linked on Linux for Linux; this is {sys.platform}, the program is for "
            f"{exe.target.triple}"
        )
    if libraries_of(artifact.externs) and not _is_native(exe.target):
        raise ExportError(
            f"the program calls BLAS, of which there is none here for {exe.target.triple}; "
            "compile it without libraries"
        )
    if not artifact.bitcode:
        raise ExportError("this executable was loaded from a library; copy the library's files")
    for check in artifact.checks:
        if check.packed:
            raise ExportError(
                _operator_refusal(artifact, check.function)
                if check.packed == _OPERATOR
                else f"`{check.function}` calls `{check.packed}`, a Python function, which the "
                "library would have to do without; replace it by operators or loop functions"
            )
    unknown = [name for name in artifact.externs if not _is_known(name)]
    if unknown:
        raise ExportError(
            f"the program calls the C function `{unknown[0]}`, which is in none of the libraries "
            "that an exported one uses (libc, libm, BLAS); replace the call by a loop function"
        )
    _check_names(artifact, c_identifier(path.stem))


def _operator_refusal(artifact: Artifact, function: str) -> str:
    operators = sorted({f"R.{p.args[0]}" for p in artifact.packed if p.function == _OPERATOR})
    return (
        f"`{function}` needs Python for {', '.join(operators)}, whose result's shape depends on "
        "the data; take it out of the program that is exported"
    )


_OPERATOR = "relaxlab.operator"


def _is_known(function: str) -> bool:
    libraries = (ctypes.CDLL(name) for name in ("libc.so.6", "libm.so.6"))
    ours = function in SYMBOLS or bool(libraries_of((function,)))
    return ours or any(hasattr(library, function) for library in libraries)


def _check_names(artifact: Artifact, prefix: str) -> None:
    seen, taken = dict[str, str](), {*taken_names(), *SYMBOLS}
    for info in artifact.functions:
        name = c_identifier(info.name)
        other = seen.setdefault(name, info.name)
        if other != info.name:
            raise ExportError(
                f"`{other}` and `{info.name}` would both become {name} in C; rename one of them"
            )
        if name in RESERVED or f"{prefix}_{name}" in taken:
            raise ExportError(
                f"`{info.name}` would become {prefix}_{name} in C, a name that the library itself "
                "uses; rename the function or the library"
            )
        for what, tree in (*info.params, ("the result", info.result)):
            for leaf, ty in leaves_of(what, tree):
                if ty.kind == "data":
                    raise ExportError(
                        f"`{leaf}` of `{info.name}` is of the data type {ty.text}, which has no "
                        "form in C; pass arrays instead"
                    )
                if ty.kind == "tensor" and ty.ndim > MAX_NDIM:
                    raise ExportError(
                        f"`{leaf}` of `{info.name}` has {ty.ndim} dimensions, tensors in C have "
                        f"{MAX_NDIM} at most; reshape it"
                    )


def _plan(function: NativeFunction, arrays: list[tuple[str, Array]], bound: bool) -> Plan:
    """Return the source of each argument of a function; arrays to store are appended to
    `arrays`."""
    info = function.info
    stored = _stored_leaves(function) if bound else {}
    numbers = {_identity(a): i for i, (_, a) in enumerate(arrays)}
    args: list[Leaf] = []
    for name, tree in (leaf for p in info.params for leaf in leaves_of(*p)):
        source, words = GIVEN, tuple[int, ...]()
        match stored.get(len(args)):
            case np.ndarray() as array:
                source = numbers.setdefault(_identity(array), len(arrays))
                if source == len(arrays):
                    arrays.append((f"{info.name}.{name}", array))
            case tuple() as words:
                source = FIXED
            case None:
                pass
        args.append(Leaf(name, tree, len(args) in info.written, source, words))
    signature = ", ".join(leaf.name for leaf in args if leaf.source == GIVEN)
    results = tuple(Leaf("", ty) for _, ty in leaves_of("", info.result))
    return Plan(info, signature, tuple(args), results)


def _stored_leaves(function: NativeFunction) -> dict[int, Array | tuple[int, ...]]:
    """Return the bound values, without parameters updated in place and those before them."""
    last, leaf = -1, 0
    for _, tree in function.info.params:
        end = leaf + count_leaves(tree)
        if any(leaf <= w < end for w in function.info.written):
            last = end - 1
        leaf = end
    return {leaf: value for leaf, value in function.bound_leaves().items() if leaf > last}


def _identity(array: Array) -> tuple[Any, ...]:
    """Equal for two views of the same data, which are stored once."""
    address = array.__array_interface__["data"][0]
    return (address, array.dtype.name, array.shape) if array.size else (id(array),)


def _description(
    exe: LoadedProgram, plans: Sequence[Plan], code: bytes, params: str | None, crc: int
) -> str:
    """Return the JSON that `relaxlab.load` reads."""
    stored = {
        plan.info.name: [
            list(leaf.words) if leaf.source == FIXED else leaf.source
            for leaf in plan.args
            if leaf.source != GIVEN
        ]
        for plan in plans
    }
    description = {
        "format": FORMAT,
        "context": CONTEXT,
        "block_header": BLOCK_HEADER,
        "code": hashlib.sha256(code).hexdigest(),
        "target": exe.target.to_json(),
        "params": params,
        "params_crc": crc,
        "constants": len(exe.artifact.constants),
        "stored": stored,
        "artifact": exe.artifact.describe(),
    }
    return json.dumps(description, separators=(",", ":"))


# -- linking ---------------------------------------------------------------------------------------


def _is_native(target: Target) -> bool:
    """True for a machine with this one's kind of processor."""
    machine = platform.machine().lower().replace("amd64", "x86_64")
    return _architecture(target) == machine


def _architecture(target: Target) -> str:
    return target.triple.partition("-")[0]


def find_compiler(target: Target | None = None) -> list[str]:
    """The command of the C compiler that links for a machine (None: this one): `$CC`, else the
    first of cc, gcc and clang that is there, for another architecture GCC by the name that Linux
    distributions give it.

    Raises ExportError saying what to install.
    """
    asked = shlex.split(os.environ.get("CC", ""))
    if asked:
        return asked
    if target is not None and not _is_native(target):
        gcc = f"{_architecture(target)}-linux-gnu-gcc"
        if shutil.which(gcc):
            return [gcc]
        raise ExportError(
            f"no C compiler found that links for {target.triple} ({gcc}): "
            f"`apt-get install gcc-{_architecture(target)}-linux-gnu`, or set CC to one"
        )
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise ExportError(
        "no C compiler found to link the library with (cc, gcc, clang): "
        "`apt-get install gcc libc6-dev`, or `pip install ziglang` and set "
        "CC='python -m ziglang cc'"
    )


def _link(
    work: Path, name: str, prefix: str, beside: Sequence[Path], compiler: Sequence[str]
) -> None:
    """Make `name` of library.c, team.c and code.o in the folder `work`, and of the libraries
    `beside` it. It is never unloaded, as its threads may be waiting in it."""
    (work / "exports").write_text(
        f"{{ global: {prefix}_*; relaxlab_description; relaxlab_entry; local: *; }};\n"
    )
    options = [f"-Wl,-soname,{name}", "-Wl,--version-script,exports", "-Wl,-z,defs"]
    options += ["-Wl,-z,nodelete", "-Wl,-rpath,$ORIGIN"]
    inputs = ["library.c", "team.c", "code.o", *(file.name for file in beside)]
    inputs += ["-lm", "-ldl", "-lpthread"]
    shared = [*compiler, "-shared", "-fPIC", "-O2", "-std=gnu11"]
    _run(work, [*shared, *options, "-o", name, *inputs])


def _run(work: Path, command: list[str]) -> None:
    try:
        subprocess.run(command, cwd=work, check=True, capture_output=True, text=True)
    except FileNotFoundError as e:
        raise ExportError(f"there is no C compiler {command[0]!r}; correct $CC") from e
    except subprocess.CalledProcessError as e:
        tail = "\n".join(e.stderr.strip().splitlines()[-20:])
        raise ExportError(f"the C compiler failed: {shlex.join(command)}\n{tail}") from e
