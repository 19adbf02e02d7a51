"""The script language: decorators, parser, printer."""

from relaxlab.ir.module import register_printer
from relaxlab.script.printer import print_module, print_with_map

register_printer(print_module)

__all__ = ["print_module", "print_with_map"]
