"""`relaxlab chat`: a conversation on the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module

from relaxlab.cli.generate import load, show_text
from relaxlab.cli.options import sampler_of
from relaxlab.models.generate import TextGenerator
from relaxlab.models.generation import PromptError
from relaxlab.models.loader import ModelError
from relaxlab.models.sampling import Sampler

HELP = "/reset starts anew, /help says this, /quit or Ctrl-D leaves, Ctrl-C stops an answer"


def run(options: argparse.Namespace) -> int:
    """Read questions until the end of the input."""
    sampler = sampler_of(options)
    with _hidden_typing():
        generator = load(options)
    if generator.chat_template is None:
        raise ModelError(f"{options.model} has no chat template; use `relaxlab generate`")
    first = [{"role": "system", "content": options.system}] if options.system else []
    messages = list(first)
    if sys.stdin.isatty():
        with suppress(ImportError):  # Windows has none: lines cannot be edited there
            import_module("readline")  # arrow keys and a history for `input`
        print(HELP, file=sys.stderr)
    while (line := _question()) is not None:
        if line == "/quit":
            break
        if line == "/reset":
            messages = list(first)
            print("a new conversation", file=sys.stderr)
        elif line == "/help":
            print(HELP, file=sys.stderr)
        elif line.startswith("/") and line[1:].isalpha():
            print(f"there is no command {line}; {HELP}", file=sys.stderr)
        elif line:
            _answer(generator, messages, line, sampler, options.max_new_tokens)
    return 0


@contextmanager
def _hidden_typing() -> Generator[None]:
    """The terminal does not show text that is typed meanwhile, which would mix with the line of
    progress; the first question has it. No change where nobody types, and to a program in the
    background, which the system would stop for it."""
    keys = sys.stdin.fileno() if sys.stdin.isatty() else -1
    if keys < 0 or sys.platform == "win32" or os.tcgetpgrp(keys) != os.getpgrp():
        yield
        return
    import termios

    before = termios.tcgetattr(keys)
    hidden = [*before]
    hidden[3] &= ~termios.ECHO
    termios.tcsetattr(keys, termios.TCSADRAIN, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _question() -> str | None:
    """The next line, None at the end of the input."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None


def _answer(
    generator: TextGenerator,
    messages: list[dict[str, str]],
    question: str,
    sampler: Sampler,
    max_new_tokens: int,
) -> None:
    """Print the answer; question and answer join `messages`."""
    messages.append({"role": "user", "content": question})
    pieces: list[str] = []
    try:
        for piece in generator.stream(messages, max_new_tokens=max_new_tokens, sampler=sampler):
            pieces.append(piece)
            show_text(piece)
    except PromptError as error:
        messages.pop()
        print(f"relaxlab: {error}; /reset starts anew", file=sys.stderr)
        return
    except KeyboardInterrupt:
        print(" …", end="")
    print()
    messages.append({"role": "assistant", "content": "".join(pieces)})
