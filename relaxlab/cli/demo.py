"""`relaxlab demo`: a model answers a question, with everything at its defaults."""

from __future__ import annotations

import argparse

from relaxlab.cli import options as all_options

QUESTIONS = {
    "smollm2-135m": "Why is the sky blue? Answer in two sentences.",
    "tiny": "What is 3 + 4?",
}


def run(options: argparse.Namespace) -> int:
    """`relaxlab generate --greedy` with the chosen model."""
    model = "tiny" if options.tiny else "smollm2-135m"
    prompt = options.prompt or QUESTIONS[model]
    print(f"> {prompt}")
    command = ["generate", "--greedy", "--model", model, "--prompt", prompt]
    try:
        chosen = all_options.build_parser().parse_args(command)
        return chosen.run(chosen)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}\n`relaxlab demo --tiny` needs no download") from None
