"""Chat templates: the Jinja program in a model's metadata that turns messages into one prompt.

The template comes from the model file, so it runs in Jinja's immutable sandbox: it sees the values
given here and no others, and can neither change them nor reach Python's internals.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError
from relaxlab.models.gguf import GGUF
from relaxlab.models.tokenizer import Tokenizer


class ChatError(UserError, ValueError):
    """The model has no chat template, it is broken, or it refuses the messages."""


Message = Mapping[str, str]

# What compiling or running a template may raise; a bug in it must not end the program.
_FAILURES = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError,
             RecursionError, SyntaxError, TypeError, ValueError)  # fmt: skip


class _Sandbox(ImmutableSandboxedEnvironment):
    """Also refuses powers and repetition, with which one short expression could fill the memory."""

    intercepted_binops = frozenset(["**", "*"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*" and isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
        raise SecurityError(f"'{operator}' of {type(left).__name__} and {type(right).__name__}")


class ChatTemplate(Brief):
    """A compiled chat template. Messages are mappings with the keys ``role`` and ``content``."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        """ChatError if `source` is not a valid template, with the line."""
        self._tokenizer = tokenizer
        environment = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ChatError(f"chat template, line {error.lineno}: {error.message}") from None
        except _FAILURES as error:
            raise ChatError(f"chat template: {error or type(error).__name__}") from None

    @staticmethod
    def from_gguf(gguf: GGUF, tokenizer: Tokenizer) -> ChatTemplate:
        """The template of an open GGUF file; ChatError if it has none."""
        source = gguf.metadata.get("tokenizer.chat_template")
        if not isinstance(source, str):
            raise ChatError(
                f"{gguf.path}: the model has no chat template; give it a raw prompt instead"
            )
        return ChatTemplate(source, tokenizer)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt text. `add_generation_prompt` ends it where the assistant's answer begins.

        ChatError if there are no messages, one lacks role or content, or the template fails.
        """
        if not messages:
            raise ChatError("a chat needs at least one message")
        for index, message in enumerate(messages):
            for key in ("role", "content"):
                if not isinstance(message.get(key), str):
                    raise ChatError(f"message {index} has no text under '{key}'")
        try:
            return self._template.render(
                messages=[dict(m) for m in messages],
                add_generation_prompt=add_generation_prompt,
                bos_token=self._text_of(self._tokenizer.bos_id),
                eos_token=self._text_of(self._tokenizer.eos_id),
            )
        except _FAILURES as error:
            raise ChatError(f"the chat template failed: {error or type(error).__name__}") from None

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the prompt for the assistant's next answer; ChatError as for `render`."""
        text = self.render(messages)
        bos = self._text_of(self._tokenizer.bos_id)
        # Many templates write the first token themselves; it must not come twice.
        add_bos = self._tokenizer.add_bos and not (bos and text.startswith(bos))
        return self._tokenizer.encode(text, parse_special=True, add_bos=add_bos)

    def _text_of(self, id: int | None) -> str:
        return "" if id is None else self._tokenizer.token(id)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _to_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML, which a prompt is not.
    return json.dumps(value, ensure_ascii=False, indent=indent)
