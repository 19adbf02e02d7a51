"""Exported libraries as executables: the inverse of `Executable.export`."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

from relaxlab.codegen.artifact import Artifact, ArtifactError, TypeTree
from relaxlab.codegen.llvm.context import BLOCK_HEADER, CONTEXT
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import path_of
from relaxlab.ir.target import Target
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.export.export import FORMAT
from relaxlab.runtime.export.params_file import Array, ParamsError, read_params
from relaxlab.runtime.native.arguments import leaves_of, word_to_scalar

_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
"""The header of a 64-bit ELF file."""
_MACHINE = slice(18, 20)
"""The bytes of it that name the architecture."""


class LoadedLibrary(Brief):
    """A library in this process, with the functions of a program."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file is no library, ArtifactError when it is another one."""
        self._library = ctypes.CDLL(str(path))
        text = self._describe(path)
        if text not in path.read_bytes():  # replaced since: the loader goes by names
            with tempfile.TemporaryDirectory() as folder:
                link = Path(folder) / path.name
                link.symlink_to(path)
                self._library = ctypes.CDLL(str(link))
            text = self._describe(path)
        self.description: dict[str, Any] = json.loads(text)
        self._entry = self._library.relaxlab_entry
        self._entry.restype = ctypes.c_void_p
        functions = self.description["artifact"]["functions"]
        self._numbers = {f["symbol"] + ".entry": i for i, f in enumerate(functions)}

    def _describe(self, path: Path) -> bytes:
        if not hasattr(self._library, "relaxlab_description"):
            raise ArtifactError(f"{path} was not exported by relaxlab")
        describe = self._library.relaxlab_description
        describe.restype = ctypes.c_char_p
        return describe()

    def address(self, symbol: str) -> int:
        """The address of a function. Raises KeyError."""
        return self._entry(self._numbers[symbol])


@names_arguments
def load(path: str | os.PathLike[str], *, threads: int | None = None) -> Executable:
    """Bring an exported library back: `load("model.so")["main"](x)`.

    Parameters stored by `export(..., bound=True)` are bound, as views of the mapped file. The
    library's code runs in this process: load only what you trust. threads: how many a call uses;
    None: all cores this process may use.

    Raises FileNotFoundError when the library or its parameter file is not there, ArtifactError for
    a file that is no exported library, is one of another version or for another processor, and
    ParamsError for a damaged or foreign parameter file.
    """
    library = path_of(path, "the path of an exported library").absolute()
    if not library.is_file():
        why = ", which is a folder: give the .so file in it" if library.is_dir() else ""
        raise FileNotFoundError(f"there is no library {library}{why}")
    _require_loadable(library)
    try:
        code = LoadedLibrary(library)
    except OSError as e:
        raise ArtifactError(f"{library} cannot be loaded: {e}") from e
    about = code.description
    _check_version(library, about)
    target = Target.from_json(about["target"])
    missing = target.features - Target.host().features
    if missing:
        raise ArtifactError(
            f"{library} is for processors like {target.cpu}; this one lacks {min(missing)}"
        )
    arrays = _stored_arrays(library, about)
    constants = tuple(arrays[: about["constants"]])
    artifact = Artifact.from_description(about["artifact"], (), b"", constants)
    exe = Executable(artifact, target, threads, code=code)
    for function in artifact.functions:
        _bind(exe, function.name, about["stored"][function.name], arrays)
    return exe


def _require_loadable(path: Path) -> None:
    """Raise ArtifactError for a file for other processors, and for a truncated one: the system's
    loader maps as much as the header promises, and the process would die at the first missing page.
    The table of sections ends an ELF file."""
    with path.open("rb") as file:
        header = file.read(_ELF_HEADER.size)
    if len(header) < _ELF_HEADER.size or not header.startswith(b"\x7fELF"):
        raise ArtifactError(f"{path} is no shared library")
    *_, sections, _, _, _, _, entry_bytes, entries, _ = _ELF_HEADER.unpack(header)
    size, whole = path.stat().st_size, sections + entry_bytes * entries
    if size < whole:
        raise ArtifactError(f"{path} has {size} bytes instead of {whole}: it was cut off")
    # The loader says of a library for another processor that there is no such file.
    if header[_MACHINE] != _own_machine():
        raise ArtifactError(f"{path} is for another kind of processor than this one")


def _own_machine() -> bytes:
    with Path("/proc/self/exe").open("rb") as file:
        return file.read(_ELF_HEADER.size)[_MACHINE]


def _check_version(path: Path, about: dict[str, Any]) -> None:
    ours = (FORMAT, list(CONTEXT), BLOCK_HEADER)
    if (about.get("format"), about.get("context"), about.get("block_header")) != ours:
        raise ArtifactError(f"{path} was exported by another version of relaxlab; export it again")


def _stored_arrays(path: Path, about: dict[str, Any]) -> list[Array]:
    name, crc = about["params"], about["params_crc"]
    if name is None:
        return []
    return [array for _, array in read_params(path.with_name(name), crc)]


def _bind(exe: Executable, name: str, stored: list[int | list[int]], arrays: list[Array]) -> None:
    """Bind the last parameters of a function: per leaf the number of an array, or words."""
    params, values, remaining = exe[name].info.params, list[Any](), list(stored)
    for _, tree in reversed(params):
        if not remaining:
            break
        count = sum(1 for _ in leaves_of("", tree))
        values.insert(0, _value(tree, iter(remaining[len(remaining) - count :]), arrays))
        del remaining[len(remaining) - count :]
    exe[name].bind_packed(*values)


def _value(tree: TypeTree, stored: Any, arrays: list[Array]) -> Any:
    """Return a parameter's value, with the stored arrays as its leaves."""
    match tree.kind:
        case "tuple":
            return tuple(_value(field, stored, arrays) for field in tree.fields)
        case "tensor":
            return arrays[next(stored)]
        case "shape":
            return tuple(next(stored))
        case _:
            return word_to_scalar(next(stored)[0], tree.dtype)


__all__ = ["ArtifactError", "ParamsError", "load"]
