"""Chat templates: the model's own, the usual helpers, and templates that misbehave."""

import pytest
from tokenizers import pre_tokenizers

from relaxlab.models.chat import ChatError, ChatTemplate
from relaxlab.models.tokenizer_gguf import tokenizer_from_gguf, tokenizer_of

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_of({
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>"],
        "tokenizer.ggml.token_type": [1] * 256 + [3],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.add_bos_token": True,
    })  # fmt: skip


def test_smollm2_prompt(smollm2):
    tokenizer = tokenizer_from_gguf(smollm2)
    template = ChatTemplate.from_gguf(smollm2, tokenizer)
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert template.render(HELLO) == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    turns = [{"role": "system", "content": "Be brief."}, *HELLO]
    assert template.render(turns, add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
    )
    ids = template.encode(HELLO)
    assert ids[:3] == [1, 9690, 198] and ids.count(1) == 3 and ids.count(2) == 2
    assert tokenizer.decode(ids, skip_special=False) == template.render(HELLO)


def test_first_token_comes_once(tokenizer):
    for source in ("{{ bos_token }}x", "x"):
        assert ChatTemplate(source, tokenizer).encode(HELLO) == tokenizer.encode("x")


def test_numbers_multiply(tokenizer):
    assert ChatTemplate("{{ 6 * 7 }}", tokenizer).render(HELLO) == "42"


def test_helpers(tokenizer):
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}\n"
        "  {% if true %}\n{{ m.content | tojson }}{% endif %}{% endfor %}{{ strftime_now('%Y') }}"
    )
    text = ChatTemplate(source, tokenizer).render([{"role": "user", "content": "<é>"}] * 2)
    assert text.startswith('"<é>"20')


def test_template_can_refuse(tokenizer):
    template = ChatTemplate("{{ raise_exception('no tools') }}", tokenizer)
    with pytest.raises(ChatError, match="failed: no tools"):
        template.render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__.jinja2 }}",
        "{{ messages.append(1) }}",
        "{{ range(10**9) | list }}",
        "{{ missing.attribute }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% include 'secret' %}",
        "{{ '%d' | format('x') }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 9**9**9**9 }}",
        "{{ 'a' * 10**12 }}",
        "{{ 'a' * 1000000000000 }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if 1 %}" * 200 + "{% endif %}" * 200,
        "{{ 'a' | center(10**30) }}",
        "{{ strftime_now('%\ud800') }}",
    ],
)
def test_sandbox_holds(source, tokenizer):
    with pytest.raises(ChatError, match="chat template"):
        ChatTemplate(source, tokenizer).render(HELLO)


def test_bad_template_and_messages(tokenizer, smollm2):
    with pytest.raises(ChatError, match="line 2"):
        ChatTemplate("\n{% for %}", tokenizer)
    template = ChatTemplate("x", tokenizer)
    for messages, message in [
        ([], "at least one message"),
        ([{"role": "user"}], "message 0 has no text under 'content'"),
        ([*HELLO, {"content": "x"}], "message 1 has no text under 'role'"),
    ]:
        with pytest.raises(ChatError, match=message):
            template.render(messages)
