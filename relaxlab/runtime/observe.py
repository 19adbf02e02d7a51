"""Observers of compilation: functions that are called with each program before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pipeline

Observer: TypeAlias = Callable[[Module, Target, Pipeline | None], None]
_observers: list[Observer] = []


def notify(mod: Module, target: Target, pipeline: Pipeline | None) -> None:
    """Tell all observers that a module is about to be compiled."""
    for observer in tuple(_observers):
        observer(mod, target, pipeline)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Call `observer` with each program compiled in the body."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
