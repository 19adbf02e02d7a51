"""The recording program as text: what each line is decided by, beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.node import Node, rewrite
from relaxlab.passes.order_steps import results

INDENT = "    "


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code, the remark beside it, and the number of the block that it notes, or -1."""

    code: str
    remark: str = ""
    block: int = -1


def program_lines(program: rec.RecordingProgram) -> list[Line]:
    """The functions that are recorded, the entry first. Beside a note on a block stand the depth
    that it gets, whether equal ones share it, and the weights that all its instances have in
    common; beside other lines the phases, the ghosts, and where instances wait."""
    names = sorted(program.functions, key=lambda n: n != program.entry)
    found: list[Line] = []
    for name in names:
        found += _Printer(program, program.functions[name]).lines()
    return found


@dataclass(slots=True)
class _Printer:
    program: rec.RecordingProgram
    of: rec.RecordingFunction
    names: dict[expr.Var, expr.Var] = field(default_factory=lambda: {})
    taken: set[str] = field(default_factory=lambda: set[str]())

    def lines(self) -> list[Line]:
        params = [self.new(p) for p in self.of.params]
        arrays = {a.record: a.buffer.name for a in self.of.arrays}
        given = [arrays.get(p, n) for p, n in zip(self.of.params, params, strict=True)]
        found = [Line(f"def {self.of.name}({', '.join(given)}):"), *self.steps(self.of.steps, 1)]
        if self.of.results:
            found.append(Line(f"{INDENT}return {self.texts(self.of.results)}"))
        return [*found, Line("")]

    def new(self, var: expr.Var) -> str:
        """A name for a variable that no other one of the function has."""
        name, number = var.name, 1
        while name in self.taken:
            number += 1
            name = f"{var.name}_{number}"
        self.taken.add(name)
        self.names[var] = expr.Var(name, var.dtype)
        return name

    def text(self, value: expr.PrimExpr) -> str:
        def visit(n: Node) -> Node | None:
            return self.names.get(n) if isinstance(n, expr.Var) else None

        return str(rewrite(value, visit))

    def texts(self, values: Sequence[expr.PrimExpr]) -> str:
        return ", ".join(map(self.text, values))

    def steps(self, steps: Sequence[rec.Step], level: int) -> Iterator[Line]:
        for step in steps:
            yield from self.step(step, level)

    def step(self, step: rec.Step, level: int) -> Iterator[Line]:
        at = INDENT * level
        match step:
            case rec.Require(condition, _):
                yield Line(f"{at}assert {self.text(condition)}")
            case rec.Phase():
                yield Line(f"{at}phase", "waits until all instances are here")
            case rec.Skip(count):
                yield Line(f"{at}ghost", f"depth + {count}: the other branch is longer")
            case rec.Together(members):
                yield Line(f"{at}side by side:", "each begins at the same depth")
                yield from self.steps(members, level + 1)
            case rec.Branch():
                yield from self.branch(step, level)
            case _:
                # Before its own variables get their names: a value reads older ones.
                value, remark, block = self.value(step)
                names = ", ".join(map(self.new, results(step)))
                yield Line(f"{at}{names} = {value}" if names else f"{at}{value}", remark, block)

    def branch(self, step: rec.Branch, level: int) -> Iterator[Line]:
        at = INDENT * level
        yield Line(f"{at}if {self.text(step.condition)}:")
        names: list[str] = []
        for steps, values in (
            (step.then_steps, step.then_values), (step.else_steps, step.else_values)
        ):  # fmt: skip
            if steps is step.else_steps:
                yield Line(f"{at}else:")
            yield from self.steps(steps, level + 1)
            names = names or [self.new(v) for v in step.results]
            if names:
                yield Line(f"{at}{INDENT}{', '.join(names)} = {self.texts(values)}")
            elif not steps:
                yield Line(f"{at}{INDENT}pass")

    def value(self, step: rec.Step) -> tuple[str, str, int]:
        """The text of what a step computes, a remark, and the block that it notes."""
        match step:
            case rec.Compute(_, value):
                return self.text(value), "", -1
            case rec.WholeInput(_, array):
                return array.buffer.name, "the instance's array", -1
            case rec.InputRow(_, array, index):
                text = f"{array.buffer.name}[{self.text(index)}]"
                return text, "a row of the instance's array", -1
            case rec.SharedRow(_, shared, index):
                text = f"{self.shared(shared)}[{self.text(index)}]"
                return text, "a row of a weight, read where it lies", -1
            case rec.Construct(_, tag, fields):
                return f"constructor {tag}({self.texts(fields)})", "", -1
            case rec.ReadWord(_, value, word):
                of = "tag" if word == rec.VALUE_TAG else f"field {word - rec.VALUE_FIELDS}"
                return f"{of} of {self.text(value)}", "", -1
            case rec.ReadTensor(_, slot):
                return f"element of {self.text(slot)}", "the instance waits for a flush", -1
            case rec.Record():
                return self.note(step)
            case rec.Call(name, args, _):
                return f"{name}({self.texts(args)})", "", -1
            case _:
                raise AssertionError(step)

    def note(self, step: rec.Record) -> tuple[str, str, int]:
        block = self.program.blocks[step.block]
        if step.static_depth is None:
            depth = "depth counted"
        else:
            depth = f"depth {step.static_depth} in all contexts"
        remarks = [depth]
        if step.memoized:
            remarks.append("once for equal operands")
        weights = ", ".join(dict.fromkeys(map(self.shared, block.shared)))
        if weights:
            remarks.append(f"same for all: {weights}")
        args = self.texts((*step.inputs, *step.scalars))
        return f"{block.name}({args})", "; ".join(remarks), step.block

    def shared(self, number: int) -> str:
        value = self.program.shared[number]
        if value.parameter < 0:
            return "a constant"
        name = self.program.weights[value.parameter - self.program.num_input]
        return name + "".join(f"[{i}]" for i in value.path)
