"""Changes of modules of `nn` by the names of what is inside of them."""

from __future__ import annotations

from typing import Any

from relaxlab.tvm.relax.frontend.nn.core import Parameter
from relaxlab.tvm.relax.frontend.nn.module import Module, ModuleDict, ModuleList


class Mutator:
    """Visits modules and parameters, each with its dotted name, and puts what a method returns in
    the place of what it was given. A subclass overrides methods, and calls theirs to go on inside.
    """

    def visit(self, name: str, node: Any) -> Any:
        """Visit what is inside of a module. Returns the module."""

        def inside(key: object) -> str:
            return f"{name}.{key}" if name else str(key)

        if isinstance(node, ModuleList):
            for i, item in enumerate(node):
                node[i] = self._visit_item(inside(i), item)
            return node
        items = node if isinstance(node, ModuleDict) else vars(node)
        for key, item in [*items.items()]:
            items[key] = self._visit_item(inside(key), item)
        return node

    def _visit_item(self, name: str, item: Any) -> Any:
        match item:
            case Parameter():
                return self.visit_param(name, item)
            case ModuleList():
                return self.visit_modulelist(name, item)
            case ModuleDict():
                return self.visit_moduledict(name, item)
            case Module():
                return self.visit_module(name, item)
            case _:
                return item

    def visit_module(self, name: str, node: Module) -> Any:
        """Visit a module. Returns what replaces it."""
        return self.visit(name, node)

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        """Visit a list of modules. Returns what replaces it."""
        return self.visit(name, node)

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        """Visit modules by name. Returns what replaces them."""
        return self.visit(name, node)

    def visit_param(self, name: str, node: Parameter) -> Any:
        """Visit a parameter. Returns what replaces it."""
        return node
