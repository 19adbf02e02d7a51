"""A large program as several modules of LLVM, each compiled by a process of its own.

llvmlite lets one thread at a time into LLVM, so threads would not help. A process starts in a fifth
of a second: it imports llvmlite and no part of the compiler.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import llvmlite.binding as llvm

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.builder import CodegenError
from relaxlab.ir.target import Target

LEAST = 300_000
"""Characters of LLVM IR in a module at least: half a second's work."""


def compile_objects(
    functions: Sequence[str], declarations: Mapping[str, str], target: Target
) -> tuple[tuple[bytes, ...], bytes]:
    """Compile the texts of functions with all cores: object files, which call each other's
    functions, and the whole optimised module as bitcode.

    Raises CodegenError where another process fails.
    """
    shares = _shares(functions, _cores())
    if len(shares) == 1:
        code, bitcode = jit.compile_object(jit.module_text(functions, declarations, target), target)
        return (code,), bitcode
    texts = [jit.module_text(s, declarations, target, functions) for s in shares]
    with ThreadPoolExecutor(len(texts)) as pool:
        others = [pool.submit(_compile_elsewhere, text, target) for text in texts[1:]]
        # The first module here: this process has LLVM loaded, and its core would idle.
        results = [jit.compile_object(texts[0], target), *(other.result() for other in others)]
    whole = llvm.parse_bitcode(results[0][1])
    for _, bitcode in results[1:]:
        whole.link_in(llvm.parse_bitcode(bitcode))
    return tuple(code for code, _ in results), whole.as_bitcode()


def _cores() -> int:
    """The number of cores that this process may use; 1 where no other process can be started."""
    if not sys.executable:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _shares(functions: Sequence[str], most: int) -> list[list[str]]:
    """Return the functions in at most `most` modules of about the same size, each in the given
    order; in one module if constants belong to them, which several would have to share."""
    size = sum(map(len, functions))
    count = min(most, size // LEAST)
    if count < 2 or not all(f.startswith("define") for f in functions):
        return [list(functions)]
    sizes, share_of = [0] * count, dict[int, int]()
    # Longest first, each to the module that is shortest so far: the last process ends soon after
    # the others.
    for number in sorted(range(len(functions)), key=lambda i: -len(functions[i])):
        share_of[number] = min(range(count), key=sizes.__getitem__)
        sizes[share_of[number]] += len(functions[number])
    return [[f for i, f in enumerate(functions) if share_of[i] == share] for share in range(count)]


def _compile_elsewhere(text: str, target: Target) -> tuple[bytes, bytes]:
    """Compile a module in another process; returns what `jit.compile_object` does."""
    fields = {**asdict(target), "features": sorted(target.features)}
    given = json.dumps({"text": text, "target": fields}).encode()
    command = [sys.executable, "-m", __name__]
    run = subprocess.run(command, input=given, capture_output=True, check=False)
    if run.returncode != 0:
        raise CodegenError(
            f"a process that compiled a part of the program failed with {run.returncode}: "
            f"{run.stderr.decode(errors='replace')[-2000:]}"
        )
    size = int.from_bytes(run.stdout[:8], "little")
    return run.stdout[8 : 8 + size], run.stdout[8 + size :]


def _main() -> None:
    given = json.load(sys.stdin.buffer)
    given["target"]["features"] = frozenset(given["target"]["features"])
    code, bitcode = jit.compile_object(given["text"], Target(**given["target"]))
    sys.stdout.buffer.write(len(code).to_bytes(8, "little") + code + bitcode)


if __name__ == "__main__":
    _main()
