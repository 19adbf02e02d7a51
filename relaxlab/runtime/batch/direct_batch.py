"""The builtin that runs a batch like the one before: what `codegen.llvm.batch_call` emits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from relaxlab.codegen.artifact import Artifact
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.batch_call import (
    CALL_BATCH,
    BatchPlan,
    BatchResult,
    batch_call_texts,
)
from relaxlab.codegen.llvm.reading_plan import (
    BEGIN_MAKING,
    DATA,
    MAKE_VALUE,
    READ_INSTANCES,
    SCALAR,
    TENSOR,
)
from relaxlab.ir import recording as rec
from relaxlab.ir.target import Target
from relaxlab.ir.types import DataType, TensorType
from relaxlab.runtime.batch.arena import RowForm
from relaxlab.runtime.batch.flush import NativeFlusher
from relaxlab.runtime.batch.instances import InstanceReader
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.direct_call import builtin
from relaxlab.runtime.native.fields import Fields
from relaxlab.runtime.native.value_maker import NativeMaker
from relaxlab.runtime.native.value_tables import value_address


class DirectBatch:
    """A builtin, `call`: it does what `slow` does, which it calls with the same list where it
    cannot. `finish` returns the results that it does not make, and those of a batch that failed."""

    def __init__(
        self, program: rec.RecordingProgram, flusher: NativeFlusher, reader: InstanceReader,
        maker: NativeMaker, lock: Any, busy: Words, slow: Callable[..., Any],
        finish: Callable[..., Any],
    ) -> None:  # fmt: skip
        """lock, busy: the program's, and the word that is 1 while a batch has it."""
        self.fields = Fields(BatchPlan)
        acquire, release = lock.acquire, lock.release
        words, alive = _result_words(program.results, list(program.data))
        form = np.array([*_form(program.result)], np.int64)
        self.fields.hold(busy=busy, results=words, form=form)
        self.fields.set(
            instances=reader.plan_address, start=flusher.start_address, state=flusher.state,
            read=value_address(READ_INSTANCES), run=flusher.run_address, slow=id(slow),
            finish=id(finish), acquire=id(acquire), release=id(release),
            list_type=id(list), array_type=id(np.ndarray), making=maker.address,
            begin_making=value_address(BEGIN_MAKING), make_value=value_address(MAKE_VALUE),
        )  # fmt: skip
        # The plan has addresses only: without these references what they point to would be freed.
        held = (self, flusher, reader, maker, acquire, release, slow, finish, alive)
        self.call = builtin(CALL_BATCH, _compiled, (self.fields.address, *held))

    def set_known(self, known: bool) -> None:
        """Say that the next batch may be like the one before, or that Python has to run it."""
        self.fields.set(known=int(known))

    @property
    def has_failed(self) -> bool:
        """True if a batch ran since the last call of `taken`, and did not end as it should."""
        return self.fields["ran"] != 0 and self.fields["known"] == 0

    def taken(self) -> bool:
        """True if a batch ran since the last call."""
        ran = self.fields["ran"] != 0
        self.fields.set(ran=0)
        return ran


def _form(result: object) -> Iterator[int]:
    """The words of a result's form, from its outermost tuple inwards."""
    if isinstance(result, tuple):
        yield len(result)
        for field in result:
            yield from _form(field)
    else:
        assert isinstance(result, int)
        yield -1 - result


def _result_words(leaves: Sequence[rec.EntryResult], data: list[str]) -> tuple[Words, list[Any]]:
    """The records of results, and what they point to. data: the names of data types."""
    words, alive = [np.empty(0, np.int64)], list[Any]()
    for leaf in leaves:
        made = Fields(BatchResult)
        if isinstance(leaf.ty, DataType):
            made.set(kind=DATA, data=data.index(leaf.ty.name))
        else:
            assert isinstance(leaf.ty, TensorType)
            form = RowForm.of(leaf.ty)
            made.hold(dims=np.array([*form.dims, 0], np.int64))  # at least one: it has an address
            made.set(
                kind=SCALAR if leaf.kind == "scalar" else TENSOR, ndim=len(form.dims),
                size=form.elements * form.dtype.itemsize, descr=id(form.dtype),
            )  # fmt: skip
            alive += [form, made]
        words.append(made.words)
    return np.concatenate(words), alive


def _compiled(target: Target) -> Artifact:
    declarations = dict[str, str]()
    texts = batch_call_texts(declarations)
    externs = jit.external_functions(texts, declarations)
    code, bitcode = jit.compile_quickly(jit.module_text(texts, declarations, target), target)
    return Artifact((code,), bitcode, (), (), (), 0, {}, externs=externs)
