"""Native code for recording: the functions of a recording program in LLVM.

A *recorder* is the memory that all of it shares, in words: the next slot, what failed, the end of
the stack, the number of the instance that failed, where the next value of a data type goes and
where the room for them ends, and per block (and last, for the rows of input arrays) a log: its
address, how many notes were taken, and how many it has room for. A note that finds no room is
counted and not written; the caller makes room and records again, for recording changes nothing
else: notes that are remembered (see `memo`) are forgotten when it begins. Depths are words, too:
the phase is in their upper half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.access import Memory
from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.builder import Builder, Value, int_value, llvm_type
from relaxlab.codegen.llvm.expressions import Scope, emit_expr
from relaxlab.codegen.llvm.fibers import (
    AT_PHASE,
    WAITING,
    failed_before,
    fiber_body,
    fork,
    instance_body,
    join,
    note_failure,
    resume_fibers,
    switch,
    wait,
)
from relaxlab.codegen.llvm.flushing import flushing_texts
from relaxlab.codegen.llvm.memo import (
    find_note,
    forget_notes,
    found_slot,
    keep_note,
    memo_places,
)
from relaxlab.codegen.llvm.memory_words import load_word, store_word
from relaxlab.codegen.llvm.recorder_words import (
    FAILED,
    FIRST_MESSAGE,
    HEAP_END,
    HEAP_NEXT,
    INSTANCE,
    LOG_ADDRESS,
    LOG_COUNT,
    LOG_ROOM,
    LOG_WORDS,
    LOGS,
    NEXT_SLOT,
    NO_ROOM,
    NOTE_OPERANDS,
    PHASE_BITS,
    STACK_END,
    TOO_DEEP,
)
from relaxlab.codegen.llvm.starting import starting_texts
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.target import Target

ENTRY = "relaxlab_record"
"""The function `(recorder, inputs, instances, results)` that records a batch."""
STACK_BYTES = 4 << 20
"""Stack that recursion may take: half of what the main thread and those of Python have."""


def note_words(block: rec.BatchBlock) -> int:
    """Words of a note on a block."""
    return NOTE_OPERANDS + len(block.inputs) + len(block.scalars)


def recording_code(program: rec.RecordingProgram, target: Target) -> tuple[bytes, tuple[str, ...]]:
    """Machine code of a recording program, and the messages of its failures."""
    declarations: dict[str, str] = {}
    messages: list[str] = []
    memo, _ = memo_places(program)
    texts = [
        _Emitter(program, f, declarations, messages, memo).function()
        for f in program.functions.values()
    ]
    texts += [_batch_entry(program, declarations)]
    texts += [*flushing_texts(declarations), *starting_texts(declarations)]
    if program.waits:
        texts += [fiber_body(declarations), instance_body(_record_one(program), declarations)]
        texts += [resume_fibers(declarations), switch(target)]
        texts += [_forked(program.functions[n]) for n in sorted(program.waiting)]
    code, _ = jit.compile_object(jit.module_text(texts, declarations, target), target)
    return code, tuple(messages)


def _symbol(name: str) -> str:
    return f'"record.{name}"'


def _result_type(function: rec.RecordingFunction) -> str:
    types = ("i64", *(llvm_type(r.dtype) for r in function.results))
    return f"{{ {', '.join(types)} }}"


@dataclass(slots=True)
class _Emitter:
    """Emits one function. `depth` is the SSA name of the counter at this point; `memo` has the
    first word of the entries of each block whose notes are remembered."""

    program: rec.RecordingProgram
    of: rec.RecordingFunction
    declarations: dict[str, str]
    messages: list[str]
    memo: Mapping[int, int]
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
        return load_word(self.b, base, number)

    def set_word(self, number: int, value: str, base: str = "%recorder") -> None:
        store_word(self.b, base, number, value)

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
            case rec.InputRow(slot, array, index):
                values[slot] = self.row(self.word(rec.RECORD_SLOT, self.record(array)), index)
            case rec.SharedRow(slot, shared, index):
                values[slot] = self.row(str(shared), index)
            case rec.Construct():
                self.construct(step)
            case rec.ReadWord(var, value, word):
                base = self.b.emit(f"inttoptr i64 {self.wide(value)} to ptr")
                values[var] = self.narrow(self.word(word, base), var.dtype)
            case rec.ReadTensor(var, slot):
                address = wait(self.b, WAITING, self.wide(slot))
                self.return_if_failed()
                values[var] = self.loaded(address, var.dtype)
                self.depth = self.first_of_phase()
            case rec.Record():
                self.note(step)
            case rec.Call():
                self.call(step)
            case rec.Branch():
                self.branch(step)
            case rec.Together(members):
                self.together(members)
            case rec.Skip(count):
                self.depth = self.b.emit(f"add i64 {self.depth}, {count}")
            case rec.Phase():
                if self.program.waits:
                    wait(self.b, AT_PHASE, "0")
                    self.return_if_failed()
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

    def row(self, array: str, index: expr.PrimExpr) -> Value:
        """A new slot for a row of the array in a slot."""
        slot = self.take_slots(1)
        self.logged(len(self.program.blocks), [slot, array, self.wide(index)])
        return Value("int64", slot)

    def loaded(self, address: str, dtype: str) -> Value:
        """The element at an address."""
        pointer = self.b.emit(f"inttoptr i64 {address} to ptr")
        if dtype == "bool":  # a byte in memory
            byte = self.b.emit(f"load i8, ptr {pointer}, align 1")
            return Value(dtype, self.b.emit(f"icmp ne i8 {byte}, 0"))
        return Value(dtype, self.b.emit(f"load {llvm_type(dtype)}, ptr {pointer}"))

    def first_of_phase(self) -> str:
        """The depth at which counting begins again: all that was noted before has run."""
        phase = self.b.emit(f"and i64 {self.depth}, {-1 << PHASE_BITS}")
        return self.b.emit(f"or i64 {phase}, {self.program.first_depth}")

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
        first = (self.remembered if step.memoized else self.noted)(step, operands)
        for i, var in enumerate(step.outputs):
            number = self.b.emit(f"add i64 {first}, {i}") if i else first
            self.scope.values[var] = Value("int64", number)

    def noted(self, step: rec.Record, operands: Sequence[str]) -> str:
        """The slot of the first output of a new note."""
        first = self.take_slots(len(step.outputs))
        depth = self.depth if step.static_depth is None else str(step.static_depth)
        self.logged(step.block, [depth, first, self.word(INSTANCE), *operands])
        if step.static_depth is None:
            self.depth = self.b.emit(f"add i64 {self.depth}, 1")
        return first

    def remembered(self, step: rec.Record, operands: Sequence[str]) -> str:
        """The slot of the first output of the batch's note on these operands, or of a new one."""
        b = self.b
        entry, known = find_note(b, self.memo[step.block], operands)
        yes, no, end = b.label("known"), b.label("new"), b.label("end")
        b.branch(known, yes, no)
        b.place(yes)
        found = found_slot(b, entry, operands)
        b.jump(end)
        b.place(no)
        made = self.noted(step, operands)
        keep_note(b, entry, operands, made)
        last = b.block
        b.jump(end)
        b.place(end)
        return b.emit(f"phi i64 [ {found}, %{yes} ], [ {made}, %{last} ]")

    def call(self, step: rec.Call) -> None:
        callee = self.program.functions[step.function]
        args = ["ptr %recorder", f"i64 {self.depth}"]
        for e in step.args:
            value = self.scalar(e)
            args.append(f"{value.ty} {value.text}")
        ty = _result_type(callee)
        made = self.b.emit(f"call {ty} @{_symbol(step.function)}({', '.join(args)})")
        self.depth = self.b.emit(f"extractvalue {ty} {made}, 0")
        if self.program.data:
            self.return_if_failed()  # the result of a function that failed is no address
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
        waiting = [
            m for m in members if isinstance(m, rec.Call) and m.function in self.program.waiting
        ]
        forked = waiting[:-1]  # the last of them runs here, while the others wait
        start = deepest = self.depth
        frames = [(m, self.forked(m)) for m in forked]
        for member in (m for m in members if m not in forked):
            self.depth = start
            self.step(member)
            deepest = self.deeper(deepest, self.depth)
        if frames:
            join(self.b)
            self.return_if_failed()
        for member, frame in frames:
            deepest = self.deeper(deepest, self.word(0, frame))
            for i, var in enumerate(member.results):
                self.scope.values[var] = self.narrow(self.word(i + 1, frame), var.dtype)
        self.depth = deepest

    def deeper(self, a: str, b: str) -> str:
        return self.b.call("llvm.smax.i64", "i64", [("i64", a), ("i64", b)])

    def forked(self, step: rec.Call) -> str:
        """Start a call in a fiber of its own. Returns the address of the words in which it finds
        the depth and its arguments, and leaves the depth and its results."""
        words = [self.depth, *map(self.wide, step.args)]
        frame = self.b.alloca(max(len(words), len(step.results) + 1), "i64")
        for i, word in enumerate(words):
            self.set_word(i, word, frame)
        fork(self.b, _fork_symbol(step.function), frame)
        return frame


