"""Loads and stores of 64-bit words by their number behind an address."""

from __future__ import annotations

from relaxlab.codegen.llvm.builder import Builder


def load_word(b: Builder, base: str, word: int) -> str:
    """Emit the load of a word behind the pointer `base`."""
    return b.emit(f"load i64, ptr {_place(b, base, word)}, align 8")


def store_word(b: Builder, base: str, word: int, text: str) -> None:
    """Emit the store of a word behind the pointer `base`."""
    b.raw(f"store i64 {text}, ptr {_place(b, base, word)}, align 8")


def pointer_of(b: Builder, word: str) -> str:
    """Emit the pointer that a word holds."""
    return b.emit(f"inttoptr i64 {word} to ptr")


def _place(b: Builder, base: str, word: int) -> str:
    return b.emit(f"getelementptr inbounds i64, ptr {base}, i64 {word}")
