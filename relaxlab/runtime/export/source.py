"""The C text of an exported library: its header, and the tables that describe the program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from relaxlab.codegen.artifact import Artifact, FunctionInfo, TypeTree
from relaxlab.codegen.llvm.context import BLOCK_HEADER, CONTEXT, MIN_TEAM_WORK
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.names import ascii_name
from relaxlab.ir.target import Target
from relaxlab.runtime.export.params_file import DTYPES, MAX_NDIM

GIVEN, FIXED = -1, -2
"""Sources of an argument that is no stored array: given by the caller, or fixed by the function."""

RESERVED = frozenset("context open close set_threads verify release error".split())
"""Names of the interface that functions of a program may not have."""

# What cpuid reports of x86-64 processors: leaf, subleaf, register (0: eax .. 3: edx), bit.
_CPUID = {
    "sse3": (1, 0, 2, 0), "pclmul": (1, 0, 2, 1), "ssse3": (1, 0, 2, 9), "fma": (1, 0, 2, 12),
    "sse4.1": (1, 0, 2, 19), "sse4.2": (1, 0, 2, 20), "movbe": (1, 0, 2, 22),
    "popcnt": (1, 0, 2, 23), "aes": (1, 0, 2, 25), "avx": (1, 0, 2, 28), "f16c": (1, 0, 2, 29),
    "bmi": (7, 0, 1, 3), "avx2": (7, 0, 1, 5), "bmi2": (7, 0, 1, 8), "avx512f": (7, 0, 1, 16),
    "avx512dq": (7, 0, 1, 17), "adx": (7, 0, 1, 19), "avx512ifma": (7, 0, 1, 21),
    "avx512cd": (7, 0, 1, 28), "sha": (7, 0, 1, 29), "avx512bw": (7, 0, 1, 30),
    "avx512vl": (7, 0, 1, 31), "avx512vbmi": (7, 0, 2, 1), "avx512vbmi2": (7, 0, 2, 6),
    "gfni": (7, 0, 2, 8), "vaes": (7, 0, 2, 9), "vpclmulqdq": (7, 0, 2, 10),
    "avx512vnni": (7, 0, 2, 11), "avx512bitalg": (7, 0, 2, 12),
    "avx512vpopcntdq": (7, 0, 2, 14), "amx-bf16": (7, 0, 3, 22), "avx512fp16": (7, 0, 3, 23),
    "amx-tile": (7, 0, 3, 24), "amx-int8": (7, 0, 3, 25), "avxvnni": (7, 1, 0, 4),
    "avx512bf16": (7, 1, 0, 5), "amx-fp16": (7, 1, 0, 21), "avxifma": (7, 1, 0, 23),
    "avxvnniint8": (7, 1, 3, 4), "avxneconvert": (7, 1, 3, 5), "avxvnniint16": (7, 1, 3, 10),
    "lzcnt": (0x80000001, 0, 2, 5), "sse4a": (0x80000001, 0, 2, 6),
    "fma4": (0x80000001, 0, 2, 16),
}  # fmt: skip
_AVX_STATE, _AVX512_STATE = 0x6, 0xE6  # bits of XCR0


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor, shape or scalar of a signature. source: GIVEN, FIXED (to `words`), or the number
    of a stored array."""

    name: str
    tree: TypeTree
    written: bool = False
    source: int = GIVEN
    words: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The data of one function for the C text; `signature` names the parameters that callers
    give."""

    info: FunctionInfo
    signature: str
    args: tuple[Leaf, ...]
    results: tuple[Leaf, ...]

    @property
    def given(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf in self.args if leaf.source == GIVEN)


@dataclass(frozen=True, slots=True)
class Library:
    """The library to export, with its file's `stem`. n_stored: arrays in the parameter file, the
    program's constants first; params_crc: the checksum of its entries."""

    stem: str
    artifact: Artifact
    target: Target
    plans: tuple[Plan, ...]
    n_stored: int
    params_crc: int
    description: str = field(repr=False)

    @property
    def prefix(self) -> str:
        """The prefix of the names of the C functions."""
        return c_identifier(self.stem)


