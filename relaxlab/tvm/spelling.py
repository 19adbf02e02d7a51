"""Classes of TVM that stand for classes of the core."""

from __future__ import annotations

from typing import Any


class Spelling(type):
    """A metaclass for a class whose `__new__` takes TVM's arguments and returns a node of `core`.
    `isinstance(value, cls)` is true for the nodes of `core`, a class or a tuple of them."""

    _core: Any

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, core: Any
    ) -> Spelling:
        cls = super().__new__(mcs, name, bases, namespace)
        cls._core = core
        return cls

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, core: Any
    ) -> None:
        super().__init__(name, bases, namespace)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._core)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, cls._core)
