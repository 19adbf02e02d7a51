"""The base of functions that run one call at a time."""

from __future__ import annotations

from typing import Any


class Unbatched:
    """A function that runs no batches: asked for what runs them, it names the pipeline that makes
    that."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        # Not the function's text for every name: a copy asks for some before there is any.
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in ("batch", "record"):
            text = (
                f"{self!r} runs no batches of instances: compile the program with "
                "pipeline=rl.batched_pipeline(), whose functions have `batch` and `record`"
            )
        raise AttributeError(text, name=name, obj=self)
