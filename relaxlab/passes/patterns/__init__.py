"""Patterns over dataflow blocks: a language, matching, and rewriting with callbacks."""

from relaxlab.passes.patterns.language import (
    Chain,
    Pattern,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from relaxlab.passes.patterns.match import Match
from relaxlab.passes.patterns.rewrite import rewrite_bindings, rewrite_call

__all__ = [
    "Chain",
    "Match",
    "Pattern",
    "is_call_dps_packed",
    "is_call_packed",
    "is_call_tir",
    "is_const",
    "is_dfv",
    "is_gv",
    "is_op",
    "is_shape",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "rewrite_bindings",
    "rewrite_call",
    "wildcard",
]
