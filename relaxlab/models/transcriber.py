"""Speech to text with a compiled Whisper.

    transcriber = Transcriber.from_pretrained("whisper-tiny")
    (result,) = transcriber.transcribe([audio])  # float32 samples, 16000 per second
    print(result.language, result.text)

One compilation serves all lengths of audio up to the model's window, and any number at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import tokenizers

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import path_of
from relaxlab.models.config import ConfigError
from relaxlab.models.keys import keys_of_json
from relaxlab.models.loader import ModelError
from relaxlab.models.mel import HOP, RATE, log_mel, samples_of
from relaxlab.models.named_layers import NamedLayers, Tensors, tensors_of_folder
from relaxlab.models.tokenizer_json import pipeline_from_json
from relaxlab.models.whisper import Whisper, WhisperConfig, config_from_json, tensor_name
from relaxlab.runtime.build import compile
from relaxlab.runtime.executable import Executable

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Task: TypeAlias = Literal["transcribe", "translate"]

SECONDS_PER_STAMP = 0.02
"""Seconds from one timestamp token to the next."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The meaning of special tokens, and tokens never to choose: ``generation_config.json``.

    `stamp`: the first timestamp token (None: there are none); `last_initial_stamp`: how late the
    first may be, in steps of 0.02 s; `suppressed_first`: tokens that may not come first.
    """

    start: int
    end: int
    languages: Mapping[str, int]
    tasks: Mapping[str, int]
    no_stamps: int | None
    last_initial_stamp: int | None
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]

    @property
    def stamp(self) -> int | None:
        """The first timestamp token; None for a model without."""
        return None if self.no_stamps is None else self.no_stamps + 1

    @staticmethod
    def read(path: Path) -> Rules:
        """From a JSON file. ConfigError for a key that is missing or has the wrong kind."""
        values = keys_of_json(path)

        def ids(key: str) -> tuple[int, ...]:
            found: Any = values.values.get(key) or ()
            if not all(type(i) is int for i in found):
                raise ConfigError(f"{path}: '{key}' must be a list of token ids, is {found!r}")
            return tuple(found)

        def optional(key: str) -> int | None:
            return values.integer(key) if values.values.get(key) is not None else None

        return Rules(
            start=values.integer("decoder_start_token_id"),
            end=values.integer("eos_token_id"),
            languages={
                name.strip("<|>"): i for name, i in values.child("lang_to_id").values.items()
            },
            tasks=dict(values.child("task_to_id").values),
            no_stamps=optional("no_timestamps_token_id"),
            last_initial_stamp=optional("max_initial_timestamp_index"),
            suppressed=ids("suppress_tokens"),
            suppressed_first=ids("begin_suppress_tokens"),
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a transcript between two timestamps, in seconds; `end` is None where the model
    stopped before it gave one."""

    start: float
    end: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript: the text, the tokens generated, the language (None: the model knows only one),
    and with timestamps the segments."""

    text: str
    ids: list[int]
    language: str | None
    segments: list[Segment]


@methods_name_arguments
class Transcriber(Brief):
    """A compiled Whisper with its tokenizer and weights; see `from_pretrained`.

    Attributes: `config`, `rules`, `tokenizer` (of the library tokenizers), `executable`, whose
    functions are those of `Whisper`.
    """

    def __init__(
        self,
        whisper: Whisper,
        rules: Rules,
        tokenizer: tokenizers.Tokenizer,
        executable: Executable,
    ) -> None:
        """`executable`: with its weights bound."""
        self.config: WhisperConfig = whisper.config
        self.rules, self.tokenizer, self.executable = rules, tokenizer, executable
        self._cache_shapes = whisper.cache_shapes()

    @staticmethod
    def from_pretrained(
        folder: str | os.PathLike[str], *, threads: int | None = None, use_cache: bool = True
    ) -> Transcriber:
        """Open, compile and load a Hugging Face folder with ``config.json``,
        ``generation_config.json``, ``model.safetensors`` and ``tokenizer.json``.

        threads: None means all cores. use_cache: keep the compiled program on disk.
        Raises FileNotFoundError, or ModelError, ConfigError, TokenizerError or SafetensorsError
        (all ValueErrors) naming what is wrong.
        """
        path = path_of(folder, "the path of a model")
        if not path.is_dir():
            raise FileNotFoundError(f"there is no folder '{path}' with a model")
        config = config_from_json(keys_of_json(path / "config.json"))
        rules = Rules.read(path / "generation_config.json")
        tokenizer = pipeline_from_json(path / "tokenizer.json")
        tensors = _with_missing_biases(tensors_of_folder(path, tensor_name), config)
        make = NamedLayers(tensors.formats)
        whisper = Whisper(config, make)
        make.require_shapes(whisper, tensors)
        module, names = whisper.build()
        executable = compile(module, threads=threads, use_cache=use_cache)
        make.load(executable, whisper, names, tensors)
        return Transcriber(whisper, rules, tokenizer, executable)

    def features(self, audio: Sequence[Array], *, pad: bool = True) -> Array:
        """Log-mel frames, float32 (len(audio), mel_bands, frames), of recordings with `RATE`
        samples per second. They are filled up with silence to the model's window (30 s), which it
        was trained on, or with `pad=False` to the longest recording. ValueError for recordings
        longer than the window."""
        if isinstance(audio, np.ndarray) and audio.ndim == 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("this is one recording; give a list of them: transcribe([audio])")
        if not len(audio):
            raise ValueError("there is no audio; give at least one recording")
        recordings = [samples_of(a, f"recording {i}") for i, a in enumerate(audio)]
        window, longest = self.config.max_frames * HOP, max(len(a) for a in recordings)
        if longest > window:
            raise ValueError(
                f"a recording of {longest / RATE:.1f} s does not fit into the model's window of "
                f"{window / RATE:.1f} s; cut it into pieces"
            )
        samples = window if pad else max(-(-longest // HOP) * HOP, HOP)
        return np.stack([log_mel(a, self.config.mel_bands, samples) for a in recordings])

    def transcribe(
        self,
        audio: Sequence[Array],
        *,
        language: str | None = None,
        task: Task = "transcribe",
        timestamps: bool = False,
        max_new_tokens: int | None = None,
        pad: bool = True,
    ) -> list[Transcript]:
        """Transcribe recordings: float arrays (samples,), `RATE` samples per second.

        language: such as "en"; None: found out for each recording. task: "translate" gives English
        text. timestamps: segments with their times. max_new_tokens: per recording; None: as many as
        the model has positions. pad: see `features`. Raises ValueError for audio or options that
        the model cannot process.
        """
        memory = self.encode(self.features(audio, pad=pad))
        prompts, languages = self._prompts(memory, language, task, timestamps)
        found = self.generate(memory, prompts, timestamps=timestamps, max_new_tokens=max_new_tokens)
        return [self._transcript(i, name) for i, name in zip(found, languages, strict=True)]

    def encode(self, features: Array) -> list[Array]:
        """Return the encoder's keys and values for the decoder, from log-mel frames (b, mel_bands,
        f)."""
        return list(self.executable["encode"](np.ascontiguousarray(features)))

    def generate(
        self,
        memory: Sequence[Array],
        prompts: Array,
        *,
        timestamps: bool = False,
        max_new_tokens: int | None = None,
    ) -> list[list[int]]:
        """Greedy decoding: the tokens after each prompt, without the one that ends the text.

        prompts int32 (b, s): the tokens that the texts begin with.
        """
        batch, length = prompts.shape
        room = self.config.max_tokens - length
        steps = room if max_new_tokens is None else min(room, max_new_tokens)
        if length < 1 or room < 1:
            raise ValueError(f"prompts must have 1..{self.config.max_tokens - 1} tokens")
        chooser = Chooser(self.rules, self.config.vocab_size, timestamps)
        cache = self._caches(batch)
        found: list[list[int]] = [[] for _ in range(batch)]
        done = np.zeros(batch, bool)
        logits = self._logits(prompts, 0, cache, memory)
        for step in range(steps):
            chosen = np.array([chooser(row, ids) for row, ids in zip(logits, found, strict=True)])
            done |= chosen == self.rules.end
            for ids, token, is_done in zip(found, chosen.tolist(), done, strict=True):
                if not is_done:
                    ids.append(token)
            if done.all() or step + 1 == steps:
                break
            logits = self._logits(chosen[:, None], length + step, cache, memory)
        return found

    def _caches(self, batch: int) -> list[Array]:
        return [np.zeros((batch, *shape), np.float32) for shape in self._cache_shapes]

    def _logits(
        self, ids: Array, past: int, cache: Sequence[Array], memory: Sequence[Array]
    ) -> Array:
        """Return the logits (b, vocab_size) of the tokens after ids (b, s), which are appended to
        the cache."""
        function = self.executable["decode" if ids.shape[1] == 1 else "prefill"]
        return function(ids.astype(np.int32), (past,), *cache, *memory)

    def _prompts(
        self, memory: Sequence[Array], language: str | None, task: Task, timestamps: bool
    ) -> tuple[Array, list[str | None]]:
        """The tokens that each text begins with, and its language."""
        rules, batch = self.rules, memory[0].shape[0]
        if timestamps and rules.no_stamps is None:
            raise ModelError("the model has no timestamp tokens")
        prompt = [np.full(batch, rules.start)]
        languages: list[str | None] = [None] * batch
        if rules.languages:
            if language is None:
                languages = [*self.detect_language(memory)]
            elif language in rules.languages:
                languages = [language] * batch
            else:
                known = ", ".join(sorted(rules.languages))
                raise ModelError(f"unknown language {language!r}; the model knows {known}")
            prompt.append(np.array([rules.languages[name or ""] for name in languages]))
        elif language is not None:
            raise ModelError("the model knows one language; leave out `language`")
        if rules.tasks:
            if task not in rules.tasks:
                raise ModelError(f"unknown task {task!r}; known: {', '.join(sorted(rules.tasks))}")
            prompt.append(np.full(batch, rules.tasks[task]))
        elif task != "transcribe":
            raise ModelError(f"the model cannot {task}")
        if not timestamps and rules.no_stamps is not None:
            prompt.append(np.full(batch, rules.no_stamps))
        return np.stack(prompt, axis=1).astype(np.int32), languages

    def detect_language(self, memory: Sequence[Array]) -> list[str]:
        """The likeliest language of each recording. ModelError for a model of one language."""
        if not self.rules.languages:
            raise ModelError("the model knows one language")
        batch = memory[0].shape[0]
        ids = np.full((batch, 1), self.rules.start)
        logits = self._logits(ids, 0, self._caches(batch), memory)
        names, tokens = zip(*self.rules.languages.items(), strict=True)
        return [names[i] for i in logits[:, list(tokens)].argmax(axis=1)]

    def _transcript(self, ids: list[int], language: str | None) -> Transcript:
        first = self.rules.stamp
        limit = self.config.vocab_size if first is None else first
        segments: list[Segment] = []
        start, text = None, list[int]()
        for token in ids:
            if token < limit:
                text.append(token)
                continue
            time = (token - limit) * SECONDS_PER_STAMP
            if start is not None:
                segments.append(Segment(start, time, self._decoded(text)))
            start, text = (None if start is not None else time), []
        if start is not None and text:
            segments.append(Segment(start, None, self._decoded(text)))
        return Transcript(self._decoded([i for i in ids if i < limit]), ids, language, segments)

    def _decoded(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)


class Chooser:
    """Picks the likeliest token that the rules allow after those generated so far."""

    def __init__(self, rules: Rules, vocab_size: int, timestamps: bool) -> None:
        self._rules, self._timestamps = rules, timestamps
        self._never = np.zeros(vocab_size, bool)
        self._never[list(rules.suppressed)] = True
        self._not_first = self._never.copy()
        self._not_first[list(rules.suppressed_first)] = True

    def __call__(self, logits: Array, before: Sequence[int]) -> int:
        """Choose the token after `before`, the tokens since the prompt, by its logits
        (vocab_size,)."""
        forbidden = self._never if before else self._not_first
        scores = np.where(forbidden, -np.inf, logits)
        if self._timestamps:
            scores = self._with_stamps(scores, before)
        return int(scores.argmax())

    def _with_stamps(self, scores: Array, before: Sequence[int]) -> Array:
        """Apply the rules of timestamps: they come in pairs, one that ends a segment and one that
        begins the next; they do not fall; the text begins with one; and one is due where all of
        them together are likelier than every other token (section 3.2 of the Whisper paper and its
        reference decoder)."""
        rules, first = self._rules, self._rules.stamp
        assert first is not None and rules.no_stamps is not None
        scores[rules.no_stamps] = -np.inf
        ends_with_stamp = bool(before) and before[-1] >= first
        is_open = len(before) < 2 or before[-2] >= first
        if ends_with_stamp and is_open:
            scores[first:] = -np.inf
        elif ends_with_stamp:
            scores[: rules.end] = -np.inf
        stamps = [token for token in before if token >= first]
        if stamps:
            again = ends_with_stamp and not is_open
            scores[first : stamps[-1] + (0 if again else 1)] = -np.inf
        if not before:
            scores[:first] = -np.inf
            if rules.last_initial_stamp is not None:
                scores[first + rules.last_initial_stamp + 1 :] = -np.inf
        top = scores.max()
        together = top + np.log(np.exp(scores[first:].astype(np.float64) - top).sum() or 1e-300)
        if together > scores[:first].max():
            scores[:first] = -np.inf
        return scores


def _with_missing_biases(tensors: Tensors, config: WhisperConfig) -> Tensors:
    """Whisper's keys have no bias; merged with queries and values, it is zero."""

    def read(name: str) -> Mapping[str, Array]:
        if name.endswith("k_proj.bias"):
            return {"data": np.zeros(config.hidden_size, np.float32)}
        return tensors.read(name)

    return Tensors(tensors.where, tensors.names, tensors.formats, read)
