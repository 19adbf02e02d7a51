"""The small functions that WGSL kernels use, one for each type that they are called with.

WGSL has no constants for infinity and NaN, and refuses an expression of constants that gives one:
their bits come from variables.
"""

from __future__ import annotations

import re

PARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "floordiv": (("i32",), """\
// Division that rounds toward negative infinity, and its remainder.
fn floordiv_T(a: T, b: T) -> T {
  let q = a / b;
  return select(q, q - 1, a % b != 0 && (a < 0) != (b < 0));
}
"""),
    "floormod": (("i32",), """\
fn floormod_T(a: T, b: T) -> T {
  let r = a % b;
  return select(r, r + b, r != 0 && (r < 0) != (b < 0));
}
"""),
    "minimum": (("i32", "u32", "f32"), """\
fn minimum_T(a: T, b: T) -> T {
  return select(b, a, a < b TEST);
}
"""),
    "maximum": (("i32", "u32", "f32"), """\
fn maximum_T(a: T, b: T) -> T {
  return select(b, a, a > b TEST);
}
"""),
    "ipow": (("i32", "u32"), """\
fn ipow_T(base: T, exponent: T) -> T {
  var result: T = 1;
  var square = base;
  for (var rest = exponent; rest > 0; rest = rest >> 1u) {
    if ((rest & 1) != 0) {
      result = result * square;
    }
    square = square * square;
  }
  return result;
}
"""),
    "shift_left": (("i32", "u32"), """\
// Shifts by the width or more leave nothing but the sign.
fn shift_left_T(a: T, n: T) -> T {
  return select(a << (u32(n) & 31u), 0, n < 0 || n >= 32);
}
"""),
    "shift_right": (("i32", "u32"), """\
fn shift_right_T(a: T, n: T) -> T {
  return select(a >> (u32(n) & 31u), LEFT, n < 0 || n >= 32);
}
"""),
    "isnan": (("f32",), """\
// By their bits: a compiler may take every number for finite.
fn isnan_T(x: T) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
"""),
    "isinf": (("f32",), """\
fn isinf_T(x: T) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}
"""),
    "isfinite": (("f32",), """\
fn isfinite_T(x: T) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
}
"""),
    "infinity": (("f32",), """\
var<private> bits_of_infinity: u32 = 0x7f800000u;
fn infinity_T() -> T {
  return bitcast<T>(bits_of_infinity);
}
"""),
    "not_a_number": (("f32",), """\
var<private> bits_of_not_a_number: u32 = 0x7fc00000u;
fn not_a_number_T() -> T {
  return bitcast<T>(bits_of_not_a_number);
}
"""),
    "sigmoid": (("f32",), """\
fn sigmoid_T(x: T) -> T {
  return 1.0 / (1.0 + exp(-x));
}
"""),
    "round_half_away": (("f32",), """\
fn round_half_away_T(x: T) -> T {
  let whole = trunc(x);
  return select(whole, whole + sign(x), abs(x - whole) >= 0.5);
}
"""),
    "fmod": (("f32",), """\
// Long division in binary: every difference is exact.
fn fmod_T(x: T, y: T) -> T {
  let by = abs(y);
  var rest = abs(x);
  if (isnan_f32(x) || isnan_f32(y) || !(rest < infinity_f32()) || by == 0.0) {
    return not_a_number_f32();
  }
  while (rest >= by) {
    var part = by;
    while (part * 2.0 <= rest) {
      part = part * 2.0;
    }
    rest = rest - part;
  }
  return select(rest, -rest, x < 0.0);
}
"""),
    "exp10": (("f32",), """\
fn exp10_T(x: T) -> T {
  return pow(10.0, x);
}
"""),
    "log10": (("f32",), """\
fn log10_T(x: T) -> T {
  return log2(x) * 0.30102999566398120;
}
"""),
    "log1p": (("f32",), """\
// The error of 1 + x is made up for (Kahan).
fn log1p_T(x: T) -> T {
  let u = 1.0 + x;
  let d = u - 1.0;
  return select(log(u) * (x / d), x, d == 0.0 || (isinf_f32(x) && x > 0.0));
}
"""),
    "arcsine": (("f32",), """\
// WGSL's own is right to three digits only.
fn arcsine_T(x: T) -> T {
  return atan2(x, sqrt((1.0 - x) * (1.0 + x)));
}
"""),
    "arccosine": (("f32",), """\
fn arccosine_T(x: T) -> T {
  return atan2(sqrt((1.0 - x) * (1.0 + x)), x);
}
"""),
    "power": (("f32",), """\
// WGSL leaves powers of negative numbers open.
fn power_T(x: T, y: T) -> T {
  if (y == 0.0 || x == 1.0) {
    return 1.0;
  }
  if (isnan_f32(x) || isnan_f32(y)) {
    return not_a_number_f32();
  }
  let size = select(pow(abs(x), y), select(infinity_f32(), 0.0, y > 0.0), x == 0.0);
  if (x >= 0.0) {
    return size;
  }
  let odd = abs(y - 2.0 * floor(y * 0.5)) == 1.0;
  return select(select(size, -size, odd), not_a_number_f32(), floor(y) != y && isfinite_f32(x));
}
"""),
    "erf": (("f32",), """\
// Abramowitz and Stegun 7.1.26 is right to 1.5e-7; near 0 the series of odd powers.
fn erf_T(x: T) -> T {
  let a = abs(x);
  let t = 1.0 / (1.0 + 0.3275911 * a);
  let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027
    + t * 1.061405429))));
  let far = 1.0 - p * exp(-a * a);
  let s = a * a;
  let near = a * (1.1283791671 + s * (-0.3761263890 + s * (0.1128379167 + s * (-0.0268661706
    + s * 0.0052239776))));
  return sign(x) * select(far, near, a < 0.3);
}
"""),
}  # fmt: skip


# Code that differs between integers and floats, or signed and unsigned integers: by its mark in the
# texts above, and by the type.
_MARKS = {
    "TEST": {"f32": "|| isnan_f32(a)", "i32": "", "u32": ""},
    "LEFT": {"i32": "a >> 31u", "u32": "0"},
}


def _for(text: str, kind: str) -> str:
    """The text of a function for a type."""
    for mark, spellings in _MARKS.items():
        if mark in text:
            text = re.sub(rf" ?{mark}", f" {spellings[kind]}".rstrip(), text)
    return re.sub(r"(?<=_)T\b|\bT\b", kind, text)


def prelude(code: str) -> str:
    """Return the functions here that `code` uses, and those that they use, as the start of its
    file."""
    used: dict[str, str] = {}
    pending = [code]
    while pending:
        for name, kind in re.findall(r"\b([a-z]\w*)_(i32|u32|f32)\(", pending.pop()):
            kinds, text = PARTS.get(name, ((), ""))
            if kind in kinds and f"{name}_{kind}" not in used:
                used[f"{name}_{kind}"] = _for(text, kind)
                pending.append(used[f"{name}_{kind}"])
    order = [f"{name}_{kind}" for name, (kinds, _) in PARTS.items() for kind in kinds]
    return "\n".join(used[name] for name in order if name in used)
