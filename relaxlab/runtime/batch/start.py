"""The memory with which a batch begins in machine code."""

from __future__ import annotations

import numpy as np

from relaxlab.codegen.llvm import starting as native
from relaxlab.ir import recording as rec
from relaxlab.runtime.batch.fibers import Fibers
from relaxlab.runtime.batch.instances import Inputs
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.fields import Fields


class Start:
    """The words of a batch's instances (`inputs`), of their results, and by instance why it failed,
    0 for those that did not. Batches of as many instances share this memory."""

    def __init__(self, program: rec.RecordingProgram, recorder: Words) -> None:
        self.fields = Fields(native.Start)
        self._of: tuple[Inputs, int] | None = None
        self._result_words = len(program.results)
        self.inputs: Words = np.empty((0, len(program.params)), np.int64)
        self.results: Words = np.empty((0, self._result_words), np.int64)
        self.failures: Words = np.empty(0, np.int64)
        self.fields.set(
            recorder_words=len(recorder), input_words=len(program.params),
            result_words=self._result_words, plan_count=len(program.params),
        )  # fmt: skip

    def prepare(self, inputs: Inputs, begin: int, fibers: Fibers | None) -> None:
        """Write down the next batch. Its arrays are copied into the arena from byte `begin` on."""
        count, of = len(inputs.words), self._of
        renewed = fibers is not None and fibers.prepare(count)
        if of is not None and of[0] is inputs and of[1] == begin and not renewed:
            return  # as the batch before, word for word
        self._of = None  # until all is written, should Ctrl-C come in between
        if count != len(self.failures):
            made = np.empty((count, self._result_words), np.int64), np.empty(count, np.int64)
            self.results, self.failures = made
        self.inputs = inputs.words
        self.fields.set(count=count)
        self.fields.hold(
            results=self.results, inputs=inputs.words, plans=inputs.plans,
            refused=inputs.failures, values=inputs.values, groups=inputs.groups,
        )  # fmt: skip
        self.fields.set(
            array_slots=inputs.slots, inputs_begin=begin, group_count=len(inputs.groups)
        )
        if fibers is not None:
            self.fields.hold(fibers=fibers.words, ready=fibers.ready, args=fibers.args)
            self.fields.set(free_fiber=fibers.first_free)
        self._of = inputs, begin