def _fork_symbol(name: str) -> str:
    return f'"fork.{name}"'


def _forked(of: rec.RecordingFunction) -> str:
    """The function `(recorder, words)` that calls a function for a fiber."""
    b, ty = Builder({}), _result_type(of)

    def place(number: int) -> str:
        return b.emit(f"getelementptr inbounds i64, ptr %words, i64 {number}")

    args = ["ptr %recorder"]
    for i, dtype in enumerate(("int64", *(p.dtype for p in of.params))):
        word = Value("int64", b.emit(f"load i64, ptr {place(i)}, align 8"))
        text = b.materialise(cast(b, word, dtype))
        args.append(f"{llvm_type(dtype)} {text}")
    made = b.emit(f"call {ty} @{_symbol(of.name)}({', '.join(args)})")
    for i, dtype in enumerate(("int64", *(r.dtype for r in of.results))):
        value = Value(dtype, b.emit(f"extractvalue {ty} {made}, {i}"))
        b.raw(f"store i64 {cast(b, value, 'int64').text}, ptr {place(i)}, align 8")
    b.raw("ret void")
    head = f"define internal void @{_fork_symbol(of.name)}(ptr %recorder, ptr %words) #0"
    return f"{head} {{\nentry:\n" + "\n".join([*b.allocas, *b.lines]) + "\n}"


