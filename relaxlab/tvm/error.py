"""`tvm.error`: the errors under TVM's names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import UserError

TVMError = InternalError = UserError


class InferenceError(TypeError, ValueError, UserError):
    """An expression has no type. TVM raises TypeError or ValueError for these, by operator."""


class OpError(UserError):
    """An operator cannot be used as it is."""


class OpNotImplemented(OpError, NotImplementedError):
    """An operator is not implemented."""


class OpAttributeRequired(OpError, AttributeError):
    """An operator lacks an attribute."""


class OpAttributeInvalid(OpError, AttributeError):
    """An attribute of an operator has a value that it cannot have."""


class OpAttributeUnImplemented(OpError, NotImplementedError):
    """A value of an attribute is not implemented."""


@contextmanager
def inference_errors() -> Iterator[None]:
    """Raise what type deduction refuses as an `InferenceError`."""
    try:
        yield
    except UserError as error:
        raise InferenceError(str(error)) from error


__all__ = [
    "DiagnosticError", "InferenceError", "InternalError", "OpAttributeInvalid",
    "OpAttributeRequired", "OpAttributeUnImplemented", "OpError", "OpNotImplemented", "TVMError",
]  # fmt: skip
