"""Checks and symbol definitions where a value meets a type it is claimed to have."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.unify import solve_for
from relaxlab.ir import expr, host, types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.dtypes import is_int
from relaxlab.ir.substitute import symbols_in


@dataclass(frozen=True, slots=True)
class Claim:
    """`value` is claimed to be of type `ty` (a leaf type) under the register `dst`; `what` names it
    in messages."""

    value: int
    dst: int
    ty: types.Type
    what: str


@dataclass(slots=True)
class Symbols:
    """The symbols of a function that are known so far, with where each comes from."""

    signed: Container[str] = ()
    """Names of symbols that may be negative: numbers for kernels, and no extents."""
    origin: dict[expr.Var, str] = field(default_factory=lambda: {})
    bound: list[expr.Var] = field(default_factory=lambda: [])

    def bind(self, s: expr.Var, origin: str) -> None:
        """Record a definition."""
        self.origin[s] = origin
        self.bound.append(s)

    def knows(self, e: expr.PrimExpr) -> bool:
        """True if every symbol of `e` is known."""
        return all(s in self.origin for s in symbols_in(e))

    def why(self, e: expr.PrimExpr) -> str:
        """Return where the symbols of an expression come from: "n is dimension 0 of `x`"."""
        found = [f"{s.name} is {self.origin[s]}" for s in symbols_in(e) if s in self.origin]
        return ", ".join(found)


def match_claims(
    claims: Sequence[Claim],
    symbols: Symbols,
    emit: Callable[[host.Instr], None],
    actual: Callable[[int], types.Type],
) -> None:
    """Emit the instructions that check `claims` together and define their symbols.

    Dimensions that are a symbol alone define it, in order; a compound dimension that is linear in
    one unknown symbol defines it by division. Dimensions that the register's own type (`actual`)
    proves are not checked again. Raises `DiagnosticError` for a symbol that nothing defines.
    """
    deferred: list[tuple[Claim, int, expr.PrimExpr, expr.Var]] = []
    for claim in claims:
        _match_one(claim, symbols, emit, actual(claim.value), deferred)
    _solve(deferred, symbols, emit)
    late: dict[Claim, dict[int, expr.PrimExpr]] = {}
    for claim, axis, dim, _ in deferred:
        if not symbols.knows(dim):
            raise DiagnosticError([_undefined(claim, axis, dim, symbols)])
        late.setdefault(claim, {})[axis] = dim
    for claim, dims in late.items():
        checks = [host.CheckDim(d, symbols.why(d)) for d in dims.values()]
        by_axis = dict(zip(dims, checks, strict=True))
        kind, declared = _dims_of(claim.ty)
        count = len(declared or ())
        emit(
            host.MatchShape(
                claim.dst, claim.dst, kind, claim.what,
                ndim=count, dims=tuple(by_axis.get(i) for i in range(count)),
            )
        )  # fmt: skip


def _match_one(
    claim: Claim,
    symbols: Symbols,
    emit: Callable[[host.Instr], None],
    known: types.Type,
    deferred: list[tuple[Claim, int, expr.PrimExpr, expr.Var]],
) -> None:
    kind, declared = _dims_of(claim.ty)
    _, proved = _dims_of(known)
    dims: list[host.BindDim | host.CheckDim | None] = []
    signs: list[expr.Var] = []
    for axis, d in enumerate(declared or ()):
        name = f"dimension {axis} of {claim.what}" if kind != "scalar" else claim.what
        have = proved[axis] if proved is not None and axis < len(proved) else None
        if isinstance(d, expr.Var) and d not in symbols.origin:
            symbols.bind(d, name)
            dims.append(host.BindDim(d))
            signs.append(d)
        elif have is not None and _equal(have, d):
            dims.append(None)
        elif symbols.knows(d):
            dims.append(host.CheckDim(d, symbols.why(d)))
        else:
            hole = expr.Var(f"{_short(claim.what)}_dim{axis}")
            symbols.bound.append(hole)
            deferred.append((claim, axis, d, hole))
            dims.append(host.BindDim(hole))
    dtype = getattr(claim.ty, "dtype", None)
    emit(
        host.MatchShape(
            claim.value, claim.dst, kind, claim.what,
            dtype=None if getattr(known, "dtype", None) == dtype else dtype,
            ndim=len(declared) if declared is not None else getattr(claim.ty, "ndim", -1),
            dims=tuple(dims) if declared is not None else None,
        )
    )  # fmt: skip
    if kind != "tensor":
        for s in signs:
            if is_int(s.dtype) and s.name not in symbols.signed:
                emit(_require_non_negative(s, symbols.origin[s]))


def _solve(
    deferred: list[tuple[Claim, int, expr.PrimExpr, expr.Var]],
    symbols: Symbols,
    emit: Callable[[host.Instr], None],
) -> None:
    progress = True
    while progress:
        progress = False
        for claim, axis, dim, hole in deferred:
            known = {s: s for s in symbols_in(dim) if s in symbols.origin}
            solved = solve_for(dim, hole, known)
            if solved is not None:
                origin = f"found from dimension {axis} of {claim.what}, declared {dim}"
                symbols.bind(solved.symbol, origin)
                emit(host.ComputeScalar(solved.symbol, solved.value))
                emit(_require_non_negative(solved.symbol, origin))
                progress = True


def _require_non_negative(s: expr.Var, origin: str) -> host.Require:
    text = f"{s.name} ({origin}) must not be negative"
    return host.Require(expr.GE(s, expr.const(0)), s, text)


def _dims_of(ty: types.Type) -> tuple[str, tuple[expr.PrimExpr, ...] | None]:
    match ty:
        case types.TensorType(shape):
            return "tensor", shape
        case types.ShapeType(values):
            return "shape", values
        case types.PrimType(_, value):
            return "scalar", None if value is None else (value,)
        case _:
            return "", None


def _equal(a: expr.PrimExpr, b: expr.PrimExpr) -> bool:
    return a == b or Analyzer.for_shapes((a, b)).prove_equal(a, b) is True


def _short(what: str) -> str:
    parts = what.split("`")
    return parts[1] if len(parts) > 1 else "value"


def _undefined(claim: Claim, axis: int, dim: expr.PrimExpr, symbols: Symbols) -> Diagnostic:
    missing = [s.name for s in symbols_in(dim) if s not in symbols.origin]
    names = ", ".join(f'"{name}"' for name in missing)
    return Diagnostic(
        "E0502",
        f"nothing determines {', '.join(missing)} in dimension {axis} of {claim.what}, declared "
        f"{dim}",
        claim.ty.span,  # type: ignore[attr-defined]
        notes=("a symbol is determined by a dimension that is that symbol alone",),
        suggestion=f"add a parameter that does, such as s: R.Shape([{names}])",
    )


def is_redundant(known: types.Type, claim: types.Type) -> bool:
    """True if the type `known` alone shows that every value of it has the type `claim`."""
    match known, claim:
        case types.DataType(name), types.DataType(other):
            return name == other
        case _, types.ObjectType() | types.FuncType():
            return True
        case types.TensorType(), types.TensorType():
            if claim.dtype not in (None, known.dtype):
                return False
            return _covers(known.shape, known.ndim, claim.shape, claim.ndim)
        case types.ShapeType(), types.ShapeType():
            return _covers(known.values, known.ndim, claim.values, claim.ndim)
        case types.PrimType(dtype, value), types.PrimType(other, claimed):
            return dtype == other and (claimed is None or claimed == value)
        case _:
            return False


def _covers(
    have: tuple[expr.PrimExpr, ...] | None,
    have_ndim: int,
    want: tuple[expr.PrimExpr, ...] | None,
    want_ndim: int,
) -> bool:
    if want is None:
        return want_ndim in (-1, have_ndim)
    if have is None or len(have) != len(want):
        return False
    analyzer = Analyzer.for_shapes((have, want))
    pairs = zip(have, want, strict=True)
    return all(a == b or analyzer.prove_equal(a, b) is True for a, b in pairs)
