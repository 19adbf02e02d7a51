"""The settings that determine the program of a decoder."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.names import among
from relaxlab.models.loader import ModelError

ACTIVATIONS = ("float32", "q8", "q16")


@dataclass(frozen=True, slots=True)
class Request:
    """The settings that determine a program.

    activations, kv_dtype: see `TextGenerator.load`. rows: new positions of a call at most.
    sequences: None for one sequence, else how many a call may have at most, each with its keys and
    values in pages. Any context will do: the number of positions is a symbol.
    """

    activations: str
    kv_dtype: str
    rows: int
    sequences: int | None = None

    @staticmethod
    def of(
        activations: str,
        kv_dtype: str | None,
        rows: int,
        sequences: int | None = None,
    ) -> Request:
        """A request; `kv_dtype` None goes with the activations. ModelError for unknown
        activations."""
        if activations not in ACTIVATIONS:
            known = among(activations, ACTIVATIONS)
            raise ModelError(f"unknown activations {activations!r}; known: {known}")
        kv_dtype = kv_dtype or ("float16" if activations == "q8" else "float32")
        return Request(activations, kv_dtype, rows, sequences)
