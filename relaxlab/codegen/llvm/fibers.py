"""Fibers: instances that are recorded side by side, each on a stack of its own.

An instance whose control flow depends on a tensor stops where it reads it, and the next one is
recorded. When all of them wait, the caller computes what they noted, and they go on. Calls that are
independent of each other and may wait are fibers of their own, which their caller joins. A *fiber*
is a row of words. What switches between stacks is written in assembly: the C library's
`swapcontext` asks the system about signals each time, which took a quarter of a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaxlab.codegen.llvm.builder import Builder
from relaxlab.codegen.llvm.memory_words import load_word, pointer_of, store_word
from relaxlab.codegen.llvm.recorder_words import (
    FAILED,
    FAILURES,
    FIBER,
    FIBERS_END,
    FREE_FIBER,
    INSTANCE,
    NO_ROOM,
    STACK_END,
)
from relaxlab.ir.target import Target

(
    STATE, SLOT, VALUE, FUNCTION, ARGS, NUMBER, FIBER_STACK_END, CONTEXT, CALLER, PARENT, PENDING,
    NEXT_FREE, FIBER_WORDS,
) = range(13)  # fmt: skip
"""Words of a fiber: its state, the slot that it waits for and the address of its tensor, the
function `(recorder, args)` that it runs and its argument, the number of the instance, the end of
the stack, the addresses of the words with its own context and its caller's (a context is the end
of a stack on which `SWITCH` has put registers), the fiber that joins it, how many
of those it has itself to join, and the fiber that is free after it."""
READY, WAITING, AT_PHASE, JOINING, DONE = range(5)
"""States of a fiber: it may go on, waits for a tensor, waits for all others to reach the end of a
phase, waits for fibers that it began, or is done (and free, if another one began it)."""
BODY = "relaxlab_fiber"
"""The function `(recorder)` that runs on the stack of a fiber: one function after the other."""
INSTANCE_BODY = "relaxlab_record_instance"
"""The function of a fiber that records an instance; its argument has the addresses of the words of
the instance and of those of its results."""
RESUME = "relaxlab_resume_fibers"
"""The function `(recorder, fibers)` that lets each fiber that is ready go on until it waits
or ends, until none is ready, or room is lacking. Fibers of an instance that failed end where they
are."""
SWITCH = "relaxlab_switch"
"""The function `(recorder, leave, enter)` that writes the running context to the address `leave`
and goes on in the one at `enter`. A fiber begins there, with the recorder as its argument."""


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers that functions keep for their callers, on an architecture: the bytes that they
    take on a stack, at which of them the address is where the context goes on, and the assembly
    that puts them there and takes others."""

    size: int
    return_at: int
    assembly: tuple[str, ...]


def _aarch64() -> Registers:
    pairs = [f"x{n}, x{n + 1}" for n in range(19, 31, 2)]
    pairs += [f"d{n}, d{n + 1}" for n in range(8, 16, 2)]
    stores = [f"stp {pair}, [sp, #{16 * i}]" for i, pair in enumerate(pairs)]
    loads = [store.replace("stp", "ldp") for store in stores]
    size = 16 * len(pairs)
    swap = ["mov x9, sp", "str x9, [x1]", "ldr x9, [x2]", "mov sp, x9"]
    text = (f"sub sp, sp, #{size}", *stores, *swap, *loads, f"add sp, sp, #{size}")
    return Registers(size, 16 * pairs.index("x29, x30") + 8, text)


