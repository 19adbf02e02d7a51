"""Handles to blocks and loops of a schedule of a module."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.schedule import state


@dataclass(frozen=True, slots=True)
class BlockRV:
    """A block of the function `func` of a schedule's module."""

    func: str
    handle: state.BlockRV


@dataclass(frozen=True, slots=True)
class LoopRV:
    """A loop of the function `func` of a schedule's module."""

    func: str
    handle: state.LoopRV
