"""`relaxlab generate`: continue a prompt, or several at once."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from relaxlab.cli.options import UsageError, sampler_of
from relaxlab.cli.progress import Progress
from relaxlab.ir.errors import counted
from relaxlab.models.generate import TextGenerator, peak_rss_mb
from relaxlab.models.generation import Generation, encode_prompt
from relaxlab.models.load_decoder import context_of
from relaxlab.models.loader import Checkpoint, open_model

MOST_TOGETHER = 32
"""Prompts that are answered in one step: with "q8", more would be multiplied otherwise."""


def run(options: argparse.Namespace) -> int:
    """Answer each `--prompt` on standard output."""
    sampler = sampler_of(options)
    prompts = [sys.stdin.read() if p == "-" else p for p in options.prompts]
    if options.profile and len(prompts) > 1:
        raise UsageError("--profile takes one --prompt")
    model = load(options, prompts)
    if len(prompts) > 1:
        return _answer_all(options, model, prompts)
    (prompt,) = prompts
    if options.profile:
        print(model.profile(prompt, raw=options.raw))
        return 0
    answer = model.generate(
        prompt,
        max_new_tokens=options.max_new_tokens,
        raw=options.raw,
        sampler=sampler,
        on_text=None if options.json else show_text,
    )
    if options.json:
        print(json.dumps(report(model, answer)))
    else:
        print()
        show_speed(model, answer)
    return 0


def load(options: argparse.Namespace, prompts: Sequence[str] = ()) -> TextGenerator:
    """The model that the options name, for the prompts, with progress on the terminal."""
    with Progress() as progress:
        return TextGenerator.load(
            _open(options, prompts, progress),
            activations=options.activations,
            kv_dtype=options.kv_dtype,
            max_context=options.max_context,
            max_sequences=max(1, min(len(prompts), MOST_TOGETHER)),
            threads=options.threads,
            use_cache=not options.no_cache,
            progress=progress,
        )


def _open(options: argparse.Namespace, prompts: Sequence[str], progress: Progress) -> Checkpoint:
    """Open the model. Prompts that it cannot answer are refused here, before anything is compiled
    or loaded."""
    progress(f"opening {options.model}")
    checkpoint = open_model(options.model)
    if checkpoint.chat is None and prompts and not options.raw:
        print(
            f"relaxlab: {options.model} has no chat template: it continues the prompt as it stands "
            "(--raw asks for that)",
            file=sys.stderr,
        )
    context = context_of(checkpoint, options.max_context)
    for prompt in prompts:
        encode_prompt(checkpoint, context, prompt, options.raw)
    return checkpoint


def _answer_all(options: argparse.Namespace, model: TextGenerator, prompts: Sequence[str]) -> int:
    """Answer all prompts together; each answer stands below its prompt."""
    start = time.perf_counter()
    answers = model.generate_all(
        prompts,
        max_new_tokens=options.max_new_tokens,
        raw=options.raw,
        samplers=[sampler_of(options) for _ in prompts],
    )
    speed = sum(len(a.ids) for a in answers) / (time.perf_counter() - start)
    if options.json:
        found = {"answers": [_result(a) for a in answers], "tok_s": speed}
        print(json.dumps(found | _costs(model)))
        return 0
    for prompt, answer in zip(prompts, answers, strict=True):
        print(f"> {prompt}\n{answer.text}\n")
    if sys.stderr.isatty():
        number = counted(len(answers), "answer")
        print(f"[{number}, {speed:.0f} tokens/s together]", file=sys.stderr)
    return 0


def show_text(piece: str) -> None:
    """Print a piece of the answer at once."""
    print(piece, end="", flush=True)


def report(model: TextGenerator, answer: Generation) -> dict[str, object]:
    """The object that `--json` prints; speeds in tokens per second, None without a step."""
    return _result(answer) | _costs(model) | {
        "prefill_tok_s": answer.prefill_tok_s,
        "decode_tok_s": answer.decode_tok_s,
        "planned_bytes": model.executable.artifact.planned_bytes["prefill"],
    }  # fmt: skip


def _result(answer: Generation) -> dict[str, object]:
    return {key: getattr(answer, key) for key in ("prompt_ids", "ids", "text", "stopped")}


def _costs(model: TextGenerator) -> dict[str, object]:
    times = model.times
    return {"load_s": times.load_s, "compile_s": times.compile_s, "peak_rss_mb": peak_rss_mb()}


def show_speed(model: TextGenerator, answer: Generation) -> None:
    """One line of measurements on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        return
    speeds = [f"read {counted(answer.prefilled, 'token')} at {answer.prefill_tok_s:.0f}/s"]
    if answer.decode_tok_s is not None:
        speeds.append(f"wrote {len(answer.ids)} at {answer.decode_tok_s:.0f}/s")
    if answer.stopped == "context":
        speeds.append(f"the context of {model.max_context} tokens is full")
    times = model.times
    speeds.append(f"compiled in {times.compile_s:.1f} s, loaded in {times.load_s:.1f} s")
    print(f"[{'; '.join(speeds)}; {peak_rss_mb():.0f} MB]", file=sys.stderr)
