"""A loop function's launches in a dialect, line by line."""

from __future__ import annotations

from relaxlab.codegen.gpu.dialect import Dialect
from relaxlab.codegen.gpu.program import launches_of, sources_of
from relaxlab.codegen.listing import Line
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import PrimFunc


def source_lines(
    func: PrimFunc, name: str, dialect: Dialect, facts: Facts
) -> tuple[tuple[Line, ...], str]:
    """The functions of a located loop function's launches, each line with the line of the loops
    that it is from, and the whole source, which ends with them.

    Raises CodegenError for what the dialect cannot express.
    """
    functions, source = sources_of(launches_of({name: func}, facts), dialect)
    lines: list[Line] = []
    for kernel in functions[name]:
        places = [span.line if span is not None else 0 for span in kernel.spans]
        texts = kernel.code.rstrip("\n").split("\n")
        lines += [Line(t, n) for t, n in zip(texts, places, strict=True)] + [Line("")]
    return tuple(lines[:-1]), source
