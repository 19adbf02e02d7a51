"""The script language: decorators, parser, printer.

from relaxlab.script import ir as I, relax as R, tir as T
"""

from relaxlab.ir.module import register_printer
from relaxlab.script.parser import parse
from relaxlab.script.printer import print_module, print_with_map

register_printer(print_module)

__all__ = ["parse", "print_module", "print_with_map"]
