"""Handles to blocks and loops of a schedule of a module."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from relaxlab.schedule import state


class Location(Enum):
    """A place for a block's computation that is no loop: where it is now, or inside of each block
    that reads the result. The values are the decisions that stand for them."""

    ROOT = -1
    INLINE = -2


@dataclass(frozen=True, slots=True)
class BlockRV:
    """A block of the function `func` of a schedule's module."""

    func: str
    handle: state.BlockRV


@dataclass(frozen=True, slots=True)
class LoopRV:
    """A loop of the function `func` of a schedule's module, or a location that `compute_at` takes
    in place of one."""

    func: str
    handle: state.LoopRV | Location
