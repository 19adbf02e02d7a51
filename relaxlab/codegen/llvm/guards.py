"""Checks of a debug build in host functions: zones around the memory they allocate, poison in it,
places of planned tensors inside their storage, alignment of arguments and results."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxlab.codegen.artifact import CheckInfo
from relaxlab.codegen.check_messages import literal
from relaxlab.codegen.llvm.builder import Value, int_value
from relaxlab.codegen.llvm.context import BLOCK_HEADER
from relaxlab.codegen.llvm.host_frame import HostFrame
from relaxlab.codegen.llvm.team import Team, barrier
from relaxlab.codegen.llvm.zones import ZONE, fill, mark_zones, zone_damaged
from relaxlab.ir import host, types
from relaxlab.ir.dtypes import bytes_of

HEADER_ZONE = BLOCK_HEADER - 16
"""Bytes of a block's header behind its two words."""


@dataclass(slots=True)
class Guards:
    """The blocks that a host function has allocated so far, as name, address, bytes and bytes of
    the zone before; its storages by register: their bytes, and whether each thread has its own; the
    registers of tensors of which each thread has its own."""

    blocks: list[tuple[str, str, str, int]] = field(default_factory=list[tuple[str, str, str, int]])
    storages: dict[int, tuple[str, bool]] = field(default_factory=dict[int, tuple[str, bool]])
    per_thread: set[int] = field(default_factory=set[int])

    def block(self, e: HostFrame, name: str, start: str, size: str, before: int) -> None:
        """Make zones around a new block, in which there is room for them."""
        e.only_thread_0(lambda: mark_zones(e.b, start, size, before))
        self.blocks.append((name, start, size, before))

    def allocated(self, e: HostFrame, reg: int, size: str) -> None:
        """Make zones around a new tensor's block and poison in it."""
        self.block(e, e.function.registers[reg].name, e.regs[reg].address, size, HEADER_ZONE)
        self.fresh(e, reg)

    def storage(self, e: HostFrame, i: host.AllocStorage, size: str) -> str:
        """Planned memory between two zones."""
        more = e.b.emit(f"add i64 {size}, {2 * ZONE}")
        start = e.b.emit(f"getelementptr i8, ptr {e.kept(i, more)}, i64 {ZONE}", "p")
        self.block(e, e.function.registers[i.dst].name, start, size, ZONE)
        return start

    def verify(self, e: HostFrame, what: str) -> None:
        """Stop where something was written beside a block since the last check."""
        if not self.blocks:
            return

        def compute() -> str:
            found = "0"
            for number, (_, start, size, before) in enumerate(self.blocks, 1):
                damaged = zone_damaged(e.b, start, size, before)
                found = e.b.emit(f"select i1 {damaged}, i64 {number}, i64 {found}")
            return found

        number = e.published(compute)
        texts = [f"{what} wrote beside the memory of `{n}`" for n, *_ in self.blocks]
        where = f" in `{e.function.name}`"
        info = CheckInfo(e.function.name, ("", *(literal(t + where) for t in texts)))
        ok = e.b.emit(f"icmp eq i64 {number}, 0")
        e.fail_unless(ok, info, number, int_value(0), int_value(0))

    def dead(self, e: HostFrame, reg: int) -> None:
        """Poison a tensor that is read no more."""
        self.fresh(e, reg, per_thread=reg in self.per_thread)

    def fresh(self, e: HostFrame, reg: int, *, per_thread: bool = False) -> None:
        """Poison a tensor that nothing has written yet."""
        ty = e.type_of(reg)
        assert isinstance(ty, types.TensorType) and ty.dtype is not None
        dtype, address, size = ty.dtype, e.regs[reg].address, e.bytes(reg)
        if per_thread:
            fill(e.b, address, size, dtype)
            return
        barrier(e.scope, Team())  # what was there before, another thread may still read
        e.only_thread_0(lambda: fill(e.b, address, size, dtype))
        barrier(e.scope, Team())

    def placed(self, e: HostFrame, i: host.View) -> None:
        """Check that a planned tensor is inside its storage and aligned, and fill it with
        poison."""
        if i.base in self.per_thread:
            self.per_thread.add(i.dst)
        if i.base not in self.storages:
            return
        name, (size, per_thread) = e.function.registers[i.dst].name, self.storages[i.base]
        end = e.b.emit(f"add i64 {e.scalar(i.offset).text}, {e.bytes(i.dst)}")
        text = f"`{name}` ends at byte {{got}} of a storage of {{expected}}"
        info = CheckInfo(e.function.name, (f"{text} in `{literal(e.function.name)}`",))
        ok = e.b.emit(f"icmp ule i64 {end}, {size}")
        e.fail_unless(ok, info, 0, Value("int64", end), Value("int64", size))
        self.aligned(e, i.dst)
        if per_thread:
            self.per_thread.add(i.dst)
        self.fresh(e, i.dst, per_thread=per_thread)

    def merged(self, i: host.If) -> None:
        """Note which tensors after the branches every thread has its own of."""
        sides = (host.leaves(v) for v in (i.dst, i.then_value, i.else_value))
        for dst, *values in zip(*sides, strict=True):
            if self.per_thread.issuperset(values):
                self.per_thread.add(dst)

    def aligned(self, e: HostFrame, value: host.Value) -> None:
        """The addresses of tensors that are not empty are multiples of their elements' sizes."""
        for reg in host.leaves(value):
            self._aligned(e, reg)

    def _aligned(self, e: HostFrame, reg: int) -> None:
        ty = e.type_of(reg)
        if not isinstance(ty, types.TensorType) or ty.dtype is None:
            return
        unit = bytes_of(ty.dtype)
        place = e.b.emit(f"ptrtoint ptr {e.regs[reg].address} to i64")
        rest = e.b.emit(f"and i64 {place}, {unit - 1}")
        even = e.b.emit(f"icmp eq i64 {rest}, 0")
        empty = e.b.emit(f"icmp eq i64 {e.bytes(reg)}, 0")
        name = literal(f"`{e.function.registers[reg].name}` in `{e.function.name}`")
        text = f"the address of {name} is {{got}} bytes past a multiple of {unit}"
        ok = e.b.emit(f"or i1 {even}, {empty}")
        e.fail_unless(
            ok, CheckInfo(e.function.name, (text,)), 0, Value("int64", rest), int_value(0)
        )
