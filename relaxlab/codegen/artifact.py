"""The product of a compilation, which the cache keeps: machine code, constants, their description.

The file format is a line of JSON, then raw sections; nothing in it is executed when it is read
except the machine code, whose checksum is verified first.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxlab.ir.brief import Brief
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import UserError

if TYPE_CHECKING:
    from relaxlab.ir import types

MAGIC = b"relaxlab-artifact-5\n"


class ArtifactError(UserError):
    """The bytes are not a whole, undamaged artifact."""


@dataclass(frozen=True, slots=True, repr=False)
class TypeTree(Brief):
    """A type as the caller sees it. kind: tensor, shape, scalar, tuple, or data for a data type;
    `text` is the script's spelling, for messages, and a data type's name; `ndim` counts the
    dimensions, `dims` has those that are constant (-1 for the others) and is empty where the callee
    checks them."""

    kind: str
    text: str
    dtype: str = ""
    ndim: int = 0
    fields: tuple[TypeTree, ...] = ()
    dims: tuple[int, ...] = ()

    @staticmethod
    def of(ty: types.Type) -> TypeTree:
        """Describe a type. Raises TypeError for one that has no native form."""
        from relaxlab.ir import expr, types  # who loads a program needs neither

        match ty:
            case types.TensorType(shape, str(dtype), ndim) if ndim >= 0:
                dims = (d.value if isinstance(d, expr.IntImm) else -1 for d in shape or ())
                return TypeTree("tensor", str(ty), dtype, ndim, dims=tuple(dims))
            case types.ShapeType(ndim=ndim) if ndim >= 0:
                return TypeTree("shape", str(ty), "int64", ndim)
            case types.PrimType(dtype):
                return TypeTree("scalar", str(ty), dtype)
            case types.DataType(name):
                return TypeTree("data", name)
            case types.TupleType(fields):
                return TypeTree("tuple", str(ty), fields=tuple(TypeTree.of(f) for f in fields))
            case _:
                raise TypeError(f"a value of type {ty} has no native form")

    @staticmethod
    def from_json(data: dict[str, Any]) -> TypeTree:
        """The inverse of `dataclasses.asdict`."""
        fields = tuple(TypeTree.from_json(f) for f in data["fields"])
        dims = tuple(data["dims"])
        return TypeTree(data["kind"], data["text"], data["dtype"], data["ndim"], fields, dims)


@dataclass(frozen=True, slots=True, repr=False)
class FunctionInfo(Brief):
    """A callable function: its symbol, parameters (name, type) and result.

    written: numbers of the leaves, counted through all parameters, that must be writable.
    words_in, words_out: sizes of the argument and result blocks in 64-bit words.
    """

    name: str
    symbol: str
    params: tuple[tuple[str, TypeTree], ...]
    result: TypeTree
    written: tuple[int, ...]
    words_in: int
    words_out: int


@dataclass(frozen=True, slots=True)
class CheckInfo:
    """The text of a failed check: `messages[axis]` with `{got}` and `{expected}` to fill in.

    memory: the call asked for more memory than there is."""

    function: str
    messages: tuple[str, ...]
    packed: str = ""
    memory: bool = False


@dataclass(frozen=True, slots=True)
class PackedInfo:
    """A call out of the program: the function, the argument types (or the argument itself, where
    it is a string), the result's type, and how messages name the result."""

    function: str
    args: tuple[TypeTree | str, ...]
    result: TypeTree | None
    place: str


ConstructorTree: TypeAlias = tuple[str, tuple[TypeTree, ...]]
"""A constructor of a data type, and the types of its fields."""

Part: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]
"""A function, the numbers of the weights it takes, and the numbers of the results it returns; the
name is empty for weights that are returned as they are."""


