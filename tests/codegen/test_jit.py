"""Machine code in this process."""

import sys
from pathlib import Path

import pytest

from relaxlab.codegen.llvm.jit import LoadedObject, compile_object, release_pages
from relaxlab.ir.target import Target

CALLER = """
target triple = "{triple}"
declare i32 @nowhere_at_all(i32)
define i32 @caller(i32 %a) {{
  %b = call i32 @nowhere_at_all(i32 %a)
  ret i32 %b
}}
"""


def test_a_function_that_is_nowhere_is_refused_before_it_is_called():
    target = Target.host()
    code, _ = compile_object(CALLER.format(triple=target.triple), target)
    with pytest.raises(ImportError, match="nowhere_at_all"):
        LoadedObject([code], target)


def resident_llvm_data() -> int:
    """Bytes of the compiler's read-only data in this process's memory, tables that were changed
    when it was loaded left out."""
    total, resident, inside = 0, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *values = line.split()
        if not key.endswith(":"):
            inside = values[0] == "r--p" and "libllvmlite." in values[-1]
        elif inside and key == "Rss:":
            resident = int(values[0]) * 1024
        elif inside and key == "Anonymous:" and values[0] == "0":
            total += resident
    return total


def resident_file_pages() -> int:
    """Bytes of this process's memory that come from files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssFile:"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_of_the_compiler_are_released_and_read_again():
    target = Target.host()
    text = f'target triple = "{target.triple}"\ndefine i32 @seven() {{\n  ret i32 7\n}}\n'
    first, _ = compile_object(text, target)
    before = resident_file_pages()
    assert resident_llvm_data() > 1 << 20
    release_pages()
    assert resident_llvm_data() == 0
    assert resident_file_pages() < before - 10e6
    second, _ = compile_object(text, target)
    assert second == first and LoadedObject([second], target).address("seven")
