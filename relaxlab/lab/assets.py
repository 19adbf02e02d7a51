"""The JavaScript of the views: modules of `static/`, joined into one without any tool.

The modules import each other by `import {a, b} from "./core.js"` or `import name from "./x.js"`,
and export by `export` before `function`, `async function`, `const` or `class` at the start of a
line, or by `export default`. Node runs them as they are; `link` makes each a function's scope.
"""

from __future__ import annotations

import base64
import re
import zlib
from functools import cache
from importlib.resources import files

_STATIC = files("relaxlab.lab") / "static"
_NAMED = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"\./([\w.]+)";?[ \t]*$', re.MULTILINE)
_DEFAULT = re.compile(r'^import\s+(\w+)\s+from\s*"\./([\w.]+)";?[ \t]*$', re.MULTILINE)
_EXPORT = re.compile(r"^export\s+((?:async\s+)?function\*?|const|let|class)\s+(\w+)", re.MULTILINE)
_INDENT = re.compile(r"^[ \t\n]+", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*\*.*?\*/|//[^\n]*)[ \t]*\n", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"[ \t]+// [^\n\"'`]*$", re.MULTILINE)


@cache
def source(name: str) -> str:
    """The text of one file of `static/`."""
    return (_STATIC / name).read_text(encoding="utf-8")


@cache
def link(*kinds: str, addressed: bool = False) -> str:
    """One ES module of the views `kinds`: `views` maps each to `{render}`, the default export is
    the first for a widget manager, `localModel` makes a model without a kernel; for a page of
    its own (`addressed`), `addressedModel` makes one that follows the page's address.

    Raises FileNotFoundError for a kind without a module."""
    order: list[str] = []
    for name in (*kinds, *(["address"] if addressed else [])):
        _visit(f"{name}.js", order)
    views = ", ".join(f'"{kind}": $["{kind}.js"].default' for kind in kinds)
    return "\n".join(
        [
            "const $ = {};",
            *map(_scope, order),
            f"export const views = {{{views}}};",
            'export const {localModel} = $["core.js"];',
            'export const {addressedModel} = $["address.js"];' if addressed else "",
            f'const hooks = Object.entries(views["{kinds[0]}"]);',
            "const hook = ([name, f]) => [name, (given) => f({...given, views})];",
            "export default Object.fromEntries(hooks.map(hook));",
        ]
    )


@cache
def compressed(*kinds: str, addressed: bool = False) -> str:
    """`link`, compressed (zlib), as base64 text."""
    code = link(*kinds, addressed=addressed).encode()
    return base64.b64encode(zlib.compress(code, 9)).decode("ascii")


def _visit(name: str, order: list[str]) -> None:
    """Append `name` after the modules that it imports."""
    if name in order:
        return
    text = source(name)
    for found in (*_NAMED.finditer(text), *_DEFAULT.finditer(text)):
        _visit(found[2], order)
    order.append(name)


def _scope(name: str) -> str:
    text = _INDENT.sub("", _REMARK.sub("", _COMMENT.sub("", source(name))))
    exported = [found[2] for found in _EXPORT.finditer(text)]
    text = _NAMED.sub(r'const {\1} = $["\2"];', text)
    text = _DEFAULT.sub(r'const \1 = $["\2"].default;', text)
    text = _EXPORT.sub(r"\1 \2", text)
    if re.search(r"^export default\b", text, re.MULTILINE):
        text = re.sub(r"^export default\b", "const $default =", text, count=1, flags=re.MULTILINE)
        exported.append("default: $default")
    return f'$["{name}"] = (() => {{\n{text}\nreturn {{{", ".join(exported)}}};\n}})();'
