"""The public names of relaxlab, and where each is defined.

Type checkers and editors read this file, and so does `relaxlab` when it is imported: it is the one
list of the names. One import per line, `from HOME import NAME as NAME`.
"""

from typing import Any

from relaxlab import nn as nn
from relaxlab import ops as ops
from relaxlab.analysis.pattern_kind import pattern_kind_with_reason as pattern_kind_with_reason
from relaxlab.batching.automaton import load_policy as load_policy
from relaxlab.batching.bound import batch_bound as batch_bound
from relaxlab.batching.graph import minibatch_graph as minibatch_graph
from relaxlab.batching.layout import BlockKernel as BlockKernel
from relaxlab.batching.layout import block_layout as block_layout
from relaxlab.batching.learn import learn_policy as learn_policy
from relaxlab.batching.policies import schedule_batches as schedule_batches
from relaxlab.batching.recorded import batches_by as batches_by
from relaxlab.batching.recorded import recorded_graph as recorded_graph
from relaxlab.frontend.pytorch.entry import from_torch as from_torch
from relaxlab.frontend.pytorch.entry import torch_backend as torch_backend
from relaxlab.ir import dtypes as dtypes
from relaxlab.ir import expr as expr
from relaxlab.ir import graph as graph
from relaxlab.ir import loops as loops
from relaxlab.ir import types as types
from relaxlab.ir.diagnostics import Diagnostic as Diagnostic
from relaxlab.ir.diagnostics import DiagnosticError as DiagnosticError
from relaxlab.ir.equal import assert_structural_equal as assert_structural_equal
from relaxlab.ir.equal import structural_equal as structural_equal
from relaxlab.ir.facts import Facts as Facts
from relaxlab.ir.facts import FusionLimits as FusionLimits
from relaxlab.ir.module import Module as Module
from relaxlab.ir.node import Attrs as Attrs
from relaxlab.ir.node import replace as replace
from relaxlab.ir.node import rewrite as rewrite
from relaxlab.ir.node import walk as walk
from relaxlab.ir.op_table import TypeDeductionError as TypeDeductionError
from relaxlab.ir.target import Target as Target
from relaxlab.ir.target import TargetKind as TargetKind
from relaxlab.ir.target import register_target as register_target
from relaxlab.ir.target import target_kind as target_kind
from relaxlab.lab.explore import explore as explore
from relaxlab.models.decoder import Decoder as Decoder
from relaxlab.models.generate import TextGenerator as TextGenerator
from relaxlab.models.loader import open_model as open_model
from relaxlab.models.text_encoder import BertEncoder as BertEncoder
from relaxlab.models.transcriber import Transcriber as Transcriber
from relaxlab.ops import te as te
from relaxlab.ops.block_builder import BlockBuilder as BlockBuilder
from relaxlab.ops.define import define as define
from relaxlab.ops.define import tensor_arg as tensor_arg
from relaxlab.passes import patterns as patterns
from relaxlab.passes.base import NoOptions as NoOptions
from relaxlab.passes.base import PassFailed as PassFailed
from relaxlab.passes.base import Pipeline as Pipeline
from relaxlab.passes.base import PipelineError as PipelineError
from relaxlab.passes.base import find_pass as find_pass
from relaxlab.passes.base import module_pass as module_pass
from relaxlab.passes.bindings import map_blocks as map_blocks
from relaxlab.passes.bindings import with_bindings as with_bindings
from relaxlab.passes.fuse_ops_by_pattern import FusionPattern as FusionPattern
from relaxlab.passes.lower_shapes import lower_shapes as lower_shapes
from relaxlab.passes.lower_to_libraries import BLAS as BLAS
from relaxlab.passes.patterns import is_const as is_const
from relaxlab.passes.patterns import is_op as is_op
from relaxlab.passes.patterns import rewrite_bindings as rewrite_bindings
from relaxlab.passes.patterns import rewrite_call as rewrite_call
from relaxlab.passes.patterns import wildcard as wildcard
from relaxlab.passes.pipeline import batched_pipeline as batched_pipeline
from relaxlab.passes.pipeline import cpu_pipeline as cpu_pipeline
from relaxlab.passes.pipeline import cuda_pipeline as cuda_pipeline
from relaxlab.passes.pipeline import default_pipeline as default_pipeline
from relaxlab.passes.plan_memory import memory_plan_of as memory_plan_of
from relaxlab.runtime.arrays import ExecutionError as ExecutionError
from relaxlab.runtime.build import compile as compile
from relaxlab.runtime.build import trace as trace
from relaxlab.runtime.c_functions import register_c_function as register_c_function
from relaxlab.runtime.check.check import CheckReport as CheckReport
from relaxlab.runtime.check.check import check as check
from relaxlab.runtime.executable import Executable as Executable
from relaxlab.runtime.export.export import ExportError as ExportError
from relaxlab.runtime.interpreter.interpreter import interpret as interpret
from relaxlab.runtime.load import load as load
from relaxlab.runtime.native.arguments import ArgumentError as ArgumentError
from relaxlab.runtime.native.loaded import CheckFailed as CheckFailed
from relaxlab.runtime.packed import register_func as register_func
from relaxlab.runtime.ragged import Ragged as Ragged
from relaxlab.runtime.ragged import RaggedError as RaggedError
from relaxlab.runtime.ragged import ragged as ragged
from relaxlab.runtime.simt.simt import SimtError as SimtError
from relaxlab.runtime.simt.simt import SimtReport as SimtReport
from relaxlab.runtime.simt.simt import simt as simt
from relaxlab.runtime.timing import Comparison as Comparison
from relaxlab.runtime.timing import Timing as Timing
from relaxlab.runtime.timing import compare as compare
from relaxlab.runtime.timing import time as time
from relaxlab.runtime.vm.cuda import CudaExecutable as CudaExecutable
from relaxlab.runtime.vm.cuda import NoGpu as NoGpu
from relaxlab.runtime.vm.executable import InterpretedExecutable as InterpretedExecutable
from relaxlab.schedule.compiled import schedule_of as schedule_of
from relaxlab.schedule.error import ScheduleError as ScheduleError
from relaxlab.schedule.replay import apply_trace as apply_trace
from relaxlab.schedule.schedule import Schedule as Schedule
from relaxlab.schedule.tensor_intrin import TensorIntrin as TensorIntrin
from relaxlab.script import parse as parse
from relaxlab.tracing import Trace as Trace
from relaxlab.tracing import first_rewrites as first_rewrites
from relaxlab.tracing import may_apply as may_apply
from relaxlab.tuning.database import Database as Database
from relaxlab.tuning.tune import Tuning as Tuning
from relaxlab.tuning.tune import tune as tune

__version__: str

def load_ipython_extension(shell: Any) -> None: ...
def unload_ipython_extension(shell: Any) -> None: ...