@dataclass(frozen=True, slots=True, repr=False)
class Artifact(Brief):
    """A compiled program. `planned_bytes` per function, where its bounds make it a number.

    code: machine code to load into this process, in object files. bitcode: the same program as LLVM
    keeps it, from which code for a shared library is made. externs: the C functions that the code
    calls. left_out: the functions that cannot be called natively, with the reasons. parts: the
    calls that do the work of a function that transforms weights, one weight after the other.
    transforms: by the name of a function, that of the one which transforms its weights. data: the
    constructors of data types, by their numbers.
    """

    code: tuple[bytes, ...]
    bitcode: bytes
    functions: tuple[FunctionInfo, ...]
    checks: tuple[CheckInfo, ...]
    packed: tuple[PackedInfo, ...]
    arenas: int
    planned_bytes: dict[str, int | None]
    constants: tuple[np.ndarray[Any, Any], ...] = ()
    externs: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    parts: dict[str, tuple[Part, ...]] = field(default_factory=dict[str, tuple["Part", ...]])
    transforms: dict[str, str] = field(default_factory=dict[str, str])
    data: dict[str, tuple[ConstructorTree, ...]] = field(
        default_factory=dict[str, tuple["ConstructorTree", ...]]
    )

    def describe(self) -> dict[str, Any]:
        """Return everything but code and constants, as JSON values."""
        return {
            "externs": self.externs,
            "left_out": self.left_out,
            "functions": [asdict(f) for f in self.functions],
            "checks": [asdict(c) for c in self.checks],
            "packed": [asdict(p) for p in self.packed],
            "arenas": self.arenas,
            "planned_bytes": self.planned_bytes,
            "parts": self.parts,
            "transforms": self.transforms,
            "data": {
                name: [[c, [asdict(f) for f in fields]] for c, fields in of]
                for name, of in self.data.items()
            },
        }

    @staticmethod
    def from_description(
        head: dict[str, Any],
        code: tuple[bytes, ...],
        bitcode: bytes,
        constants: tuple[np.ndarray[Any, Any], ...],
    ) -> Artifact:
        """The inverse of `describe`."""
        return Artifact(
            code,
            bitcode,
            tuple(_function(f) for f in head["functions"]),
            tuple(
                CheckInfo(c["function"], tuple(c["messages"]), c["packed"], c["memory"])
                for c in head["checks"]
            ),
            tuple(_packed(p) for p in head["packed"]),
            head["arenas"],
            head["planned_bytes"],
            constants,
            tuple(head["externs"]),
            head["left_out"],
            {name: tuple(map(_part, listed)) for name, listed in head["parts"].items()},
            head["transforms"],
            {name: tuple(map(_constructor, listed)) for name, listed in head["data"].items()},
        )

    def to_bytes(self) -> bytes:
        """The file's content."""
        arrays = [np.asarray(c, order="C") for c in self.constants]
        blobs = [*self.code, self.bitcode, *(a.tobytes() for a in arrays)]
        head = {
            **self.describe(),
            "constants": [[str(a.dtype), list(a.shape)] for a in arrays],
            "objects": len(self.code),
            "sizes": [len(b) for b in blobs],
        }
        line = json.dumps(head, separators=(",", ":")).encode() + b"\n"
        body = line + b"".join(blobs)
        return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @staticmethod
    def from_bytes(data: bytes) -> Artifact:
        """Read a file's content. Raises ArtifactError when it is damaged or of another version."""
        if not data.startswith(MAGIC):
            raise ArtifactError("not an artifact of this version")
        digest, _, body = data[len(MAGIC) :].partition(b"\n")
        # Before anything is read: the code in it would be run as it is.
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise ArtifactError("the checksum does not match: the file is damaged")
        at = body.index(b"\n") + 1
        head = json.loads(body[:at])
        parts: list[bytes] = []
        for size in head["sizes"]:
            parts.append(body[at : at + size])
            at += size
        count = int(head["objects"])
        constants = tuple(
            np.frombuffer(raw, numpy_dtype(dtype)).reshape(shape)
            for raw, (dtype, shape) in zip(parts[count + 1 :], head["constants"], strict=True)
        )
        return Artifact.from_description(head, tuple(parts[:count]), parts[count], constants)


def _constructor(data: Any) -> ConstructorTree:
    name, fields = data
    return name, tuple(map(TypeTree.from_json, fields))


def _part(data: Any) -> Part:
    function, inputs, outputs = data
    return function, tuple(inputs), tuple(outputs)


def _function(data: dict[str, Any]) -> FunctionInfo:
    params = tuple((name, TypeTree.from_json(tree)) for name, tree in data["params"])
    result = TypeTree.from_json(data["result"])
    return FunctionInfo(
        data["name"], data["symbol"], params, result, tuple(data["written"]),
        data["words_in"], data["words_out"],
    )  # fmt: skip


def _packed(data: dict[str, Any]) -> PackedInfo:
    args = tuple(a if isinstance(a, str) else TypeTree.from_json(a) for a in data["args"])
    result = None if data["result"] is None else TypeTree.from_json(data["result"])
    return PackedInfo(data["function"], args, result, data["place"])
