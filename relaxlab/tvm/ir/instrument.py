"""`tvm.ir.instrument`: objects that are told before and after each pass."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from relaxlab.ir.module import Module


class PassInstrument:
    """Base of the instruments; a subclass overrides what it wants to be told."""

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: Module, info: Any) -> bool:
        """False lets the pass be left out."""
        return True

    def run_before_pass(self, mod: Module, info: Any) -> None:
        """Called before a pass."""

    def run_after_pass(self, mod: Module, info: Any) -> None:
        """Called after a pass."""


def pass_instrument(pi_cls: type | None = None) -> Any:
    """A decorator of a class with some of the methods of `PassInstrument`."""
    return (lambda cls: cls) if pi_cls is None else pi_cls


class PassTimingInstrument(PassInstrument):
    """Measures the time of each pass; `render()` is a text with one line for each."""

    def __init__(self) -> None:
        self._begun: list[float] = []
        self._lines: list[str] = []

    def run_before_pass(self, mod: Module, info: Any) -> None:
        self._begun.append(time.perf_counter())

    def run_after_pass(self, mod: Module, info: Any) -> None:
        took = (time.perf_counter() - self._begun.pop()) * 1e6
        self._lines.append(f"{'  ' * len(self._begun)}{info.name}: {took:.0f}us")

    def render(self) -> str:
        """The measured times, passes inside others indented."""
        return "\n".join(self._lines)


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after passes of given names."""

    def __init__(
        self,
        print_before_pass_names: list[str] | None = None,
        print_after_pass_names: list[str] | None = None,
    ) -> None:
        self._before = print_before_pass_names or []
        self._after = print_after_pass_names or []

    def run_before_pass(self, mod: Module, info: Any) -> None:
        if info.name in self._before:
            print(f"Before {info.name}:\n{mod.script()}")

    def run_after_pass(self, mod: Module, info: Any) -> None:
        if info.name in self._after:
            print(f"After {info.name}:\n{mod.script()}")


class PrintBeforeAll(PassInstrument):
    """Prints the module before each pass."""

    def run_before_pass(self, mod: Module, info: Any) -> None:
        print(f"Before {info.name}:\n{mod.script()}")


class PrintAfterAll(PassInstrument):
    """Prints the module after each pass."""

    def run_after_pass(self, mod: Module, info: Any) -> None:
        print(f"After {info.name}:\n{mod.script()}")


class DumpIR(PassInstrument):
    """Writes the module after each pass into a folder."""

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self._folder = Path(dump_dir)
        self._folder.mkdir(parents=True, exist_ok=True)
        if refresh:
            for old in self._folder.glob("*.py"):
                old.unlink()
        self._count = 0

    def run_after_pass(self, mod: Module, info: Any) -> None:
        name = "".join(c if c.isalnum() else "_" for c in info.name)
        (self._folder / f"{self._count:03}_{name}.py").write_text(mod.script(), "utf-8")
        self._count += 1
