"""Processors older than this machine, whose programs run on it, too."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from relaxlab.ir.target import Target

_SINCE_AVX = ("avx", "f16c", "fma", "xop", "vaes", "vpclmul", "gfni", "sha512", "sm3", "sm4", "amx")
"""Beginnings of the names of features that came with AVX, in 2011, or later."""


@cache
def without_avx() -> Target | None:
    """This machine without AVX: vectors are of 128 bits, nothing is masked or fused, and no
    instruction converts float16. None where the machine is no x86-64."""
    host = Target.host()
    if not host.triple.startswith("x86_64"):
        return None
    kept = frozenset(f for f in host.features if not f.startswith(_SINCE_AVX))
    return replace(host, cpu="x86-64", features=kept)
