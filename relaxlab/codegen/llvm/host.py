"""Host functions to LLVM: the graph function itself as native code.

A host function runs as a team: every thread walks the instructions and computes the same integers
and addresses, kernels divide their work, and thread 0 alone allocates, calls out and reports. The
caller passes one block of 64-bit words, the *context*; its layout is `CONTEXT`.

Each function is `i64 name(ptr ctx, ptr in, ptr out, ptr caller_stack, i64 thread, i64 threads)`:
values travel as words (a tensor: its address, then its dimensions; a shape: its dimensions; a
scalar: its bits), and the result is 0, or the number of the check that failed. `caller_stack` is
the start of the stack of the functions that call each other, null for the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from relaxlab.codegen.artifact import CheckInfo
from relaxlab.codegen.check_messages import check_info, literal
from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.blas import FUNCTIONS, call_blas
from relaxlab.codegen.llvm.builder import Value, int_value
from relaxlab.codegen.llvm.c_functions import call_c_function
from relaxlab.codegen.llvm.closures import call_closure, function_value, leaf_codes, make_closure
from relaxlab.codegen.llvm.context import BLOCK_HEADER, CONTEXT, TOO_MUCH, symbol_of
from relaxlab.codegen.llvm.data_values import emit_on_data, is_on_data
from relaxlab.codegen.llvm.guards import Guards
from relaxlab.codegen.llvm.host_frame import TEAM_ARGS, HostFrame, Reg, UnsupportedHost, words_of
from relaxlab.codegen.llvm.marks import Marks
from relaxlab.codegen.llvm.team import Team, barrier
from relaxlab.ir import expr, host, types
from relaxlab.ir.c_functions import c_function
from relaxlab.ir.dtypes import is_float, is_int


@dataclass(slots=True, kw_only=True)
class HostEmitter(HostFrame):
    """Emits one host function; `packed` is shared by the program.

    `failures`: the possible failures per kernel. `marks`: the memory for times of calls, `guards`:
    the checks of a debug build; or None.
    """

    program: host.HostProgram
    failures: Mapping[str, tuple[str, ...]]
    packed: list[host.CallPacked]
    first_constant: int
    marks: Marks | None = None
    guards: Guards | None = None

    # -- the function --------------------------------------------------------------------------

    def emit(self) -> str:
        """The LLVM function."""
        if not self.is_entry:
            self.limit_recursion()
        word = 0
        for param in self.function.params:
            word = self.load_value(param.value, "%in", word)
            self.guarded(lambda g, param=param: g.aligned(self, param.value))
        self.instrs(self.function.instrs)
        self.guarded(lambda g: g.aligned(self, self.function.result))
        self.store_value(self.function.result, "%out", 0)
        self.release_storages()
        self.b.raw("ret i64 0")
        lines = ["entry:", *self.b.allocas, *self.b.lines]
        head = f"define i64 @{symbol_of(self.function.name)}"
        params = "ptr %ctx, ptr %in, ptr %out, ptr %caller_stack, i64 %thread, i64 %threads"
        return f"{head}({params}) #0 {{\n" + "\n".join(lines) + "\n}\n"

    def limit_recursion(self) -> None:
        """Stop before the stack overflows. The threads' stacks grow in step, so all stop at the
        same depth: frames with memory aligned to 64 bytes begin at multiples of it."""
        here = self.b.alloca(8, "i64")
        first = self.b.emit("icmp eq ptr %caller_stack, null")
        self.stack = self.b.emit(f"select i1 {first}, ptr {here}, ptr %caller_stack", "p")
        top, bottom = (self.b.emit(f"ptrtoint ptr {p} to i64") for p in (self.stack, here))
        used = self.b.emit(f"sub i64 {top}, {bottom}")
        # Half of what OpenMP gives its threads: kernels need some, too.
        ok = self.b.emit(f"icmp slt i64 {used}, {self.b.target.facts.stack // 2}")
        name = literal(self.function.name)
        text = f"`{name}` is called too deeply: the calls take {{got}} bytes of stack"
        info = CheckInfo(self.function.name, (text,))
        self.fail_unless(ok, info, 0, Value("int64", used), int_value(0))

    def instrs(self, instrs: tuple[host.Instr, ...]) -> None:
        for i in instrs:
            self.instr(i)

    def instr(self, i: host.Instr) -> None:
        match i:
            case host.MatchShape():
                self.match_shape(i)
            case host.ComputeScalar(symbol, value):
                self.scope.values[symbol] = self.scalar(value)
            case host.Require(condition, got, _):
                ok = self.scalar(condition)
                numbers = (0, self.scalar(got), int_value(0))
                self.fail_unless(ok.text or "", check_info(self.function, i), *numbers)
            case host.LoadConst(dst, index):
                data = self.function.constants[index]
                table = self.pointer(self.context("constants"))
                address = self.pointer(self.read(table, self.first_constant + index))
                self.regs[dst] = Reg(address, [int_value(d) for d in data.shape])
            case host.LoadFunction(dst, name):
                self.regs[dst] = Reg(function_value(name))
            case host.MakeClosure(dst):
                self.regs[dst] = Reg(make_closure(self, i))
            case host.MakeShape(dst, dims):
                self.regs[dst] = Reg(dims=[self.scalar(d) for d in dims])
            case host.MakeScalar(dst, value):
                self.regs[dst] = Reg(scalar=self.scalar(value))
            case host.AllocStorage(dst):
                self.regs[dst] = Reg(self.storage(i))
            case host.Alloc(dst, _):
                self.regs[dst] = Reg()
                size = self.bytes(dst)
                self.regs[dst] = Reg(self.allocate(size))
                self.guarded(lambda g: g.allocated(self, dst, size))
            case host.View(dst, base, offset):
                self.view(dst, base, offset)
                self.guarded(lambda g: g.placed(self, i))
            case host.Kill(tensor):
                self.guarded(lambda g: g.dead(self, tensor))
            case host.CallKernel():
                with self.timed(i):
                    self.kernel(i)
                self.guarded(lambda g: g.verify(self, f"the kernel `{i.function}`"))
            case host.CallFunction():
                self.call_function(i)
            case host.CallPacked():
                with self.timed(i):
                    self.call_packed(i)
                self.guarded(lambda g: g.verify(self, f"`{i.function}`"))
            case host.If():
                self.branch(i)
            case _:
                raise UnsupportedHost(f"{type(i).__name__} in `{self.function.name}`")

    def guarded(self, emit: Callable[[Guards], None]) -> None:
        """Emit a check of a debug build."""
        if self.guards is not None:
            emit(self.guards)

    def match_shape(self, i: host.MatchShape) -> None:
        held = self.regs[i.value]
        if i.dims is not None:
            info = check_info(self.function, i)
            dims = [held.scalar] if i.kind == "scalar" else self.dims(i.value)
            for axis, (dim, check) in enumerate(zip(dims, i.dims, strict=True)):
                assert dim is not None
                match check:
                    case host.BindDim(symbol):
                        kind = "int64" if is_int(symbol.dtype) else symbol.dtype
                        bound = cast(self.b, dim, kind)
                        bound.nonneg = bound.nonneg or i.kind != "scalar"
                        self.scope.values[symbol] = bound
                    case host.CheckDim(expr.IntImm() as size) if self.declared(i, axis) == size:
                        pass  # the caller checked constant dimensions of its arguments
                    case host.CheckDim(expected):
                        want, zero = self.scalar(expected), int_value(0)
                        if is_float(expected.dtype):
                            same = binary(self.b, expr.EQ, cast(self.b, dim, expected.dtype), want)
                            self.fail_unless(self.b.materialise(same), info, axis, zero, zero)
                            continue
                        want, got = (cast(self.b, v, "int64") for v in (want, dim))
                        ok = self.b.emit(f"icmp eq i64 {got.text}, {want.text}")
                        self.fail_unless(ok, info, axis, got, want)
                    case None:
                        pass
            if i.kind == "tensor" and held.dims is None:
                # The type of `dst` is a claim, and a later instruction may check the rest of it.
                held = replace(held, dims=[d for d in dims if d is not None])
        self.regs[i.dst] = held

    def declared(self, i: host.MatchShape, axis: int) -> expr.PrimExpr | None:
        """The dimension that an entry's signature declares, where a parameter is checked."""
        ty = self.given.get(i.value)
        if isinstance(ty, types.TensorType) and ty.shape is not None and axis < len(ty.shape):
            return ty.shape[axis]
        return None

    def storage(self, i: host.AllocStorage) -> str:
        """Planned memory; where each thread has its own, this thread's part of it."""
        size = self.storage_bytes(i.size)
        if self.guards is not None:
            self.guards.storages[i.dst] = size, i.per_thread
        if not i.per_thread:
            return self.planned(i, size)
        # Threads that write keep off each other's cache lines and the ones prefetched with them.
        padded = self.b.emit(f"add i64 {size}, {2 * BLOCK_HEADER}")
        whole, overflow = self.checked_product(
            Value("int64", padded), Value("int64", "%threads", nonneg=True)
        )
        total = self.b.emit(f"select i1 {overflow.text}, i64 {TOO_MUCH}, i64 {whole.text}")
        start = self.planned(i, total)
        offset = self.b.emit(f"mul i64 {padded}, %thread")
        return self.b.emit(f"getelementptr inbounds i8, ptr {start}, i64 {offset}", "p")

    def planned(self, i: host.AllocStorage, size: str) -> str:
        """Planned memory; in a debug build between zones."""
        return self.kept(i, size) if self.guards is None else self.guards.storage(self, i, size)

    def view(self, dst: int, base: int, offset: expr.PrimExpr) -> None:
        address = self.regs[base].address
        by = self.scalar(offset)
        if by.const != 0:
            address = self.b.emit(f"getelementptr inbounds i8, ptr {address}, i64 {by.text}", "p")
        self.regs[dst] = Reg(address)

    @contextmanager
    def timed(self, i: host.CallKernel | host.CallPacked) -> Generator[None]:
        """Emit marks before and after the code emitted inside, in a timed program."""
        if self.marks is None:
            yield
            return
        number = 2 * self.marks.number(self.function.name, i)
        thread = ("i64", "%thread")
        self.b.call("relaxlab_mark", "void", [("i64", str(number)), thread])
        yield
        self.b.call("relaxlab_mark", "void", [("i64", str(number + 1)), thread])

    def kernel(self, i: host.CallKernel) -> None:
        function = i.function
        args = [("ptr", self.regs[r].address) for r in i.buffers]
        values = [self.scalar(e) for e in i.scalars]
        args += [(v.ty, v.text or "") for v in values]
        # Each thread runs the whole kernel as a team of one: cheaper than a barrier for work of a
        # few hundred nanoseconds (NOTES, *Barriers*).
        args += [("i64", "0"), ("i64", "1")] if i.alone else TEAM_ARGS
        failures = self.failures[function]
        if not failures:
            self.b.call(symbol_of(function), "void", args)
            return
        at = CONTEXT.index("kernel_failed")
        slot = self.b.emit(f"getelementptr inbounds i64, ptr %ctx, i64 {at}", "p")
        code = self.b.call(symbol_of(function), "i64", [*args, ("ptr", slot)])
        messages = (f"{m} in `{literal(function)}`" for m in failures)
        info = CheckInfo(self.function.name, ("", *messages))
        ok = self.b.emit(f"icmp eq i64 {code}, 0")
        got, expected = (Value("int64", self.context(word)) for word in ("got", "expected"))
        self.fail_unless(ok, info, code, got, expected)

    def call_function(self, i: host.CallFunction) -> None:
        if not isinstance(i.function, str):
            call_closure(self, i)
            return
        callee = self.program.functions[i.function]
        self.require_same(i.args, callee, [p.value for p in callee.params])
        self.require_same([i.dst], callee, [callee.result])
        count_in = sum(words_of(self.function.registers[r]) for a in i.args for r in host.leaves(a))
        count_out = sum(words_of(callee.registers[r]) for r in host.leaves(callee.result))
        given, returned = (
            self.b.alloca(max(1, count_in), "i64"),
            self.b.alloca(max(1, count_out), "i64"),
        )
        word = 0
        for arg in i.args:
            word = self.store_value(arg, given, word)
        args = [("ptr", "%ctx"), ("ptr", given), ("ptr", returned), ("ptr", self.stack)]
        code = self.b.call(symbol_of(callee.name), "i64", [*args, *TEAM_ARGS])
        self.return_failure(code)
        self.load_value(i.dst, returned, 0)

    def require_same(
        self, mine: Iterable[host.Value], other: host.HostFunction, theirs: Iterable[host.Value]
    ) -> None:
        """Raise UnsupportedHost if values are laid out in words differently on the two sides of a
        call or a branch."""
        if leaf_codes(self.function, mine) != leaf_codes(other, theirs):
            raise UnsupportedHost(
                f"`{self.function.name}` and `{other.name}` know different ranks or kinds of a "
                "value that one gets from the other"
            )

    def call_packed(self, i: host.CallPacked) -> None:
        """Thread 0 calls back into Python with the arguments as words; functions of C libraries
        are called directly."""
        if i.function in FUNCTIONS:
            call_blas(self, i)
            return
        if is_on_data(i):
            emit_on_data(self, i)
            return
        row = c_function(i.function)
        if row is not None:
            call_c_function(self, i, row)
            return
        leaves = [r for a in i.args if isinstance(a, int | tuple) for r in host.leaves(a)]
        scalars = [a for a in i.args if isinstance(a, expr.PrimExpr)]
        out = [] if i.dst is None else list(host.leaves(i.dst))
        for ty in map(self.type_of, (*leaves, *out)):
            if isinstance(ty, types.FuncType | types.ObjectType) or (
                isinstance(ty, types.TensorType) and ty.dtype is None
            ):
                text = f"`{i.function}`, called in `{self.function.name}`, takes or returns {ty}"
                raise UnsupportedHost(text)
        count = sum(words_of(self.function.registers[r]) for r in (*leaves, *out)) + len(scalars)
        table = self.b.alloca(max(1, count), "i64")
        number = len(self.packed)
        self.packed.append(i)
        word = 0
        for arg in i.args:
            if isinstance(arg, expr.PrimExpr):
                self.write(table, word, self.pack_scalar(self.scalar(arg)))
                word += 1
            elif not isinstance(arg, str):
                word = self.store_value(arg, table, word)

        def call() -> str:
            callback = self.pointer(self.context("callback"))
            name = self.b.emit(f"call i64 {callback}(i64 {number}, ptr {table})")
            with self.b.when(self.b.emit(f"icmp eq i64 {name}, 0")):
                self.set_context("packed", table, "ptr")
            return name

        code = self.published(call)
        ok = self.b.emit(f"icmp eq i64 {code}, 0")
        info = CheckInfo(self.function.name, ("",), packed=i.function)
        self.fail_unless(ok, info, 0, int_value(0), int_value(0))
        if i.dst is not None:
            shared = self.pointer(self.context("packed"))
            self.load_value(i.dst, shared, word)
            barrier(self.scope, Team())

    def branch(self, i: host.If) -> None:
        b = self.b
        condition = self.regs[i.condition]
        if condition.scalar is not None:
            test = b.materialise(condition.scalar)
        else:
            byte = b.emit(f"load i8, ptr {condition.address}, align 1")
            test = b.emit(f"icmp ne i8 {byte}, 0")
        barrier(self.scope, Team())
        leaves = list(host.leaves(i.dst))
        count = sum(words_of(self.function.registers[r]) for r in leaves)
        merged = b.alloca(max(1, count), "i64")
        yes, no, done = b.label("then"), b.label("else"), b.label("endif")
        b.branch(test, yes, no)
        for label, instrs, value in (
            (yes, i.then_instrs, i.then_value),
            (no, i.else_instrs, i.else_value),
        ):
            b.place(label)
            # Symbols that one branch binds are unknown in the other and after both.
            saved = dict(self.scope.values)
            blocks = [] if self.guards is None else list(self.guards.blocks)
            self.instrs(instrs)
            # Both branches write the same words, whose number the code after them has compiled in.
            self.require_same([value], self.function, [i.dst])
            self.store_value(value, merged, 0)
            self.scope.values = saved
            if self.guards is not None:  # what a branch allocates is not there in the other
                self.guards.blocks = blocks
            b.jump(done)
        b.place(done)
        self.load_value(i.dst, merged, 0)
        self.guarded(lambda g: g.merged(i))
