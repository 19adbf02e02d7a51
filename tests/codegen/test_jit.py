"""Machine code in this process."""

import pytest

from relaxlab.codegen.llvm.jit import LoadedObject, compile_object
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
