"""Nodes of both levels, scalar expressions, types, the module, and structural equality."""
