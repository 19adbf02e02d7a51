"""Gradients of the operators: importing this package puts them into the rows of the operators.

A gradient is a function of a `Step`: a call, its result, and the adjoint of the result, which is
the derivative of the target by it. It returns, for each argument, what the call adds to the
argument's adjoint.
"""

from relaxlab.ops.gradients import (  # noqa: F401
    attention,
    elementwise,
    factors,
    linalg,
    networks,
    norms,
    rearrange,
    reduce,
)
from relaxlab.ops.gradients.base import NotDifferentiable as NotDifferentiable
from relaxlab.ops.gradients.base import Step as Step
