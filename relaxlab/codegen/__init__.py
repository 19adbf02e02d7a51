"""From scheduled loop functions and host functions to machine code."""
