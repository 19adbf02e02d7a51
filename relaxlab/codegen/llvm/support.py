"""LLVM functions that every program contains: barrier, failure report, allocation.

Each does its work in thread 0 and publishes the result to the team.
"""

from __future__ import annotations

import string

from relaxlab.ir.target import Target

CONTEXT = ("axis", "got", "expected", "callback", "args", "out", "constants", "owned", "publish",
           "arenas", "packed", "failed", "kernel_failed", "spare", "min_work")  # fmt: skip
"""Names of the context's words. axis, got, expected: details of the failed check. owned: a linked
list of the blocks allocated during the call. arenas: (address, bytes) per planned storage.
kernel_failed: zero, or the number of a failure in a kernel. spare: a linked list of free blocks
that earlier calls allocated, or null. min_work: the number of operations from which on a call
starts a team."""
GEMM = {"float32": "scipy_cblas_sgemm64_", "float64": "scipy_cblas_dgemm64_"}
"""The function of CBLAS for each dtype, as the wheel `scipy-openblas64` names it. It stands here
because loading a program needs it, which must not import the compiler."""
TOO_MUCH = 1 << 60
"""The size of an allocation whose bytes do not fit in a word: none of this size succeeds."""
MIN_TEAM_WORK = 1 << 14
"""Operations from which on a call starts a team: some microseconds' work, 0.1 to 0.65 ns each on
one thread (benchmarks/NOTES.md, *Calls*). Waking threads takes two if they are still waiting for
it, and fifty or more if they sleep."""
BLOCK_HEADER = 64
"""Bytes before the data of an owned block; its first words are the next block and the
bytes of data."""


_WORD = {name: f"getelementptr i64, ptr %ctx, i64 {i}" for i, name in enumerate(CONTEXT)}

_BARRIER = """define void @relaxlab_barrier() #0 {
  call void @GOMP_barrier()
  ret void
}
"""

_PUBLISH = f"""
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %work, label %meet
meet:
  %several = icmp ugt i64 %threads, 1
  br i1 %several, label %wait, label %read
wait:
  call void @GOMP_barrier()
  br label %read
read:
  %slot = {_WORD["publish"]}
  %result = load ptr, ptr %slot
  br i1 %several, label %wait2, label %done
wait2:
  call void @GOMP_barrier()
  br label %done
done:
  ret ptr %result
work:
  %to = {_WORD["publish"]}"""

_FAIL = f"""define void @relaxlab_fail(ptr %ctx, i64 %thread, i64 %axis, i64 %got, i64 %want) #0 {{
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %work, label %done
work:
  %a = {_WORD["axis"]}
  store i64 %axis, ptr %a
  %g = {_WORD["got"]}
  store i64 %got, ptr %g
  %e = {_WORD["expected"]}
  store i64 %want, ptr %e
  br label %done
done:
  ret void
}}
"""

_ALLOC = f"""define ptr @relaxlab_alloc(ptr %ctx, i64 %size, i64 %thread, i64 %threads) #0 {{
{_PUBLISH}
  %spare = {_WORD["spare"]}
  %twice = shl i64 %size, 1
  br label %look
look:
  %link = phi ptr [ %spare, %work ], [ %found, %try ]
  %found = load ptr, ptr %link
  %end = icmp eq ptr %found, null
  br i1 %end, label %new, label %try
try:
  %bytes = getelementptr i64, ptr %found, i64 1
  %have = load i64, ptr %bytes
  %enough = icmp uge i64 %have, %size
  %close = icmp ule i64 %have, %twice
  %fits = and i1 %enough, %close
  br i1 %fits, label %reuse, label %look
reuse:
  %rest = load ptr, ptr %found
  store ptr %rest, ptr %link
  br label %keep
new:
  %more = add i64 %size, {127 + BLOCK_HEADER}
  %total = and i64 %more, -64
  %fresh = call ptr @relaxlab_memory(i64 %total)
  %none = icmp eq ptr %fresh, null
  br i1 %none, label %fail, label %size_it
fail:
  store ptr null, ptr %to
  br label %meet
size_it:
  %room = getelementptr i64, ptr %fresh, i64 1
  store i64 %size, ptr %room
  br label %keep
keep:
  %block = phi ptr [ %found, %reuse ], [ %fresh, %size_it ]
  %owned = {_WORD["owned"]}
  %next = load ptr, ptr %owned
  store ptr %next, ptr %block
  store ptr %block, ptr %owned
  %data = getelementptr i8, ptr %block, i64 {BLOCK_HEADER}
  store ptr %data, ptr %to
  br label %meet
}}
"""

