"""The error that code generation raises for what a target cannot express."""

from relaxlab.ir.errors import UserError


class CodegenError(UserError):
    """A loop function uses something that the target cannot express."""
