"""The recording program: the control flow of a batched program, as integers alone.

Recording one instance runs its control flow and leaves notes of the blocks that are to be computed.
A *slot* is the number of a tensor that will exist: an output of a noted block, an instance's input,
or a value that all instances share. An *input record* is the memory that describes an instance's
array: the address of its data, its slot, its dimensions. A *value* of a data type is the address of
its words: the number of its constructor, then its fields, which are integers, slots or such
addresses. All of them are int64 variables here, beside the program's own integers and bools, so
that a function is plain arithmetic, calls and branches.

The depth at which a block is noted is one more than that of everything it reads (the inline depth
of ACRoBat): a counter that passes through calls, and by which members that are independent of each
other are noted side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.types import TensorType, Type

RECORD_DATA, RECORD_SLOT, RECORD_DIMS = 0, 1, 2
"""Words of an input record: address of the data, slot, and the dimensions from there on."""


VALUE_TAG, VALUE_FIELDS = 0, 1
"""Words of a value of a data type: the number of its constructor, and its fields from there on."""


@dataclass(frozen=True, slots=True)
class InputArray:
    """An instance's array as a function sees it: the variable that holds the address of its input
    record, and the buffer by which expressions read it."""

    record: expr.Var
    buffer: loops.Buffer


@dataclass(frozen=True, slots=True)
class Compute:
    """var = value, a scalar that may read input arrays"""

    var: expr.Var
    value: expr.PrimExpr


@dataclass(frozen=True, slots=True)
class Require:
    """Stop the instance with a message unless the condition holds."""

    condition: expr.PrimExpr
    message: str


@dataclass(frozen=True, slots=True)
class WholeInput:
    """slot = that of an input array"""

    slot: expr.Var
    array: InputArray


@dataclass(frozen=True, slots=True)
class InputRow:
    """slot = a new one, for row `index` of an input array"""

    slot: expr.Var
    array: InputArray
    index: expr.PrimExpr


@dataclass(frozen=True, slots=True)
class SharedRow:
    """slot = a new one, for row `index` of a value that all instances share, which is in slot
    `shared`"""

    slot: expr.Var
    shared: int
    index: expr.PrimExpr


@dataclass(frozen=True, slots=True)
class Construct:
    """var = a new value of a data type, of the constructor with this tag and these fields"""

    var: expr.Var
    tag: int
    fields: tuple[expr.PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class ReadWord:
    """var = a word of a value of a data type"""

    var: expr.Var
    value: expr.PrimExpr
    word: int


@dataclass(frozen=True, slots=True)
class ReadTensor:
    """var = the one element of the tensor in a slot: the instance waits until it is computed"""

    var: expr.Var
    slot: expr.PrimExpr


@dataclass(frozen=True, slots=True)
class Record:
    """Note that block number `block` is to run on these slots and scalars; its outputs get new
    slots. With a `static_depth` it is noted at that depth, and the counter stays; `static_depth`
    is below `first_depth` of the program, at which counting starts. Where it is `memoized`, and
    the batch has a note of the block on the same slots and scalars, the outputs are that one's."""

    block: int
    inputs: tuple[expr.PrimExpr, ...]
    scalars: tuple[expr.PrimExpr, ...]
    outputs: tuple[expr.Var, ...]
    static_depth: int | None = None
    memoized: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """results = function(*args)"""

    function: str
    args: tuple[expr.PrimExpr, ...]
    results: tuple[expr.Var, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Run one of two lists of steps; `results` are that list's values."""

    condition: expr.PrimExpr
    then_steps: tuple[Step, ...]
    then_values: tuple[expr.PrimExpr, ...]
    else_steps: tuple[Step, ...]
    else_values: tuple[expr.PrimExpr, ...]
    results: tuple[expr.Var, ...]


@dataclass(frozen=True, slots=True)
class Together:
    """Steps of which none reads another's result: each starts at the same depth, and what follows
    starts after the deepest."""

    members: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """Raise the counted depth, as so many blocks behind each other would."""

    count: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Begin the next phase: what follows runs after all blocks that were noted before, those of
    other instances among them."""


Step: TypeAlias = (
    Compute | Require | WholeInput | InputRow | SharedRow | Construct | ReadWord | ReadTensor
    | Record | Call | Branch | Together | Skip | Phase
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordingFunction:
    """A function that records: `params` are integers, `arrays` the input arrays whose records are
    among them. A symbol of an array's shape that is declared nowhere else is that dimension."""

    name: str
    params: tuple[expr.Var, ...]
    arrays: tuple[InputArray, ...]
    steps: tuple[Step, ...]
    results: tuple[expr.PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class BatchBlock:
    """A block: the function of the module that runs a batch of it. The function takes an arena per
    dtype in `arenas`, one array of places per tensor in `inputs`, one array per scalar in
    `scalars`, one array per output in `outputs`, and the `shared` values. It is called with
    `most_rows` at most for each thread."""

    name: str
    function: str
    arenas: tuple[str, ...]
    inputs: tuple[TensorType, ...]
    scalars: tuple[str, ...]
    outputs: tuple[TensorType, ...]
    shared: tuple[int, ...]
    most_rows: int


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A value that all instances have in common: a weight (the number of the entry's parameter and
    the path into it where it is a tuple), or a constant of the program."""

    ty: TensorType
    parameter: int = -1
    path: tuple[int, ...] = ()
    constant: graph.Constant | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a constructor: an integer (`scalar`), a tensor's slot (`slot`), or a value of a
    data type (`data`)."""

    kind: str
    ty: Type


@dataclass(frozen=True, slots=True)
class DataLayout:
    """A constructor of a data type, and the words of its values behind the tag."""

    constructor: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class EntryParam:
    """A leaf of the entry's parameters that instances give: `kind` is `scalar`, `array` or
    `data`."""

    name: str
    path: tuple[int, ...]
    parameter: int
    kind: str
    ty: Type

    @property
    def tensor(self) -> TensorType:
        """The type of a scalar or an array."""
        assert isinstance(self.ty, TensorType)
        return self.ty


@dataclass(frozen=True, slots=True)
class EntryResult:
    """A leaf of the entry's result: a `scalar` that control flow computed, a tensor's `slot`, or a
    value of a data type (`data`)."""

    kind: str
    ty: Type


@dataclass(frozen=True, slots=True)
class RecordingProgram:
    """The functions that record, and the blocks that they note. Slots below `len(shared)` are those
    of the shared values; `gathered` are the numbers of those that blocks gather by them. `result`
    nests numbers of `results` as the entry's result nests tuples. The entry's first `num_input`
    parameters are each instance's; `weights` are the names of the others."""

    entry: str
    num_input: int
    weights: tuple[str, ...]
    functions: dict[str, RecordingFunction]
    blocks: tuple[BatchBlock, ...]
    shared: tuple[SharedValue, ...]
    gathered: tuple[int, ...]
    params: tuple[EntryParam, ...]
    results: tuple[EntryResult, ...]
    result: object
    first_depth: int = 0
    data: Mapping[str, tuple[DataLayout, ...]] = field(default_factory=lambda: {})
    """The constructors of each data type, by their numbers."""

    waiting: frozenset[str] = frozenset()
    """The functions in which instances may wait for the values of tensors."""

    @property
    def waits(self) -> bool:
        """True if instances wait for the values of tensors while they are recorded."""
        return self.entry in self.waiting


def waiting_functions(functions: Mapping[str, RecordingFunction]) -> frozenset[str]:
    """The functions that read tensors, themselves or in what they call."""
    steps = {name: tuple(walk_steps(f.steps)) for name, f in functions.items()}
    found = {name for name, of in steps.items() if any(isinstance(s, ReadTensor) for s in of)}
    while True:
        more = {
            name for name, of in steps.items()
            if any(isinstance(s, Call) and s.function in found for s in of)
        } - found  # fmt: skip
        if not more:
            return frozenset(found)
        found |= more


def walk_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    """All steps, those inside of others after them."""
    for step in steps:
        yield step
        match step:
            case Branch():
                yield from walk_steps(step.then_steps)
                yield from walk_steps(step.else_steps)
            case Together(members):
                yield from walk_steps(members)
            case _:
                pass