def c_identifier(name: str) -> str:
    """A name that C takes."""
    text = ascii_name(name)
    return f"_{text}" if text[:1].isdigit() else text


def header_text(library: Library) -> str:
    """The C header."""
    dtypes = (f"    RELAXLAB_{d.upper()} = {i}" for i, d in enumerate(DTYPES))
    functions = "\n".join(_declaration(library.prefix, p) for p in library.plans)
    return _fill(
        "library.h",
        library,
        cpu=library.target.cpu,
        guard=library.prefix.upper(),
        max_ndim=str(MAX_NDIM),
        dtypes=",\n".join(dtypes),
        functions=functions,
    )


def source_text(library: Library) -> str:
    """The C source, which includes the header."""
    functions = "\n\n".join(
        f"{_prototype(library.prefix, p)} {{\n"
        f"    return call(context, &functions[{i}], args, n_args, results, n_results);\n}}"
        for i, p in enumerate(library.plans)
    )
    return _fill("library.c", library, tables=_tables(library), functions=functions)


def taken_names() -> set[str]:
    """Names that the library's own C text uses."""
    return set(re.findall(r"\w+", template("library.c")))


def template(name: str) -> str:
    """A file of the folder c, with its gaps."""
    return files("relaxlab.runtime.export").joinpath("c", name).read_text(encoding="utf-8")


def _fill(name: str, library: Library, **parts: str) -> str:
    text = template(name)
    parts |= {"stem": library.stem, "prefix": library.prefix}
    return re.sub(r"@(\w+)@", lambda m: parts[m[1]], text)


def _prototype(prefix: str, plan: Plan) -> str:
    indent = " " * len(start := f"int {prefix}_{c_identifier(plan.info.name)}(")
    return (
        f"{start}{prefix}_context *context, const relaxlab_tensor *args, int n_args,\n"
        f"{indent}relaxlab_tensor *results, int n_results)"
    )


def _declaration(prefix: str, plan: Plan) -> str:
    """The documented declaration of a function."""
    macro = f"{prefix}_{c_identifier(plan.info.name)}".upper()
    lines = [f"/* {plan.info.name}({plan.signature})", " *"]
    for what, leaves in (("args", plan.given), ("results", plan.results)):
        lines += [_documented(f"{what}[{i}]", leaf) for i, leaf in enumerate(leaves)]
    lines += [" */", f"#define {macro}_ARGS {len(plan.given)}"]
    lines += [f"#define {macro}_RESULTS {len(plan.results)}", _prototype(prefix, plan) + ";", ""]
    return "\n".join(lines)


def _documented(place: str, leaf: Leaf) -> str:
    text = " ".join(x for x in (place, leaf.name, leaf.tree.text) if x)
    return " *   " + text.replace("*/", "* /") + (", updated in place" if leaf.written else "")