def _riscv64() -> Registers:
    whole, real = ["ra", *(f"s{n}" for n in range(12))], [f"fs{n}" for n in range(12)]
    places = [(8 * i, name) for i, name in enumerate([*whole, *real])]
    stores = [f"{'fsd' if name in real else 'sd'} {name}, {at}(sp)" for at, name in places]
    loads = [f"{'fld' if name in real else 'ld'} {name}, {at}(sp)" for at, name in places]
    size = -(-8 * len(places) // 16) * 16
    swap = ["sd sp, 0(a1)", "ld sp, 0(a2)"]
    return Registers(
        size, 0, (f"addi sp, sp, -{size}", *stores, *swap, *loads, f"addi sp, sp, {size}")
    )


def _x86_64() -> Registers:
    names = ("rbp", "rbx", "r12", "r13", "r14", "r15")
    pushes = [f"pushq %{name}" for name in names]
    pops = [f"popq %{name}" for name in reversed(names)]
    # Behind the address there is a word more: functions begin 8 bytes off a multiple of 16.
    size = 8 * (len(names) + 2)
    text = (*pushes, "movq %rsp, (%rsi)", "movq (%rdx), %rsp", *pops)
    return Registers(size, 8 * len(names), text)


REGISTERS = {
    "aarch64": _aarch64, "arm64": _aarch64, "riscv64": _riscv64, "x86_64": _x86_64,
}  # fmt: skip


def registers_of(target: Target) -> Registers:
    """The registers that contexts on a target are made of.

    Raises ValueError for an architecture on which no switch is written.
    """
    architecture = target.triple.partition("-")[0]
    if architecture not in REGISTERS:
        known = ", ".join(sorted(REGISTERS))
        raise ValueError(
            f"instances cannot wait for tensors on {architecture}, only on {known}; compile "
            "without `rl.batched_pipeline()`, for one instance at a time"
        )
    return REGISTERS[architecture]()


def switch(target: Target) -> str:
    """The function `SWITCH`, which has no code but the assembly."""
    text = "\\0A".join(registers_of(target).assembly)
    return (
        f"define void @{SWITCH}(ptr %recorder, ptr %leave, ptr %enter) naked noinline nounwind {{\n"
        f'  call void asm sideeffect "{text}", "~{{memory}}"()\n  ret void\n}}'
    )


def wait(b: Builder, state: str | int, slot: str) -> str:
    """Emit a wait of the running fiber in a state. Returns the address of the tensor that the
    caller has put into its words."""
    fiber = pointer_of(b, load_word(b, "%recorder", FIBER))
    store_word(b, fiber, SLOT, slot)
    store_word(b, fiber, STATE, str(state))
    _switch(b, load_word(b, fiber, CONTEXT), load_word(b, fiber, CALLER))
    return load_word(b, fiber, VALUE)


def fork(b: Builder, function: str, args: str) -> None:
    """Emit the start of a fiber for `function(recorder, args)`, if one is free; else its call."""
    child = load_word(b, "%recorder", FREE_FIBER)
    yes, no, end = b.label("fork"), b.label("call"), b.label("forked")
    b.branch(b.emit(f"icmp ne i64 {child}, 0"), yes, no)
    b.place(yes)
    row, fiber = pointer_of(b, child), pointer_of(b, load_word(b, "%recorder", FIBER))
    store_word(b, "%recorder", FREE_FIBER, load_word(b, row, NEXT_FREE))
    behind = b.emit(f"add i64 {child}, {8 * FIBER_WORDS}")
    used = load_word(b, "%recorder", FIBERS_END)
    furthest = b.call("llvm.umax.i64", "i64", [("i64", behind), ("i64", used)])
    store_word(b, "%recorder", FIBERS_END, furthest)
    store_word(b, row, FUNCTION, b.emit(f"ptrtoint ptr @{function} to i64"))
    store_word(b, row, ARGS, b.emit(f"ptrtoint ptr {args} to i64"))
    store_word(b, row, NUMBER, load_word(b, fiber, NUMBER))
    store_word(b, row, PARENT, b.emit(f"ptrtoint ptr {fiber} to i64"))
    store_word(b, row, STATE, str(READY))
    store_word(b, fiber, PENDING, b.emit(f"add i64 {load_word(b, fiber, PENDING)}, 1"))
    b.jump(end)
    b.place(no)
    b.raw(f"call void @{function}(ptr %recorder, ptr {args})")
    b.jump(end)
    b.place(end)


def join(b: Builder) -> None:
    """Emit a wait for the fibers that the running one began."""
    fiber = pointer_of(b, load_word(b, "%recorder", FIBER))
    with b.when(b.emit(f"icmp ne i64 {load_word(b, fiber, PENDING)}, 0")):
        wait(b, JOINING, "0")


def failed_before(b: Builder, instance: str) -> str:
    """Emit a test for instances that failed: a bit."""
    failures = pointer_of(b, load_word(b, "%recorder", FAILURES))
    place = b.emit(f"getelementptr inbounds i64, ptr {failures}, i64 {instance}")
    return b.emit(f"icmp ne i64 {load_word(b, place, 0)}, 0")


def note_failure(b: Builder) -> str:
    """Emit a note of what failed, if something did, at the instance that was recorded, so that the
    others go on. Returns a bit that says that room is lacking: recording has to end."""
    failed = load_word(b, "%recorder", FAILED)
    no_room = b.emit(f"icmp eq i64 {failed}, {NO_ROOM}")
    with b.when(b.emit(f"icmp ne i64 {failed}, 0")):
        failures = pointer_of(b, load_word(b, "%recorder", FAILURES))
        instance = load_word(b, "%recorder", INSTANCE)
        place = b.emit(f"getelementptr inbounds i64, ptr {failures}, i64 {instance}")
        store_word(b, place, 0, failed)
        kept = b.emit(f"select i1 {no_room}, i64 {NO_ROOM}, i64 0")
        store_word(b, "%recorder", FAILED, kept)
    return no_room


def fiber_body(declarations: dict[str, str]) -> str:
    """The function `BODY`."""
    b = Builder(declarations)
    b.jump("begin")
    b.place("begin")
    fiber = pointer_of(b, load_word(b, "%recorder", FIBER))
    function, args = (pointer_of(b, load_word(b, fiber, word)) for word in (FUNCTION, ARGS))
    b.raw(f"call void {function}(ptr %recorder, ptr {args})")
    store_word(b, fiber, STATE, str(DONE))
    parent = load_word(b, fiber, PARENT)
    with b.when(b.emit(f"icmp ne i64 {parent}, 0")):
        store_word(b, fiber, NEXT_FREE, load_word(b, "%recorder", FREE_FIBER))
        store_word(b, "%recorder", FREE_FIBER, b.emit(f"ptrtoint ptr {fiber} to i64"))
        row = pointer_of(b, parent)
        left = b.emit(f"sub i64 {load_word(b, row, PENDING)}, 1")
        store_word(b, row, PENDING, left)
        joins = b.emit(f"icmp eq i64 {load_word(b, row, STATE)}, {JOINING}")
        last = b.emit(f"icmp eq i64 {left}, 0")
        with b.when(b.emit(f"and i1 {joins}, {last}")):
            store_word(b, row, STATE, str(READY))
    _switch(b, load_word(b, fiber, CONTEXT), load_word(b, fiber, CALLER))
    b.jump("begin")
    return _text(f"void @{BODY}(ptr %recorder)", b)


def instance_body(record: Callable[[Builder, str, str], None], declarations: dict[str, str]) -> str:
    """The function `INSTANCE_BODY`; `record` emits the recording of an instance, given where its
    words and those of its results are."""
    b = Builder(declarations)
    record(b, pointer_of(b, load_word(b, "%args", 0)), pointer_of(b, load_word(b, "%args", 1)))
    b.raw("ret void")
    return _text(f"void @{INSTANCE_BODY}(ptr %recorder, ptr %args)", b)


def resume_fibers(declarations: dict[str, str]) -> str:
    """The function `RESUME`."""
    b = Builder(declarations)
    b.jump("pass")
    b.place("pass")
    b.jump("head")
    b.place("head")
    b.raw("%i = phi i64 [ 0, %pass ], [ %next, %after ]")
    b.raw("%resumed = phi i1 [ false, %pass ], [ %any, %after ]")
    row = b.emit(f"mul i64 %i, {FIBER_WORDS}")
    fiber = b.emit(f"getelementptr inbounds i64, ptr %fibers, i64 {row}")
    place = b.emit(f"ptrtoint ptr {fiber} to i64")
    used = b.emit(f"icmp ult i64 {place}, {load_word(b, '%recorder', FIBERS_END)}")
    b.branch(used, "body", "passed")
    b.place("body")
    b.branch(b.emit(f"icmp eq i64 {load_word(b, fiber, STATE)}, {READY}"), "ready", "after")
    b.place("ready")
    b.branch(failed_before(b, load_word(b, fiber, NUMBER)), "end", "resume")
    b.place("end")  # also what joins a fiber that failed
    store_word(b, fiber, STATE, str(DONE))
    b.jump("after")
    b.place("resume")
    store_word(b, "%recorder", FIBER, place)
    store_word(b, "%recorder", INSTANCE, load_word(b, fiber, NUMBER))
    store_word(b, "%recorder", STACK_END, load_word(b, fiber, FIBER_STACK_END))
    _switch(b, load_word(b, fiber, CALLER), load_word(b, fiber, CONTEXT))
    b.branch(note_failure(b), "done", "ran")
    b.place("ran")
    b.jump("after")
    b.place("after")
    b.raw("%any = phi i1 [ %resumed, %body ], [ %resumed, %end ], [ true, %ran ]")
    b.raw("%next = add i64 %i, 1")
    b.jump("head")
    b.place("passed")  # what was resumed may have made others ready
    b.branch("%resumed", "pass", "done")
    b.place("done")
    b.raw("ret void")
    return _text(f"void @{RESUME}(ptr %recorder, ptr %fibers)", b)


def _text(head: str, b: Builder) -> str:
    return f"define {head} #0 {{\nentry:\n" + "\n".join([*b.allocas, *b.lines]) + "\n}"


def _switch(b: Builder, leave: str, enter: str) -> None:
    """Save the running context at an address, and go on in the one at another."""
    pair = [("ptr", pointer_of(b, leave)), ("ptr", pointer_of(b, enter))]
    b.call(SWITCH, "void", [("ptr", "%recorder"), *pair])
