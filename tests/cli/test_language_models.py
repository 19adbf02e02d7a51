"""`relaxlab chat` and `generate`: commands of a conversation, models without a template."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
import time

import pytest

from relaxlab.cli import main
from tests.models.test_decoder import write_folder


def test_chat_has_commands(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("/help\n/rest\n/reset\n"))
    assert main(["chat", "--model", "tiny"]) == 0
    out, err = capsys.readouterr()
    assert not out and "/reset starts anew" in err
    assert "there is no command /rest" in err and "a new conversation" in err


def test_a_model_without_a_template_continues_the_prompt(capsys, tmp_path, rng):
    write_folder(tmp_path, rng)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    command = ["generate", "--model", str(tmp_path), "--prompt", "a", "--max-new-tokens", "2"]
    capsys.readouterr()  # the seed
    assert main([*command, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "has no chat template: it continues the prompt as it stands" in err
    assert json.loads(out)["stopped"] in ("stop", "length")
    assert main([*command, "--raw"]) == 0
    assert "template" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "word " * 300], "tokens, the context holds 256"),
        (["--prompt", "", "--raw"], "the prompt is empty"),
        (["--prompt", "a", "--max-context", "9999"], "max_context must lie in 1..256"),
        (["--prompt", "a", "--prompt", "word " * 300], "tokens, the context holds 256"),
    ],
)
def test_what_cannot_be_answered_is_refused_before_compiling(
    capsys, monkeypatch, tmp_path, options, message
):
    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path))
    assert main(["generate", "--model", "tiny", *options]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no readline")
def test_lines_of_a_chat_can_be_edited():
    """Arrow up brings back the last question; its escape code is not sent to the model. What is
    typed before the model is there is not shown until it is read."""
    import fcntl
    import pty
    import termios

    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "relaxlab", "chat", "--model", "tiny", "--greedy"],
        stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm"},
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )  # fmt: skip
    for _ in range(1200):  # until it is loading, when it has switched the terminal
        if not termios.tcgetattr(terminal)[3] & termios.ECHO:
            break
        time.sleep(0.05)
    os.write(controller, b"What is 2 + 2?\n")
    assert termios.tcgetattr(terminal)[3] & termios.ECHO == 0
    os.close(terminal)
    seen = ""

    def read_until(text: str, count: int) -> None:
        nonlocal seen
        while seen.count(text) < count:
            assert select.select([controller], [], [], 120)[0], f"no {text!r} in {seen!r}"
            seen += os.read(controller, 4096).decode(errors="replace")

    try:
        read_until("2 + 2 = 4.", 1)
        assert seen.index("> ") < seen.index("What is 2 + 2?") and seen.count("What is") == 1
        read_until("> ", 2)  # before it, the terminal itself would echo the key
        os.write(controller, b"\x1b[A\n")
        read_until("2 + 2 = 4.", 2)
        os.write(controller, b"/quit\n")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        os.close(controller)
    assert "^[[A" not in seen
