"""The examples of operators: `R.sum(x, axis=1)  # (2, 3) -> (2,)`, a call with the types of its
names in order (float32 unless a dtype is written) and the type of its result."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_TYPE = re.compile(r"(\([^()]*\))(?: (\w+))?")


@dataclass(frozen=True, slots=True)
class Example:
    """A call, the shapes and dtypes of its names as they are written, and its result."""

    call: str
    arguments: tuple[tuple[str, str, str], ...]
    result: str

    def program(self, dtype: str | None = None) -> str:
        """A graph function that makes the call; with `dtype`, its first argument and those of the
        same dtype have that one."""
        own = self.arguments[0][2] if self.arguments else ""
        params = ", ".join(
            f'{name}: R.Tensor({shape}, "{dtype if dtype and given == own else given}")'
            for name, shape, given in self.arguments
        )
        return f"@R.function(pure=False)\ndef main({params}):\n    y = {self.call}\n    return y\n"


def read_example(text: str) -> Example:
    """An example as it is written in the table. Raises ValueError when names and types differ in
    number."""
    call, _, comment = text.partition("  # ")
    given, _, result = comment.rpartition("-> ")
    names = list(dict.fromkeys(_free_names(ast.parse(call))))
    found = _TYPE.findall(given)
    if len(names) != len(found):
        raise ValueError(f"{text!r} has {len(names)} names and {len(found)} types")
    arguments = tuple(
        (name, shape, dtype or "float32") for name, (shape, dtype) in zip(names, found, strict=True)
    )
    return Example(call, arguments, result)


def _free_names(node: ast.AST) -> Iterator[str]:
    """Yield the names in a call in order, without the namespaces and the parameters of lambdas."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and child.id not in ("R", "T"):
            yield child.id
        elif not isinstance(child, ast.Lambda):
            yield from _free_names(child)
