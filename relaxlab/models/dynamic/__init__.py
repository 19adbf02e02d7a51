"""Networks whose control flow depends on the input, as programs to be run in batches, and random
inputs for them."""

from relaxlab.models.dynamic.inputs import (
    chain_tree,
    complete_tree,
    parse_tree,
    random_weights,
    sentence_leaves,
    sentence_length,
    token_vectors,
)
from relaxlab.models.dynamic.sequences import bi_rnn
from relaxlab.models.dynamic.trees import mv_rnn, tree_lstm

__all__ = [
    "bi_rnn",
    "chain_tree",
    "complete_tree",
    "mv_rnn",
    "parse_tree",
    "random_weights",
    "sentence_leaves",
    "sentence_length",
    "token_vectors",
    "tree_lstm",
]
