"""relaxlab: a workbench for machine-learning compilers in pure Python.

    import relaxlab as rl
    mod = rl.parse(text)             # or a class under @I.ir_module
    print(mod.script())
    exe = rl.compile(mod)
    y = exe["main"](x)

`__init__.pyi` lists the public names. Each is imported on first use, so `import relaxlab` is cheap.
"""

from importlib import import_module as _import_module
from os import environ as _environ
from typing import Any as _Any

from relaxlab.ir.display import register_display as _register_display
from relaxlab.ir.display import register_printer as _register_printer

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    with open(__file__.removesuffix(".py") + ".pyi", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from relaxlab")]
    return {name: home for _, home, _, name, *_ in lines}


_HOME = _homes()
"""The module that defines each public name."""

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def _display(value: _Any) -> dict[str, str]:
    return _import_module("relaxlab.lab.display").mimebundle(value)


def _print_module(mod: _Any, **options: _Any) -> str:
    return _import_module("relaxlab.script").print_module(mod, **options)


# The nodes ask for what packages above theirs know, which is loaded when it is first needed.
_register_display(_display)
_register_printer(_print_module)


def load_ipython_extension(shell: _Any) -> None:
    """`%load_ext relaxlab` shows arrays as views; the rest needs no extension."""
    _import_module("relaxlab.lab.extension").load(shell)


def unload_ipython_extension(shell: _Any) -> None:
    """`%unload_ext relaxlab`"""
    _import_module("relaxlab.lab.extension").unload(shell)


def __getattr__(name: str) -> _Any:
    if name not in _HOME:
        text = f"module 'relaxlab' has no attribute {name!r}"
        raise AttributeError(text, name=name, obj=_import_module(__name__))
    home = _HOME[name]
    if home == __name__:
        return _import_module(f"{home}.{name}")
    # As `from HOME import NAME`, which finds modules in packages, too.
    value = getattr(__import__(home, fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__", "load_ipython_extension", "unload_ipython_extension"])


if _environ.get("RELAXLAB_TRACE"):
    _import_module("relaxlab.lab.record").record_process(_environ["RELAXLAB_TRACE"])