def _record_one(program: rec.RecordingProgram) -> Callable[[Builder, str, str], None]:
    """A function that emits the recording of one instance, given the addresses of its words and of
    those for its results."""
    entry = program.functions[program.entry]
    ty = _result_type(entry)

    def emit(b: Builder, given: str, out: str) -> None:
        args = ["ptr %recorder", f"i64 {program.first_depth}"]
        for k, p in enumerate(entry.params):
            place = b.emit(f"getelementptr inbounds i64, ptr {given}, i64 {k}")
            word = b.emit(f"load i64, ptr {place}, align 8")
            text = cast(b, Value("int64", word), p.dtype).text
            args.append(f"{llvm_type(p.dtype)} {text}")
        made = b.emit(f"call {ty} @{_symbol(entry.name)}({', '.join(args)})")
        for k, r in enumerate(entry.results):
            value = Value(r.dtype, b.emit(f"extractvalue {ty} {made}, {k + 1}"))
            place = b.emit(f"getelementptr inbounds i64, ptr {out}, i64 {k}")
            b.raw(f"store i64 {cast(b, value, 'int64').text}, ptr {place}, align 8")

    return emit


def _batch_entry(program: rec.RecordingProgram, declarations: dict[str, str]) -> str:
    """The function that records one instance after the other, those that failed before left out.
    It ends early where room is lacking."""
    entry = program.functions[program.entry]
    b = Builder(declarations)

    def at(base: str, index: str) -> str:
        return b.emit(f"getelementptr inbounds i64, ptr {base}, i64 {index}")

    frame = b.call("llvm.frameaddress.p0", "ptr", [("i32", "0")])
    here = b.emit(f"ptrtoint ptr {frame} to i64")
    end = b.emit(f"sub i64 {here}, {STACK_BYTES}")
    store_word(b, "%recorder", STACK_END, end)
    forget_notes(b, "true")
    b.jump("head")
    b.place("head")
    b.raw("%i = phi i64 [ 0, %entry ], [ %next, %stored ]")
    b.branch(b.emit("icmp slt i64 %i, %instances"), "body", "done")
    b.place("body")
    b.branch(failed_before(b, "%i"), "stored", "record")
    b.place("record")
    store_word(b, "%recorder", INSTANCE, "%i")
    given = at("%inputs", b.emit(f"mul i64 %i, {len(entry.params)}"))
    out = at("%results", b.emit(f"mul i64 %i, {len(entry.results)}"))
    _record_one(program)(b, given, out)
    failed = load_word(b, "%recorder", FAILED)
    # The notes of a failed instance do not run: others must not refer to them.
    forget_notes(b, b.emit(f"icmp ne i64 {failed}, 0"))
    b.branch(note_failure(b), "done", "recorded")
    b.place("recorded")
    b.jump("stored")
    b.place("stored")
    b.raw("%next = add i64 %i, 1")
    b.jump("head")
    b.place("done")
    b.raw("ret void")
    head = f"define void @{ENTRY}(ptr %recorder, ptr %inputs, i64 %instances, ptr %results) #0"
    return f"{head} {{\nentry:\n" + "\n".join([*b.allocas, *b.lines]) + "\n}"
