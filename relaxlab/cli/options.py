"""The options of the subcommands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxlab.models.sampling import Sampler

DESCRIPTION = "Compile machine-learning programs for this machine, and look at how it is done."


class UsageError(ValueError):
    """An argument that only looks right to the parser of the command line."""


def build_parser() -> argparse.ArgumentParser:
    """The parser; parsed options have `run`, the function of the subcommand."""
    parser = argparse.ArgumentParser(prog="relaxlab", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=_version())
    parser.set_defaults(run=lambda _: parser.print_help() or 0)
    commands = parser.add_subparsers(metavar="COMMAND")
    _generate(_command(commands, "generate", "continue a prompt with a language model"))
    _chat(_command(commands, "chat", "talk with a language model"))
    _embed(_command(commands, "embed", "make vectors of texts with an encoder"))
    _transcribe(_command(commands, "transcribe", "write down what is said in sound files"))
    _demo(_command(commands, "demo", "compile a model and let it answer a question"))
    _show(_command(commands, "show", "print a script, its types, and what the passes do to it"))
    _check(_command(commands, "check", "compare what a script computes before and after each pass"))
    _explore(_command(commands, "explore", "write a page on what the compiler does to a script"))
    _tune(_command(commands, "tune", "search for faster schedules of a script's kernels"))
    _course(_command(commands, "course", "write the course as notebooks into a folder"))
    _command(commands, "doctor", "check this machine, and say what is missing and how to get it")
    return parser


def _version() -> str:
    # The package is loaded before any of its modules; they do not import it.
    return f"relaxlab {sys.modules['relaxlab'].__version__}"


def _command(commands: argparse._SubParsersAction, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what)
    parser.set_defaults(run=_lazy(name))
    return parser


def _lazy(name: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        return import_module(f"relaxlab.cli.{name}").run(options)

    return run


def _generate(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    parser.add_argument(
        "--prompt", required=True, action="append", metavar="TEXT", dest="prompts",
        help="- reads standard input; several --prompt are answered together, as one batch",
    )  # fmt: skip
    parser.add_argument("--raw", action="store_true", help="continue the text: no chat template")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    form.add_argument(
        "--profile", action="store_true",
        help="print how long each kernel takes for the prompt and for one token, and no answer",
    )  # fmt: skip
    _sampling(parser)


def _chat(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    parser.add_argument("--system", metavar="TEXT", help="what the model is told first")
    _sampling(parser)


def _embed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="- reads lines of standard input")
    parser.add_argument(
        "--model", type=_path, required=True, help="a Hugging Face folder or a GGUF file"
    )
    parser.add_argument(
        "-o", "--output", type=_path, metavar="FILE.npy",
        help="write one array, float32 (texts, width), instead of printing a JSON list per text",
    )  # fmt: skip
    _machine(parser)


def _transcribe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", type=_path, nargs="+", metavar="FILE", help="WAV, FLAC, MP3, Ogg, …"
    )
    parser.add_argument(
        "--model", type=_path, required=True, help="a Hugging Face folder with a Whisper model"
    )
    parser.add_argument("--language", metavar="CODE", help="such as en; default: detected")
    parser.add_argument("--translate", action="store_true", help="write English")
    parser.add_argument("--timestamps", action="store_true", help="print times of segments")
    parser.add_argument("--json", action="store_true", help="print one JSON object per file")
    _machine(parser)


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tiny", action="store_true", help="the small model inside the package")
    parser.add_argument("prompt", nargs="?", help="the question")


def _show(parser: argparse.ArgumentParser) -> None:
    _script(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--after", metavar="PASS", help="print the module after that pass instead")
    instead.add_argument(
        "--schedule", metavar="KERNEL",
        help="print the steps of a kernel's schedule instead, as a Python program",
    )  # fmt: skip
    instead.add_argument(
        "--gpu", metavar="GPU",
        help="print how long its kernels are expected to take on a GPU such as h100 instead",
    )  # fmt: skip
    parser.add_argument(
        "--size", metavar="NAME=VALUE", type=_size, action="append", default=[],
        help="the value of a symbol, for --gpu; can be repeated",
    )  # fmt: skip


def _check(parser: argparse.ArgumentParser) -> None:
    _script(parser)
    parser.add_argument(
        "--target", type=_target, default="cpu", metavar="TARGET",
        help="cpu (default), cuda or wgsl; then maybe ,contract=off and ,reassociate=off",
    )  # fmt: skip
    parser.add_argument("--runs", type=_positive, default=4, metavar="K", help="default: 4")
    parser.add_argument(
        "--seed", type=_count, default=0, help="of the first run; then one more each"
    )


def _explore(parser: argparse.ArgumentParser) -> None:
    _script(parser)
    parser.add_argument(
        "-o", "--output", type=_path, required=True, metavar="PAGE.html", help="the page"
    )
    parser.add_argument(
        "--views", metavar="NAME,NAME", default="",
        help="which explorers, as tabs (pipeline, …); default: all that fit",
    )  # fmt: skip
    parser.add_argument(
        "--target", type=_target, default="cpu", metavar="TARGET",
        help="cpu (default), cuda or wgsl",
    )  # fmt: skip


def _tune(parser: argparse.ArgumentParser) -> None:
    _script(parser, nargs="?")
    parser.add_argument(
        "--trials", type=_positive, default=64, metavar="N", help="for each kernel; default: 64"
    )
    parser.add_argument("--seconds", type=_positive, metavar="S", help="for all; default: no limit")
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=N,N", dest="shapes",
        help="values of a symbol for which kernels are measured; default: 256",
    )  # fmt: skip
    parser.add_argument(
        "--database", type=_path, default="tuning.db", metavar="FILE", help="default: tuning.db"
    )
    parser.add_argument(
        "--search", default="coordinate", metavar="NAME",
        help="coordinate (default), random or evolution, which takes LightGBM",
    )  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="leave out what was tried before")
    parser.add_argument(
        "--workers", type=_positive, metavar="N", help="processes that build; default: all cores"
    )
    _threads(parser)
    parser.add_argument(
        "--scheduler", metavar="tcp://HOST:PORT",
        help="of Dask; its workers build and measure instead of processes of this machine",
    )  # fmt: skip
    parser.add_argument(
        "--import", type=_path, metavar="FILE.json", dest="taken",
        help="first add the records of this file to the database",
    )  # fmt: skip
    parser.add_argument(
        "--export", type=_path, metavar="FILE.json",
        help="at the end write the records of the database to this file, one a line",
    )  # fmt: skip


def _course(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=_path, metavar="DIR", help="notebooks that are there stay as they are"
    )
    parser.add_argument("--no-solutions", action="store_true", help="leave the solutions out")
    parser.add_argument(
        "--summary", action="store_true", help="say how many exercises are solved instead"
    )


def _script(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    parser.add_argument(
        "file", type=_path, metavar="FILE.py[:NAME]", nargs=nargs,
        help="the script; NAME: a class or function in it",
    )  # fmt: skip


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", type=_path, default="smollm2-135m", metavar="MODEL",
        help="smollm2-135m (default), tiny, a GGUF file, or a folder with config.json",
    )  # fmt: skip
    parser.add_argument(
        "--activations", choices=("float32", "q8", "q16"), default="float32",
        help="q8, q16: quantised to 8 or 15 bits, for integer products; with q8, prompts are read "
        "in bfloat16 where the processor has matrix tiles",
    )  # fmt: skip
    parser.add_argument(
        "--kv-dtype", choices=("float32", "float16"),
        help="dtype of the cached keys and values; default: float16 with q8, else float32",
    )  # fmt: skip
    parser.add_argument(
        "--max-context", type=_positive, metavar="N",
        help="positions kept; default: the model's own, 4096 at most",
    )  # fmt: skip
    _machine(parser)


def _machine(parser: argparse.ArgumentParser) -> None:
    _threads(parser)
    parser.add_argument("--no-cache", action="store_true", help="compile anew, keep nothing")


def _threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=_thread_count, metavar="K", help="default: all cores")


def _sampling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-new-tokens", type=_positive, default=128, metavar="N")
    parser.add_argument("--greedy", action="store_true", help="always the most likely token")
    parser.add_argument("--temperature", type=float, default=0.6, metavar="T")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="0: all")
    parser.add_argument("--top-p", type=float, default=0.95, metavar="P")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same draws")


def sampler_of(options: argparse.Namespace) -> Sampler:
    """The sampler that the options describe. SamplingError for one out of range."""
    from relaxlab.models.sampling import Sampler

    if options.greedy:
        return Sampler()
    return Sampler(options.temperature, options.top_k, options.top_p, options.seed)


def _path(text: str) -> str:
    """The name of a file or folder. An empty one, such as an unset variable of a shell, would mean
    the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("names no file or folder: it is empty")
    return text


def _size(text: str) -> tuple[str, int]:
    """A symbol and its value."""
    name, _, value = text.partition("=")
    if not name.isidentifier() or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, such as n=1024, is {text!r}")
    return name, int(value)


def _target(text: str) -> str:
    """The name of a target that there is."""
    from relaxlab.ir.target import parse_target

    try:
        parse_target(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _thread_count(text: str) -> int:
    from relaxlab.runtime.native.loaded import MOST_THREADS

    value = _positive(text)
    if value > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_THREADS}, is {text!r}")
    return value


def _positive(text: str) -> int:
    return _count(text, least=1)


def _count(text: str, least: int = 0) -> int:
    value = int(text) if text.isdecimal() else -1
    if value < least:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, is {text!r}")
    return value
