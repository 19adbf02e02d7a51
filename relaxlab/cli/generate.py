"""`relaxlab generate`: continue a prompt, or several at once."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from relaxlab.cli.options import UsageError, sampler_of
from relaxlab.cli.progress import Progress
from relaxlab.models.generate import Generation, TextGenerator, encode_prompt, peak_rss_mb
from relaxlab.models.load_decoder import context_of
from relaxlab.models.loader import Checkpoint, open_model


def run(options: argparse.Namespace) -> int:
    """Answer each `--prompt` on standard output."""
    sampler = sampler_of(options)
    prompts = [sys.stdin.read() if p == "-" else p for p in options.prompts]
    if len(prompts) > 1:
        if options.profile:
            raise UsageError("--profile takes one --prompt")
        return _run_batch(options, prompts)
    (prompt,) = prompts
    generator = load(options, prompts)
    if options.profile:
        print(generator.profile(prompt, raw=options.raw))
        return 0
    answer = generator.generate(
        prompt,
        max_new_tokens=options.max_new_tokens,
        raw=options.raw,
        sampler=sampler,
        on_text=None if options.json else show_text,
    )
    if options.json:
        print(json.dumps(report(generator, answer)))
    else:
        print()
        show_speed(generator, answer)
    return 0


def load(options: argparse.Namespace, prompts: Sequence[str] = ()) -> TextGenerator:
    """The model that the options name, with progress on the terminal."""
    with Progress() as progress:
        checkpoint = _open(options, prompts, progress)
        return TextGenerator.load(checkpoint, **_load_options(options), progress=progress)


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


def _load_options(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "activations": options.activations,
        "kv_dtype": options.kv_dtype,
        "max_context": options.max_context,
        "threads": options.threads,
        "use_cache": not options.no_cache,
    }


def _run_batch(options: argparse.Namespace, prompts: Sequence[str]) -> int:
    """Answer all prompts together; each answer stands below its prompt."""
    from relaxlab.models.batch import BatchGenerator  # one prompt does not need it

    with Progress() as progress:
        checkpoint = _open(options, prompts, progress)
        batch = BatchGenerator.load(checkpoint, **_load_options(options), progress=progress)
    answers = batch.generate(
        prompts,
        max_new_tokens=options.max_new_tokens,
        raw=options.raw,
        samplers=[sampler_of(options) for _ in prompts],
    )
    speed = sum(len(a.ids) for a in answers) / batch.seconds
    if options.json:
        found = [
            {"prompt_ids": a.prompt_ids, "ids": a.ids, "text": a.text, "stopped": a.stopped}
            for a in answers
        ]
        times = {"load_s": batch.times.load_s, "compile_s": batch.times.compile_s}
        report = {"answers": found, "tok_s": speed, "peak_rss_mb": peak_rss_mb()}
        print(json.dumps(report | times))
        return 0
    for prompt, answer in zip(prompts, answers, strict=True):
        print(f"> {prompt}\n{answer.text}\n")
    if sys.stderr.isatty():
        print(f"[{len(answers)} answers, {speed:.0f} tokens/s together]", file=sys.stderr)
    return 0


def show_text(piece: str) -> None:
    """Print a piece of the answer at once."""
    print(piece, end="", flush=True)


def report(generator: TextGenerator, answer: Generation) -> dict[str, object]:
    """The object that `--json` prints; speeds in tokens per second, None without a step."""
    return {
        "prompt_ids": answer.prompt_ids,
        "ids": answer.ids,
        "text": answer.text,
        "stopped": answer.stopped,
        "load_s": generator.times.load_s,
        "compile_s": generator.times.compile_s,
        "prefill_tok_s": answer.prefill_tok_s,
        "decode_tok_s": answer.decode_tok_s,
        "planned_bytes": generator.executable.artifact.planned_bytes["prefill"],
        "peak_rss_mb": peak_rss_mb(),
    }


def show_speed(generator: TextGenerator, answer: Generation) -> None:
    """One line of measurements on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        return
    speeds = [f"read {answer.prefilled} tokens at {answer.prefill_tok_s:.0f}/s"]
    if answer.decode_tok_s is not None:
        speeds.append(f"wrote {len(answer.ids)} at {answer.decode_tok_s:.0f}/s")
    if answer.stopped == "context":
        speeds.append(f"the context of {generator.max_context} tokens is full")
    times = generator.times
    speeds.append(f"compiled in {times.compile_s:.1f} s, loaded in {times.load_s:.1f} s")
    print(f"[{'; '.join(speeds)}; {peak_rss_mb():.0f} MB]", file=sys.stderr)
