"""`tvm.error`: the errors under TVM's names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import UserError

TVMError = InternalError = UserError


class InferenceError(TypeError, ValueError, UserError):
    """An expression has no type. TVM raises TypeError or ValueError for these, by operator."""


@contextmanager
def inference_errors() -> Iterator[None]:
    """Raise what type deduction refuses as an `InferenceError`."""
    try:
        yield
    except UserError as error:
        raise InferenceError(str(error)) from error


__all__ = ["DiagnosticError", "InferenceError", "InternalError", "TVMError"]
