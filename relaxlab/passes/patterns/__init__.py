"""Patterns over dataflow blocks: a language, matching, and rewriting with callbacks."""

from relaxlab.passes.patterns.language import Chain as Chain
from relaxlab.passes.patterns.language import Pattern as Pattern
from relaxlab.passes.patterns.language import is_call_dps_packed as is_call_dps_packed
from relaxlab.passes.patterns.language import is_call_packed as is_call_packed
from relaxlab.passes.patterns.language import is_call_tir as is_call_tir
from relaxlab.passes.patterns.language import is_const as is_const
from relaxlab.passes.patterns.language import is_dfv as is_dfv
from relaxlab.passes.patterns.language import is_gv as is_gv
from relaxlab.passes.patterns.language import is_op as is_op
from relaxlab.passes.patterns.language import is_shape as is_shape
from relaxlab.passes.patterns.language import is_tuple as is_tuple
from relaxlab.passes.patterns.language import is_tuple_get_item as is_tuple_get_item
from relaxlab.passes.patterns.language import is_var as is_var
from relaxlab.passes.patterns.language import wildcard as wildcard
from relaxlab.passes.patterns.match import Match as Match
from relaxlab.passes.patterns.rewrite import rewrite_bindings as rewrite_bindings
from relaxlab.passes.patterns.rewrite import rewrite_call as rewrite_call