_RELEASE = f"""define void @relaxlab_release(
    ptr %ctx, ptr %data, i64 %thread, i64 %threads) #0 {{
  %several = icmp ugt i64 %threads, 1
  br i1 %several, label %wait, label %ready
wait:
  call void @GOMP_barrier()
  br label %ready
ready:
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %work, label %done
work:
  %block = getelementptr i8, ptr %data, i64 -{BLOCK_HEADER}
  %owned = {_WORD["owned"]}
  br label %look
look:
  %link = phi ptr [ %owned, %work ], [ %found, %step ]
  %found = load ptr, ptr %link
  %here = icmp eq ptr %found, %block
  br i1 %here, label %unlink, label %step
step:
  %end = icmp eq ptr %found, null
  br i1 %end, label %done, label %look
unlink:
  %rest = load ptr, ptr %found
  store ptr %rest, ptr %link
  call void @free(ptr %found)
  br label %done
done:
  ret void
}}
"""
"""Frees a block before the call ends. A thread may still read it in a kernel that every thread runs
by itself, hence the barrier."""

_ARENA = f"""define ptr @relaxlab_arena(
    ptr %ctx, i64 %at, i64 %size, i64 %thread, i64 %threads) #0 {{
{_PUBLISH}
  %arenas = {_WORD["arenas"]}
  %table = load ptr, ptr %arenas
  %where = getelementptr i64, ptr %table, i64 %at
  %have = getelementptr i64, ptr %where, i64 1
  %bytes = load i64, ptr %have
  %small = icmp ult i64 %bytes, %size
  br i1 %small, label %grow, label %keep
grow:
  %old = load ptr, ptr %where
  call void @free(ptr %old)
  %more = add i64 %size, 127
  %total = and i64 %more, -64
  %fresh = call ptr @relaxlab_memory(i64 %total)
  %none = icmp eq ptr %fresh, null
  %got = select i1 %none, i64 0, i64 %total
  store ptr %fresh, ptr %where
  store i64 %got, ptr %have
  br label %keep
keep:
  %arena = load ptr, ptr %where
  store ptr %arena, ptr %to
  br label %meet
}}
"""

_MEMORY = """define ptr @relaxlab_memory(i64 %size) #0 {
  %fresh = call ptr @aligned_alloc(i64 64, i64 %size)
  ret ptr %fresh
}
"""

PAGE = 2 << 20
"""Bytes of a large page: without, page tables bound how fast large arrays are read and written."""

_MEMORY_LINUX = f"""define ptr @relaxlab_memory(i64 %size) #0 {{
  %large = icmp uge i64 %size, {4 * PAGE}
  br i1 %large, label %pages, label %plain
pages:
  %more = add i64 %size, {PAGE - 1}
  %total = and i64 %more, {-PAGE}
  %whole = call ptr @aligned_alloc(i64 {PAGE}, i64 %total)
  %advised = call i32 @madvise(ptr %whole, i64 %total, i32 14)
  ret ptr %whole
plain:
  %fresh = call ptr @aligned_alloc(i64 64, i64 %size)
  ret ptr %fresh
}}
"""
"""14 is MADV_HUGEPAGE. Where the system does not grant it, nothing changes."""

_DECLARATIONS = {
    "GOMP_barrier": "declare void @GOMP_barrier()",
    "aligned_alloc": "declare ptr @aligned_alloc(i64, i64)",
    "free": "declare void @free(ptr)",
    "madvise": "declare i32 @madvise(ptr, i64, i32)",
}


def support_functions(
    declarations: dict[str, str], target: Target, barrier: str | None = None
) -> list[str]:
    """Return the support functions; their callees are added to `declarations`. barrier: the text
    of another `relaxlab_barrier`, for timed programs."""
    linux = "linux" in target.triple
    declarations.update(_DECLARATIONS)
    if not linux:
        del declarations["madvise"]
    memory = _MEMORY_LINUX if linux else _MEMORY
    return [barrier or _BARRIER, _FAIL, memory, _ALLOC, _RELEASE, _ARENA]


def symbol_of(name: str) -> str:
    """The linker symbol of a function: unique, and never one of the C library's."""
    plain = f"{string.ascii_letters}{string.digits}_"
    return "rl." + "".join(c if c in plain else f".{ord(c):x}" for c in name)
