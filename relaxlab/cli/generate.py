"""`relaxlab generate`: continue a prompt."""

from __future__ import annotations

import argparse
import json
import sys

from relaxlab.cli.options import sampler_of
from relaxlab.cli.progress import Progress
from relaxlab.models.generate import Generation, TextGenerator, peak_rss_mb


def run(options: argparse.Namespace) -> int:
    """Answer `--prompt` on standard output."""
    sampler = sampler_of(options)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    generator = load(options)
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


def load(options: argparse.Namespace) -> TextGenerator:
    """The model that the options name, with progress on the terminal."""
    with Progress() as progress:
        return TextGenerator.load(
            options.model,
            activations=options.activations,
            kv_dtype=options.kv_dtype,
            max_context=options.max_context,
            threads=options.threads,
            use_cache=not options.no_cache,
            progress=progress,
        )


def show_text(piece: str) -> None:
    """Print a piece of the answer at once."""
    print(piece, end="", flush=True)


def report(generator: TextGenerator, answer: Generation) -> dict[str, object]:
    """The object that `--json` prints; speeds in tokens per second, None without a step."""
    return {
        "prompt_ids": answer.prompt_ids,
        "ids": answer.ids,
        "text": answer.text,
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
    times = generator.times
    speeds.append(f"compiled in {times.compile_s:.1f} s, loaded in {times.load_s:.1f} s")
    print(f"[{'; '.join(speeds)}; {peak_rss_mb():.0f} MB]", file=sys.stderr)
