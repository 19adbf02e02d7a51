"""Networks whose control flow depends on the input, as programs to be run in batches, and random
inputs for them."""

from relaxlab.models.dynamic.data_trees import tree_fc, tree_gru, tree_value
from relaxlab.models.dynamic.deciding import berxit, drnn, nested_items, nested_rnn, stack_rnn
from relaxlab.models.dynamic.inputs import (
    chain_tree,
    complete_tree,
    parse_tree,
    random_weights,
    sentence_leaves,
    sentence_length,
    token_vectors,
)
from relaxlab.models.dynamic.lattices import (
    bi_lstm_tagger,
    lattice,
    lattice_length,
    lattice_lstm,
    tagged_sentence,
    tagger_length,
)
from relaxlab.models.dynamic.sequences import bi_rnn
from relaxlab.models.dynamic.trees import mv_rnn, tree_lstm

__all__ = [
    "berxit",
    "bi_lstm_tagger",
    "bi_rnn",
    "chain_tree",
    "complete_tree",
    "drnn",
    "lattice",
    "lattice_length",
    "lattice_lstm",
    "mv_rnn",
    "nested_items",
    "nested_rnn",
    "parse_tree",
    "random_weights",
    "sentence_leaves",
    "sentence_length",
    "stack_rnn",
    "tagged_sentence",
    "tagger_length",
    "token_vectors",
    "tree_fc",
    "tree_gru",
    "tree_lstm",
    "tree_value",
]
