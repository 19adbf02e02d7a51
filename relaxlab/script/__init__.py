"""The script language: decorators, parser, printer.

from relaxlab.script import ir as I, relax as R, tir as T
"""

from relaxlab.script.parser import parse
from relaxlab.script.printer import print_module, print_with_map

__all__ = ["parse", "print_module", "print_with_map"]
