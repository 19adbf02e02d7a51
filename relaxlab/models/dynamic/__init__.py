"""Networks whose control flow depends on the input, as programs to be run in batches, and random
inputs for them."""

from relaxlab.models.dynamic.data_trees import tree_fc as tree_fc
from relaxlab.models.dynamic.data_trees import tree_gru as tree_gru
from relaxlab.models.dynamic.data_trees import tree_value as tree_value
from relaxlab.models.dynamic.deciding import berxit as berxit
from relaxlab.models.dynamic.deciding import drnn as drnn
from relaxlab.models.dynamic.deciding import nested_items as nested_items
from relaxlab.models.dynamic.deciding import nested_rnn as nested_rnn
from relaxlab.models.dynamic.deciding import stack_rnn as stack_rnn
from relaxlab.models.dynamic.inputs import chain_tree as chain_tree
from relaxlab.models.dynamic.inputs import complete_tree as complete_tree
from relaxlab.models.dynamic.inputs import parse_tree as parse_tree
from relaxlab.models.dynamic.inputs import random_weights as random_weights
from relaxlab.models.dynamic.inputs import sentence_leaves as sentence_leaves
from relaxlab.models.dynamic.inputs import sentence_length as sentence_length
from relaxlab.models.dynamic.inputs import token_vectors as token_vectors
from relaxlab.models.dynamic.lattices import bi_lstm_tagger as bi_lstm_tagger
from relaxlab.models.dynamic.lattices import lattice as lattice
from relaxlab.models.dynamic.lattices import lattice_length as lattice_length
from relaxlab.models.dynamic.lattices import lattice_lstm as lattice_lstm
from relaxlab.models.dynamic.lattices import tagged_sentence as tagged_sentence
from relaxlab.models.dynamic.lattices import tagger_length as tagger_length
from relaxlab.models.dynamic.sequences import bi_rnn as bi_rnn
from relaxlab.models.dynamic.trees import mv_rnn as mv_rnn
from relaxlab.models.dynamic.trees import tree_lstm as tree_lstm
