"""The kinds of machines that programs are compiled for, one in a file: all that the compiler does
for it in another way than for others (`ir.target.TargetKind`)."""

from relaxlab.ir.target import register_target
from relaxlab.targets.cpu import CPU
from relaxlab.targets.cuda import CUDA
from relaxlab.targets.interpreter import INTERPRETER
from relaxlab.targets.wgsl import WGSL

KINDS = tuple(map(register_target, (CPU, CUDA, WGSL, INTERPRETER)))