def _tables(library: Library) -> str:
    """The tables of a program as C."""
    artifact = library.artifact
    defines: dict[str, Any] = {
        "CPU": _string(library.target.cpu),
        "PARAMS_NAME": _string(f"{library.stem}.params"),
        "PARAMS_CRC": f"{library.params_crc}u",
        "N_STORED": library.n_stored,
        "N_CONSTANTS": len(artifact.constants),
        "N_ARENAS": artifact.arenas,
        "N_FUNCTIONS": len(library.plans),
        "N_DTYPES": len(DTYPES),
        "CALLS_BLAS": int(any("cblas" in name for name in artifact.externs)),
        "BLOCK_HEADER": BLOCK_HEADER,
        "CONTEXT_WORDS": len(CONTEXT),
        "MIN_TEAM_WORK": MIN_TEAM_WORK,
        **{f"CONTEXT_{name}": i for i, name in enumerate(CONTEXT)},
        **_needs(library.target),
    }
    lines = [f"#define {name} {value}" for name, value in defines.items()]
    lines += _array("const char *const", "dtype_names", map(_string, DTYPES))
    lines += _array("const uint8_t", "dtype_bytes", (str(bytes_of(d)) for d in DTYPES))
    lines += _array("const struct feature", "features", _feature_rows(library.target))
    for i, plan in enumerate(library.plans):
        lines.append(f'extern entry_function entry_{i} __asm__("{plan.info.symbol}.entry");')
        lines += _leaf_table(f"args_{i}", plan.args)
        lines += _leaf_table(f"results_{i}", plan.results)
    lines += _array("const struct function", "functions", _function_rows(library))
    for i, check in enumerate(artifact.checks):
        lines += _array("const char *const", f"messages_{i}", map(_string, check.messages))
    rows = (f"{{messages_{i}, {int(c.memory)}}}" for i, c in enumerate(artifact.checks))
    lines += _array("const struct check", "checks", rows)
    lines += ["static const char description[] =", *_long_string(library.description), ";"]
    return "\n".join(lines)


def _function_rows(library: Library) -> Iterator[str]:
    for i, p in enumerate(library.plans):
        counts = f"{len(p.args)}, {len(p.given)}, {len(p.results)}"
        words = f"{p.info.words_in}, {p.info.words_out}"
        texts = f"{_string(p.info.name)}, {_string(p.signature)}"
        yield f"{{{texts}, entry_{i}, args_{i}, results_{i}, {counts}, {words}}}"


def _leaf_table(name: str, leaves: Sequence[Leaf]) -> list[str]:
    """The rows of a signature; their dimensions and fixed words are tables of their own."""
    lines: list[str] = []
    rows: list[str] = []
    for i, leaf in enumerate(leaves):
        tree, numbers = leaf.tree, dict[str, str]()
        dims = tree.dims if any(d != -1 for d in tree.dims) else ()
        for what, values in (("dims", dims), ("words", leaf.words)):
            numbers[what] = f"{name}_{what}_{i}" if values else "NULL"
            if values:
                lines += _array("const int64_t", numbers[what], map(_int64, values))
        rows.append(
            f"{{{_string(leaf.name)}, {_string(tree.text)}, {tree.kind.upper()}, "
            f"{DTYPES.index(tree.dtype)}, {tree.ndim}, {int(leaf.written)}, {leaf.source}, "
            f"{numbers['dims']}, {numbers['words']}}}"
        )
    return [*lines, *_array("const struct leaf", name, rows)]


def _needs(target: Target) -> Mapping[str, int]:
    state = 0
    if "avx" in target.features:
        state = _AVX512_STATE if "avx512f" in target.features else _AVX_STATE
    return {"NEEDED_STATE": state, "NEEDS_TILES": int("amx-tile" in target.features)}


def _feature_rows(target: Target) -> Iterator[str]:
    for name in sorted(target.features & _CPUID.keys()):
        yield f"{{{_string(name)}, {', '.join(map(str, _CPUID[name]))}}}"
    yield "{NULL, 0, 0, 0, 0}"


def _array(kind: str, name: str, values: Iterable[str]) -> list[str]:
    """A static table; C has no empty ones, so that those get a zero."""
    rows = [f"    {v}," for v in values] or ["    {0}," if "struct" in kind else "    0,"]
    return [f"static {kind} {name}[] = {{", *rows, "};"]


def _int64(value: int) -> str:
    return f"INT64_C({value})" if value > -(1 << 63) else "INT64_MIN"


def _string(text: str) -> str:
    """A C string literal, ASCII only."""
    escaped = "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    )
    return f'"{escaped}"'


def _long_string(text: str) -> Iterator[str]:
    """A long literal as pieces of at most 2000 characters."""
    for at in range(0, max(1, len(text)), 2000):
        yield "    " + _string(text[at : at + 2000])
