"""Native code for recording: the functions of a recording program in LLVM.

A *recorder* is the memory that all of it shares, in words: the next slot, what failed, the end of
the stack, the number of the instance that failed, where the next value of a data type goes and
where the room for them ends, and per block (and last, for the rows of input arrays) a log: its
address, how many notes were taken, and how many it has room for. A note that finds no room is
counted and not written; the caller makes room and records again, for recording changes nothing
else. Depths are words, too: the phase is in their upper half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.access import Memory
from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.builder import Builder, Value, int_value, llvm_type
from relaxlab.codegen.llvm.expressions import Scope, emit_expr
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.target import Target

NEXT_SLOT, FAILED, STACK_END, INSTANCE, HEAP_NEXT, HEAP_END, LOGS = range(7)
"""Words of a recorder; the logs begin at `LOGS`."""
LOG_ADDRESS, LOG_COUNT, LOG_ROOM, LOG_WORDS = 0, 1, 2, 3
"""Words of a log, and how many there are."""
NOTE_DEPTH, NOTE_SLOT, NOTE_OPERANDS = 0, 1, 2
"""Words of a note on a block: its depth, the slot of its first output, then the slots of its inputs
and its scalars."""
ROW_SLOT, ROW_OF, ROW_INDEX, ROW_WORDS = 0, 1, 2, 3
"""Words of a note on a row of an input array: its slot, the array's, and the row's number."""

ENTRY = "relaxlab_record"
"""The function `(recorder, inputs, instances, results)` that records a batch."""
RUN = "relaxlab_run_batches"
"""The function `(calls, count, threads)` that runs batches one after the other, until one fails: it
returns 0, or what failed with the number of the call in the upper half."""
CALL_ENTRY, CALL_CONTEXT, CALL_TARGET, CALL_SOURCE, CALL_BYTES, CALL_WORDS = range(6)
"""Words of a call: the function's address and context, where it reads its arguments, where they are
now, and how many bytes they take; and how many words there are."""
PHASE_BITS = 32
"""Bits of a depth below those that count phases."""
STACK_BYTES = 4 << 20
"""Stack that recursion may take: half of what the main thread and those of Python have."""
TOO_DEEP, NO_ROOM, FIRST_MESSAGE = 1, 2, 3
"""Failures: a recursion that took more stack; values of data types that found no room, for which
the caller makes some. Others are numbers from `FIRST_MESSAGE` on: see `messages`."""


def note_words(block: rec.BatchBlock) -> int:
    """Words of a note on a block."""
    return NOTE_OPERANDS + len(block.inputs) + len(block.scalars)


def recording_code(program: rec.RecordingProgram, target: Target) -> tuple[bytes, tuple[str, ...]]:
    """Machine code of a recording program, and the messages of its failures."""
    declarations: dict[str, str] = {}
    messages: list[str] = []
    texts = [
        _Emitter(program, f, declarations, messages).function() for f in program.functions.values()
    ]
    texts += [_batch_entry(program, declarations), _run_batches(declarations)]
    code, _ = jit.compile_object(jit.module_text(texts, declarations, target), target)
    return code, tuple(messages)


def _symbol(name: str) -> str:
    return f'"record.{name}"'


def _result_type(function: rec.RecordingFunction) -> str:
    types = ("i64", *(llvm_type(r.dtype) for r in function.results))
    return f"{{ {', '.join(types)} }}"


@dataclass(slots=True)
class _Emitter:
    """Emits one function. `depth` is the SSA name of the counter at this point."""

    program: rec.RecordingProgram
    of: rec.RecordingFunction
    declarations: dict[str, str]
    messages: list[str]
    depth: str = "%depth"
    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        self.scope = Scope(Builder(self.declarations), self.of.name, self.fail_when)

    @property
    def b(self) -> Builder:
        return self.scope.builder

    def function(self) -> str:
        params = ["ptr %recorder", "i64 %depth"]
        for i, p in enumerate(self.of.params):
            params.append(f"{llvm_type(p.dtype)} %arg{i}")
            self.scope.values[p] = Value(p.dtype, f"%arg{i}")
        self.guard()
        for array in self.of.arrays:
            self.declare(array)
        self.steps(self.of.steps)
        results = [self.scalar(r) for r in self.of.results]
        packed = self.packed([Value("int64", self.depth), *results])
        self.b.raw(f"ret {_result_type(self.of)} {packed}")
        head = f"define internal {_result_type(self.of)} @{_symbol(self.of.name)}"
        lines = [*self.b.allocas, *self.b.lines]
        return f"{head}({', '.join(params)}) #0 {{\nentry:\n" + "\n".join(lines) + "\n}"

    def guard(self) -> None:
        """Return at once where something failed, or where the stack ends."""
        b = self.b
        frame = b.call("llvm.frameaddress.p0", "ptr", [("i32", "0")])
        here = b.emit(f"ptrtoint ptr {frame} to i64")
        deep = b.emit(f"icmp ult i64 {here}, {self.word(STACK_END)}")
        with b.when(deep):
            self.set_word(FAILED, str(TOO_DEEP))
        self.return_if_failed()

    def return_if_failed(self) -> None:
        b = self.b
        failed = b.emit(f"icmp ne i64 {self.word(FAILED)}, 0")
        stop, go = b.label("stop"), b.label("go")
        b.branch(failed, stop, go)
        b.place(stop)
        b.raw(f"ret {_result_type(self.of)} zeroinitializer")
        b.place(go)

    # -- words -------------------------------------------------------------------------------------

    def word(self, number: int, base: str = "%recorder") -> str:
        pointer = self.b.emit(f"getelementptr inbounds i64, ptr {base}, i64 {number}")
        return self.b.emit(f"load i64, ptr {pointer}, align 8")

    def set_word(self, number: int, value: str, base: str = "%recorder") -> None:
        pointer = self.b.emit(f"getelementptr inbounds i64, ptr {base}, i64 {number}")
        self.b.raw(f"store i64 {value}, ptr {pointer}, align 8")

    def scalar(self, e: expr.PrimExpr) -> Value:
        value = emit_expr(self.scope, e)
        self.b.materialise(value)
        return value

    def wide(self, e: expr.PrimExpr) -> str:
        return cast(self.b, self.scalar(e), "int64").text or ""

    def packed(self, values: Sequence[Value]) -> str:
        ty = "{ " + ", ".join(v.ty for v in values) + " }"
        whole = "poison"
        for i, v in enumerate(values):
            whole = self.b.emit(f"insertvalue {ty} {whole}, {v.ty} {v.text}, {i}")
        return whole

    def declare(self, array: rec.InputArray) -> None:
        """The memory of an input array, and its dimensions where symbols stand for them."""
        record = self.record(array)
        dims: list[Value] = []
        for i, d in enumerate(array.buffer.shape):
            if isinstance(d, expr.Var) and d not in self.scope.values:
                size = self.word(rec.RECORD_DIMS + i, record)
                self.scope.values[d] = Value("int64", size, nonneg=True)
            dims.append(self.scalar(d))
        strides = [int_value(1)]
        for d in reversed(dims[1:]):
            strides.append(binary(self.b, expr.Mul, strides[-1], d))
        address = self.b.emit(f"inttoptr i64 {self.word(rec.RECORD_DATA, record)} to ptr")
        steps = tuple(reversed(strides)) if dims else ()
        self.scope.memory[array.buffer] = Memory(address, array.buffer.dtype, steps, 1)

    def record(self, array: rec.InputArray) -> str:
        word = self.scope.values[array.record].text
        return self.b.emit(f"inttoptr i64 {word} to ptr")

    # -- steps -------------------------------------------------------------------------------------

    def steps(self, steps: Sequence[rec.Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: rec.Step) -> None:
        values = self.scope.values
        match step:
            case rec.Compute(var, value):
                values[var] = self.scalar(value)
            case rec.Require(condition, message):
                self.require(condition, message)
            case rec.WholeInput(slot, array):
                values[slot] = Value("int64", self.word(rec.RECORD_SLOT, self.record(array)))
            case rec.InputRow():
                self.row(step)
            case rec.Construct():
                self.construct(step)
            case rec.ReadWord(var, value, word):
                base = self.b.emit(f"inttoptr i64 {self.wide(value)} to ptr")
                values[var] = self.narrow(self.word(word, base), var.dtype)
            case rec.Record():
                self.note(step)
            case rec.Call():
                self.call(step)
            case rec.Branch():
                self.branch(step)
            case rec.Together(members):
                self.together(members)
            case rec.Phase():
                ended = self.b.emit(f"or i64 {self.depth}, {(1 << PHASE_BITS) - 1}")
                self.depth = self.b.emit(f"add i64 {ended}, 1")

    def fail_when(self, failed: str, message: str, _numbers: object = None) -> int:
        """Note a failure where a bit is set; recording ends at the next call."""
        if message not in self.messages:
            self.messages.append(message)
        number = FIRST_MESSAGE + self.messages.index(message)
        with self.b.when(failed):
            self.set_word(FAILED, str(number))
        return number

    def require(self, condition: expr.PrimExpr, message: str) -> None:
        holds = self.scalar(condition)
        self.fail_when(self.b.emit(f"xor i1 {holds.text}, true"), message)
        self.return_if_failed()  # what follows may rely on it

    def logged(self, number: int, words: Sequence[str]) -> None:
        """Write a note into a log, if there is room."""
        b, at = self.b, LOGS + number * LOG_WORDS
        count = self.word(at + LOG_COUNT)
        self.set_word(at + LOG_COUNT, b.emit(f"add i64 {count}, 1"))
        fits = b.emit(f"icmp ult i64 {count}, {self.word(at + LOG_ROOM)}")
        with b.when(fits):
            base = b.emit(f"inttoptr i64 {self.word(at + LOG_ADDRESS)} to ptr")
            first = b.emit(f"mul i64 {count}, {len(words)}")
            note = b.emit(f"getelementptr inbounds i64, ptr {base}, i64 {first}")
            for i, word in enumerate(words):
                self.set_word(i, word, note)

    def take_slots(self, count: int) -> str:
        first = self.word(NEXT_SLOT)
        self.set_word(NEXT_SLOT, self.b.emit(f"add i64 {first}, {count}"))
        return first

    def row(self, step: rec.InputRow) -> None:
        slot = self.take_slots(1)
        of = self.word(rec.RECORD_SLOT, self.record(step.array))
        self.logged(len(self.program.blocks), [slot, of, self.wide(step.index)])
        self.scope.values[step.slot] = Value("int64", slot)

    def narrow(self, word: str, dtype: str) -> Value:
        value = cast(self.b, Value("int64", word), dtype)
        self.b.materialise(value)
        return value

    def construct(self, step: rec.Construct) -> None:
        """Write a value behind those that there are, if there is room; else recording ends."""
        b, words = self.b, [str(step.tag), *map(self.wide, step.fields)]
        address = self.word(HEAP_NEXT)
        end = b.emit(f"add i64 {address}, {8 * len(words)}")
        with b.when(b.emit(f"icmp ugt i64 {end}, {self.word(HEAP_END)}")):
            self.set_word(FAILED, str(NO_ROOM))
        self.return_if_failed()
        self.set_word(HEAP_NEXT, end)
        base = b.emit(f"inttoptr i64 {address} to ptr")
        for i, word in enumerate(words):
            self.set_word(i, word, base)
        self.scope.values[step.var] = Value("int64", address)

    def note(self, step: rec.Record) -> None:
        operands = [self.wide(e) for e in (*step.inputs, *step.scalars)]
        first = self.take_slots(len(step.outputs))
        for i, var in enumerate(step.outputs):
            number = self.b.emit(f"add i64 {first}, {i}") if i else first
            self.scope.values[var] = Value("int64", number)
        if step.static_depth is not None:
            self.logged(step.block, [str(step.static_depth), first, *operands])
            return
        self.logged(step.block, [self.depth, first, *operands])
        self.depth = self.b.emit(f"add i64 {self.depth}, 1")

    def call(self, step: rec.Call) -> None:
        callee = self.program.functions[step.function]
        args = ["ptr %recorder", f"i64 {self.depth}"]
        for e in step.args:
            value = self.scalar(e)
            args.append(f"{value.ty} {value.text}")
        ty = _result_type(callee)
        made = self.b.emit(f"call {ty} @{_symbol(step.function)}({', '.join(args)})")
        self.depth = self.b.emit(f"extractvalue {ty} {made}, 0")
        for i, var in enumerate(step.results):
            text = self.b.emit(f"extractvalue {ty} {made}, {i + 1}")
            self.scope.values[var] = Value(var.dtype, text)

    def branch(self, step: rec.Branch) -> None:
        b, depth = self.b, self.depth
        yes, no, end = b.label("yes"), b.label("no"), b.label("end")
        b.branch(self.scalar(step.condition).text or "", yes, no)
        arms: list[tuple[str, list[str]]] = []
        for label, steps, values in (
            (yes, step.then_steps, step.then_values),
            (no, step.else_steps, step.else_values),
        ):
            b.place(label)
            self.depth = depth
            self.steps(steps)
            texts = [self.scalar(e).text or "" for e in values]
            arms.append((b.block, [self.depth, *texts]))
            b.jump(end)
        b.place(end)
        merged: list[str] = []
        for i, ty in enumerate(("i64", *(llvm_type(v.dtype) for v in step.results))):
            edges = ", ".join(f"[ {texts[i]}, %{block} ]" for block, texts in arms)
            merged.append(b.emit(f"phi {ty} {edges}"))
        self.depth = merged[0]
        for var, text in zip(step.results, merged[1:], strict=True):
            self.scope.values[var] = Value(var.dtype, text)

    def together(self, members: Sequence[rec.Step]) -> None:
        start = deepest = self.depth
        for member in members:
            self.depth = start
            self.step(member)
            pair = [("i64", deepest), ("i64", self.depth)]
            deepest = self.b.call("llvm.smax.i64", "i64", pair)
        self.depth = deepest


def _batch_entry(program: rec.RecordingProgram, declarations: dict[str, str]) -> str:
    """The function that records one instance after the other, until one fails."""
    entry = program.functions[program.entry]
    b = Builder(declarations)
    ty = _result_type(entry)

    def at(base: str, index: str) -> str:
        return b.emit(f"getelementptr inbounds i64, ptr {base}, i64 {index}")

    frame = b.call("llvm.frameaddress.p0", "ptr", [("i32", "0")])
    here = b.emit(f"ptrtoint ptr {frame} to i64")
    end = b.emit(f"sub i64 {here}, {STACK_BYTES}")
    b.raw(f"store i64 {end}, ptr {at('%recorder', str(STACK_END))}, align 8")
    b.jump("head")
    b.place("head")
    b.raw("%i = phi i64 [ 0, %entry ], [ %next, %stored ]")
    b.branch(b.emit("icmp slt i64 %i, %instances"), "body", "done")
    b.place("body")
    b.raw(f"store i64 %i, ptr {at('%recorder', str(INSTANCE))}, align 8")
    given = at("%inputs", b.emit(f"mul i64 %i, {len(entry.params)}"))
    args = ["ptr %recorder", f"i64 {program.first_depth}"]
    for k, p in enumerate(entry.params):
        word = b.emit(f"load i64, ptr {at(given, str(k))}, align 8")
        text = cast(b, Value("int64", word), p.dtype).text
        args.append(f"{llvm_type(p.dtype)} {text}")
    made = b.emit(f"call {ty} @{_symbol(entry.name)}({', '.join(args)})")
    out = at("%results", b.emit(f"mul i64 %i, {len(entry.results)}"))
    for k, r in enumerate(entry.results):
        value = Value(r.dtype, b.emit(f"extractvalue {ty} {made}, {k + 1}"))
        b.raw(f"store i64 {cast(b, value, 'int64').text}, ptr {at(out, str(k))}, align 8")
    failed = b.emit(f"load i64, ptr {at('%recorder', str(FAILED))}, align 8")
    b.branch(b.emit(f"icmp eq i64 {failed}, 0"), "stored", "done")
    b.place("stored")
    b.raw("%next = add i64 %i, 1")
    b.jump("head")
    b.place("done")
    b.raw("ret void")
    head = f"define void @{ENTRY}(ptr %recorder, ptr %inputs, i64 %instances, ptr %results) #0"
    return f"{head} {{\nentry:\n" + "\n".join([*b.allocas, *b.lines]) + "\n}"


def _run_batches(declarations: dict[str, str]) -> str:
    """The function `RUN`."""
    b = Builder(declarations)
    b.jump("head")
    b.place("head")
    b.raw("%i = phi i64 [ 0, %entry ], [ %next, %ran ]")
    b.branch(b.emit("icmp slt i64 %i, %count"), "body", "done")
    b.place("body")
    row = b.emit(f"mul i64 %i, {CALL_WORDS}")
    call = b.emit(f"getelementptr inbounds i64, ptr %calls, i64 {row}")

    def word(number: int, ty: str = "ptr") -> str:
        pointer = b.emit(f"getelementptr inbounds i64, ptr {call}, i64 {number}")
        return b.emit(f"load {ty}, ptr {pointer}, align 8")

    copied = [("ptr", word(CALL_TARGET)), ("ptr", word(CALL_SOURCE))]
    size = word(CALL_BYTES, "i64")
    b.call("llvm.memcpy.p0.p0.i64", "void", [*copied, ("i64", size), ("i1", "false")])
    function, context = word(CALL_ENTRY), word(CALL_CONTEXT)
    code = b.emit(f"call i64 {function}(ptr {context}, i64 %threads)")
    b.branch(b.emit(f"icmp eq i64 {code}, 0"), "ran", "failed")
    b.place("ran")
    b.raw("%next = add i64 %i, 1")
    b.jump("head")
    b.place("failed")
    place = b.emit("shl i64 %i, 32")
    b.raw(f"ret i64 {b.emit(f'or i64 {place}, {code}')}")
    b.place("done")
    b.raw("ret i64 0")
    head = f"define i64 @{RUN}(ptr %calls, i64 %count, i64 %threads) #0"
    return f"{head} {{\nentry:\n" + "\n".join([*b.allocas, *b.lines]) + "\n}"
