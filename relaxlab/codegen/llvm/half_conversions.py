"""Conversions between float16 and float32 for processors that have no instruction for them.

LLVM calls functions of its runtime library there, which a Python process does not contain.
"""

from __future__ import annotations

from collections.abc import Iterable
from string import Template

from relaxlab.ir.target import Target

_FLOAT = {
    "infinity": 0x7F800000, "quiet": 0x00400000, "half": 0x3F000000,
    "least": 0x38800000,  # 2^-14, the smallest normal float16
    "beyond": 0x47800000,  # 2^16, above the largest float16
    "moved": (112 << 23) - 0xFFF,  # the exponents' distance, less half of the last bit that stays
}  # fmt: skip
"""Bits of float32."""
_HALF = {"sign": 0x8000, "rest": 0x7FFF, "infinite": 0x7C00, "nan": 0x7E00, "payload": 0x1FF}
"""Bits of float16."""
_BITS = {**_FLOAT, **_HALF}

# Shifted into the place of a float32, the exponent is 112 too small: the product with 2^112 is
# exact, for subnormal numbers, too.
_EXTEND = Template("""define hidden float @__extendhfsf2(half %x) #0 {
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %signed = and i32 %wide, $sign
  %sign = shl i32 %signed, 16
  %rest = and i32 %wide, $rest
  %place = shl i32 %rest, 13
  %small = bitcast i32 %place to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %infinite = or i32 %place, $infinity
  %quiet = or i32 %infinite, $quiet
  %is_nan = icmp ugt i32 %rest, $infinite
  %special = select i1 %is_nan, i32 %quiet, i32 %infinite
  %is_special = icmp uge i32 %rest, $infinite
  %value = select i1 %is_special, i32 %special, i32 %finite
  %all = or i32 %value, %sign
  %result = bitcast i32 %all to float
  ret float %result
}""").substitute(_BITS)

# To nearest even. Below 2^-14 the sum with 0.5, whose last bit is 2^-24 as that of a subnormal
# float16, rounds; else one less than half of the last bit that stays, and one more where it is set.
_TRUNCATE = Template("""define hidden half @__truncsfhf2(float %x) #0 {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, $sign
  %rest = and i32 %bits, 2147483647
  %size = bitcast i32 %rest to float
  %sum = fadd float %size, 5.0e-1
  %sum_bits = bitcast float %sum to i32
  %subnormal = sub i32 %sum_bits, $half
  %shifted = lshr i32 %rest, 13
  %odd = and i32 %shifted, 1
  %moved = sub i32 %rest, $moved
  %nearest = add i32 %moved, %odd
  %normal = lshr i32 %nearest, 13
  %payload = and i32 %shifted, $payload
  %nan = or i32 %payload, $nan
  %is_small = icmp ult i32 %rest, $least
  %finite = select i1 %is_small, i32 %subnormal, i32 %normal
  %is_large = icmp uge i32 %rest, $beyond
  %number = select i1 %is_large, i32 $infinite, i32 %finite
  %is_nan = icmp ugt i32 %rest, $infinity
  %value = select i1 %is_nan, i32 %nan, i32 %number
  %all = or i32 %value, %sign
  %short = trunc i32 %all to i16
  %result = bitcast i16 %short to half
  ret half %result
}""").substitute(_BITS)


def half_conversions(functions: Iterable[str], target: Target) -> list[str]:
    """The functions, in LLVM IR, that code for the target will call where `functions` have values
    of float16; none where the processor has instructions."""
    used = not target.facts.converts_halves and any("half" in text for text in functions)
    return [_EXTEND, _TRUNCATE] if used else []
