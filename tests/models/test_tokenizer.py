"""Tokenizers built from GGUF tables: known ids, independent references, round trips."""

import itertools
import json
import random

import numpy as np
import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Pipeline

from relaxlab.models.tokenizer import TokenizerError
from relaxlab.models.tokenizer_gguf import _PRE_TOKENIZERS, tokenizer_from_gguf, tokenizer_of
from relaxlab.models.tokenizer_json import read_tokenizer_json

SAMPLES = [
    "Hello, world!",
    "I'll say it's 3.14159, don't you?",
    "  two spaces,\ttab\n\n\nlines  \n end ",
    "naïve façade — “quotes” … ½ ² Ⅷ",
    "你好，世界。 日本語テキスト Привет, мир! مرحبا",
    "🎉 👩‍👩‍👧 e\u0301",
    "def f(x):\n    return x**2  # comment\r\n",
    "",
    " ",
    "\n",
]


@pytest.fixture(scope="module")
def smol(smollm2):
    return tokenizer_from_gguf(smollm2)


def random_text(rng: random.Random) -> str:
    pools = ["abc XYZ '", "0123456789½²", " \t\n\r\u00a0\u3000", "éñöß漢字かな", "🎉👍🏽\u200d"]
    pools += [".,;!?$+<=>^"]
    return "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(0, 40)))


def test_known_ids(smol):
    assert smol.encode("The capital of France is Paris.") == [504, 3575, 282, 4649, 314, 7042, 30]
    assert smol.encode("2024") == [34, 32, 34, 36]
    assert (smol.bos_id, smol.eos_id, smol.add_bos, smol.vocab_size) == (1, 2, False, 49152)
    assert smol.stop_ids == {0, 2}
    assert smol.token(2) == "<|im_end|>"


def test_same_ids_as_published_pipeline(smol, smollm2):
    """SmolLM's own description: single digits, then the byte-level splitter with its built-in
    pattern. We cut by patterns of our own table."""
    tokens = smollm2.metadata["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in smollm2.metadata["tokenizer.ggml.merges"]]
    reference = Pipeline(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    reference.decoder = decoders.ByteLevel()
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for text in [*SAMPLES, *(random_text(rng) for _ in range(500))]:
        ids = smol.encode(text)
        assert ids == reference.encode(text).ids, repr(text)
        assert smol.decode(ids) == text == reference.decode(ids)


def test_control_tokens_count_only_when_asked(smol):
    text = "a<|im_end|>\nb"
    assert 2 not in smol.encode(text)
    assert smol.decode(smol.encode(text)) == text
    ids = smol.encode(text, parse_special=True)
    assert ids.count(2) == 1
    assert smol.decode(ids) == "a\nb"
    assert smol.decode(ids, skip_special=False) == text


def test_bos_on_request(smol):
    assert smol.encode("a", add_bos=True) == [1, *smol.encode("a")]


def test_stream_never_splits_a_character(smol):
    text = "naïve 🎉👩‍👩‍👧 日本語 \ufffd end"
    stream = smol.stream()
    ids = smol.encode(text)
    parts = [stream.step(i) for i in ids] + [stream.finish()]
    assert "".join(parts) == text
    # Every prefix shown on the way is a prefix of the text: no replacement characters come and go.
    assert all(text.startswith("".join(parts[:n])) for n in range(len(parts)))
    assert "" in parts


def test_stream_ends_in_the_middle_of_a_character(smol):
    ids = smol.encode("🎉")
    assert len(ids) > 1
    assert smol.decode(ids[:-1]) == "\ufffd"


def test_bad_arguments(smol):
    with pytest.raises(ValueError, match="token id 49152 is not in the vocabulary of 49152"):
        smol.decode([49152])
    with pytest.raises(ValueError, match="token id -1"):
        smol.decode([-1])
    with pytest.raises(ValueError, match="not valid Unicode"):
        smol.encode("\ud800")


# Small tables made here.


def byte_level(pre: str, merges: list[str], extra: list[str] = (), **more) -> dict:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(m.replace(" ", "") for m in merges), *extra]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        **{f"tokenizer.ggml.{k}": v for k, v in more.items()},
    }


def pieces(pre: str, text: str, **more) -> list[str]:
    """Return the pieces that a pre-tokenizer cuts: merges join everything they are allowed to."""
    merges = ["1 2", "12 3", "123 4", "a b", "Ġ ab", "ab c", "Ġab c", ". .", "' S", "( ab", "ab 1"]
    tokenizer = tokenizer_of(byte_level(pre, merges, bos_token_id=0, add_bos_token=False, **more))
    return [tokenizer.token(i) for i in tokenizer.encode(text)]


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "1234", ["1234"]),
        ("smollm", "1234", ["1", "2", "3", "4"]),
        ("qwen2", "1234", ["1", "2", "3", "4"]),
        ("smaug-bpe", "1234", ["123", "4"]),
        ("deepseek-coder", "1234 (ab", ["1", "2", "3", "4", "Ġ", "(", "ab"]),
        ("llama-bpe", "1234", ["123", "4"]),
        ("default", "1234", ["123", "4"]),
        ("gpt-2", "abc abc", ["abc", "Ġabc"]),
        ("llama-bpe", "(ab", ["(ab"]),
        ("gpt-2", "(ab", ["(", "ab"]),
        ("llama-bpe", "x'Sx", ["x", "'S", "x"]),
        ("gpt-2", "ab1", ["ab", "1"]),
        ("phi-2", "abc abc", ["abc", "Ġabc"]),
        ("llama3", "1234", ["123", "4"]),
        ("falcon3", "(ab", ["(ab"]),
        ("deepseek-r1-qwen", "1234", ["1", "2", "3", "4"]),
        ("gpt-4o", "1234 abcABC", ["123", "4", "Ġabc", "A", "B", "C"]),
        ("tekken", "1234 abc", ["1", "2", "3", "4", "Ġabc"]),
    ],
)
def test_pre_tokenizers_cut_where_they_should(pre, text, expected):
    assert pieces(pre, text) == expected


@pytest.mark.parametrize(
    ("pre", "expected"),
    [("qwen2", ["ह", "िन", "्द", "ी,", " a", "1"]), ("qwen35", ["हिन्दी", ",", " a", "1"])],
)
def test_combining_marks_are_letters_for_some(pre, expected):
    (pattern,) = _PRE_TOKENIZERS[pre].patterns
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    assert [piece for piece, _ in split.pre_tokenize_str("हिन्दी, a1")] == expected


def test_whole_words_need_no_merges():
    table = byte_level("llama-bpe", ["a b"], ["xyz"], bos_token_id=0)
    tokenizer = tokenizer_of(table)
    assert [tokenizer.token(i) for i in tokenizer.encode("xyz")[1:]] == ["xyz"]
    assert tokenizer.encode("xyz")[0] == 0  # Llama 3 starts with its first token unless told not to


def test_added_words_are_found_in_any_text():
    table = byte_level("gpt-2", ["a b"], ["<tool>"])
    table["tokenizer.ggml.token_type"] = np.array([1] * 257 + [4], np.int32)
    tokenizer = tokenizer_of(table)
    ids = tokenizer.encode("ab<tool>ab")
    assert [tokenizer.token(i) for i in ids] == ["ab", "<tool>", "ab"]
    assert tokenizer.decode(ids) == "ab<tool>ab"


def sentencepiece(pieces: dict[str, float], **more) -> dict:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    types = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array([0.0] * 259 + list(pieces.values()), np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{k}": v for k, v in more.items()},
    }


PIECES = {c: -100.0 - i for i, c in enumerate("▁abcdeh")} | {
    "▁a": -1.0, "ab": -2.0, "bc": -3.0, "▁ab": -4.0, "abc": -5.0, "de": -6.0, "cde": -7.0,
    "▁abc": -8.0, "▁▁": -9.0, "he": -10.0, "▁he": -11.0,
}  # fmt: skip


def merge_by_score(text: str) -> list[str]:
    """SentencePiece's rule, straight: join the best-scoring neighbours, leftmost first."""
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = enumerate(map("".join, itertools.pairwise(parts)))
        joined = [(PIECES[pair], -i) for i, pair in pairs if pair in PIECES]
        if not joined:
            return parts
        at = -max(joined)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def test_sentencepiece_merges_by_score():
    tokenizer = tokenizer_of(sentencepiece(PIECES))
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(300):
        text = "".join(rng.choice("abcdeh  ") for _ in range(rng.randint(1, 12)))
        ids = tokenizer.encode(text)
        assert ids[0] == 1
        assert [tokenizer.token(i) for i in ids[1:]] == merge_by_score(text), repr(text)
        assert tokenizer.decode(ids) == text


def test_sentencepiece_falls_back_to_bytes():
    tokenizer = tokenizer_of(sentencepiece(PIECES))
    ids = tokenizer.encode("aé🎉", add_bos=False)
    assert [tokenizer.token(i) for i in ids[1:3]] == ["<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == "aé🎉"
    assert tokenizer.decode(tokenizer.encode(" he  abc")) == " he  abc"
    bare = tokenizer_of(sentencepiece(PIECES, add_space_prefix=False))
    assert bare.token(bare.encode("he")[-1]) == "he"
    assert bare.decode(bare.encode(" he")) == " he"


BAD_TABLES = [
    ({"model": "wordpiece"}, "tokenizer model 'wordpiece'"),
    ({"pre": "nobody"}, "pre-tokenizer 'nobody' .* supported are default, gpt-2"),
    ({"tokens": None}, "'tokenizer.ggml.tokens' is missing"),
    ({"tokens": [1, 2]}, "must be a list of strings"),
    ({"tokens": ["a", "a"]}, "the token 'a' twice"),
    ({"token_type": np.array([1])}, "one integer for each"),
    ({"merges": ["ab"]}, "'ab'; expected two parts"),
    ({"merges": ["a b c"]}, "'a b c'; expected two parts"),
    ({"merges": ["a nothing"]}, "do not fit together"),
    ({"eos_token_id": 9999}, "eos_token_id' is 9999, not one of"),
    ({"eos_token_id": -1}, "eos_token_id' is -1"),
    ({"eos_token_id": "x"}, "eos_token_id' is 'x'"),
    ({"add_bos_token": 1}, "must be a boolean"),
    ({"add_bos_token": True}, "names no bos_token_id"),
]


@pytest.mark.parametrize(("change", "message"), BAD_TABLES)
def test_bad_tables_are_named(change, message):
    with pytest.raises(TokenizerError, match=message):
        tokenizer_of(
            byte_level("gpt-2", ["a b"]) | {f"tokenizer.ggml.{k}": v for k, v in change.items()}
        )


def test_bad_sentencepiece_tables_are_named():
    with pytest.raises(TokenizerError, match="scores"):
        tokenizer_of(sentencepiece(PIECES, scores=np.zeros(3)))
    table = sentencepiece(PIECES)
    table["tokenizer.ggml.tokens"][5] = "<0xZZ>"
    with pytest.raises(TokenizerError, match="'<0xZZ>' as the name of a byte"):
        tokenizer_of(table)


SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, SPACE]}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
FIRST = METASPACE | {"prepend_scheme": "first"}
SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
         "invert": False}  # fmt: skip


def write_sentencepiece(folder, normalizer, splitter):
    """A `tokenizer.json` with the bytes and what BPE learns from the samples."""
    pipeline = Pipeline(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    pipeline.normalizer = normalizers.Replace(" ", "▁")
    special = ["<unk>", "<s>", "</s>"]
    every_byte = [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special + every_byte)
    pipeline.train_from_iterator(["▁" + s for s in SAMPLES[:2] + ["hello world world"]], trainer)
    content = json.loads(pipeline.to_str())
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] in special]
    content |= {"normalizer": normalizer, "pre_tokenizer": splitter}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>"})
    )


SPLIT_METASPACE = METASPACE | {"split": True}


@pytest.mark.parametrize(
    ("normalizer", "splitter"),
    [(PREPEND, None), (SPACE, SPLIT), (SPACE, None), (None, METASPACE), (None, FIRST),
     (None, SPLIT_METASPACE)],
    ids=["llama", "gemma", "no splitter", "metaspace", "metaspace at first", "metaspace splits"],
)  # fmt: skip
def test_sentencepiece_from_json(tmp_path, normalizer, splitter):
    write_sentencepiece(tmp_path, normalizer, splitter)
    theirs = Pipeline.from_file(str(tmp_path / "tokenizer.json"))
    ours, _ = read_tokenizer_json(tmp_path)
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for text in [*SAMPLES, *(random_text(rng) for _ in range(50))]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False).ids, text
        # Metaspace puts no space before one that is there, so it cannot be told apart later.
        is_lost = splitter in (METASPACE, FIRST, SPLIT_METASPACE) and text.startswith(" ")
        assert ours.decode(ids) == text[is_lost:]
    text = "Hello<s> world"
    ids = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, parse_special=True) == ids
    assert (ours.bos_id, ours.eos_id, ours.add_bos) == (1, 2, False)
    assert ours.token_bytes(ours.encode("é")[-1]) == "é".encode()[-1:]


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


@pytest.mark.parametrize("splitter", [
    pre_tokenizers.ByteLevel(add_prefix_space=False),
    # A pattern that has no name in GGUF files.
    pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\d{2}|[aeiou]+"), "isolated"), BYTES]),
    pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), BYTES]),
])  # fmt: skip
@pytest.mark.parametrize("normalizer", [None, normalizers.NFC(), normalizers.Lowercase()])
def test_bytes_from_json(tmp_path, splitter, normalizer):
    pipeline = Pipeline(models.BPE())
    pipeline.pre_tokenizer, pipeline.decoder = splitter, decoders.ByteLevel()
    if normalizer is not None:
        pipeline.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "<|im_end|>"],
    )  # fmt: skip
    pipeline.train_from_iterator(SAMPLES, trainer)
    pipeline.add_tokens(["<tool é>"])
    pipeline.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    # A call asks for neither of these.
    pipeline.enable_truncation(3)
    pipeline.enable_padding(length=20)
    pipeline.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": {"content": "<s>"}}')
    ours, _ = read_tokenizer_json(tmp_path)
    assert (ours.bos_id, ours.eos_id, ours.add_bos, ours.stop_ids) == (0, None, True, {1})
    pipeline.no_truncation()
    pipeline.no_padding()
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for text in [*SAMPLES, *(random_text(rng) + "<tool é>" for _ in range(50))]:
        ids = ours.encode(text)
        assert ids == pipeline.encode(text).ids, text
        assert ours.decode(ids) == pipeline.decode(ids)


def test_unigram_pieces_from_json(tmp_path):
    pieces = [("<unk>", 0.0), ("▁", -2.0), *((c, -3.0) for c in "ehlo"), ("▁he", -1.5)]
    pipeline = Pipeline(models.Unigram(pieces, unk_id=0))
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    pipeline.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    tokenizer, _ = read_tokenizer_json(tmp_path)
    ids = tokenizer.encode("hello hello")
    assert ids == pipeline.encode("hello hello").ids
    assert tokenizer.decode(ids) == pipeline.decode(ids) == "hello hello"


def test_vocabularies_of_words_are_refused(tmp_path):
    words = {word: i for i, word in enumerate(["[UNK]", "a", "##b"])}
    pipeline = Pipeline(models.WordPiece(words, unk_token="[UNK]"))
    pipeline.pre_tokenizer = pre_tokenizers.Whitespace()
    pipeline.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(TokenizerError, match="bytes and of SentencePiece .* 'a a' becomes"):
        read_tokenizer_json(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "parseHTMLToJSON isn't WE'RE 12345 a/b//\n  x\u0301y",
        "ÀÉÎabc ǅ ª straße",
        " \n\n  end ",
    ],
)
def test_patterns_by_case_are_those_of_the_published_tokenizers(text):
    """GPT-4o's, which OpenAI publishes with tiktoken, and Tekken's, written out."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    rest = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    begin, suffix = r"[^\r\n\p{L}\p{N}]?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    for name, end, digits in (("gpt-4o", suffix, r"\p{N}{1,3}"), ("tekken", "", r"\p{N}")):
        words = f"{begin}{upper}*{lower}+{end}|{begin}{upper}+{lower}*{end}"
        split = pre_tokenizers.Split(Regex(f"{words}|{digits}{rest}"), "isolated")
        want = [piece for piece, _ in split.pre_tokenize_str(text)]
        (pattern,) = _PRE_TOKENIZERS[name].patterns
        mine = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
        assert [piece for piece, _ in mine] == want and "".join(want) == text


def write_folder(folder, **config):
    """A byte-level tokenizer as Hugging Face stores it, with settings."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pipeline = Pipeline(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_where_chat_templates_are(tmp_path):
    write_folder(tmp_path)
    assert read_tokenizer_json(tmp_path)[1] is None
    write_folder(tmp_path, chat_template="text")
    assert read_tokenizer_json(tmp_path)[1] == "text"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    write_folder(tmp_path, chat_template=named)
    assert read_tokenizer_json(tmp_path)[1] == "d"
    write_folder(tmp_path, chat_template=named[:1])
    assert read_tokenizer_json(tmp_path)[1] == "t"
    write_folder(tmp_path, chat_template=[named[0], {"name": "rag", "template": "r"}])
    with pytest.raises(TokenizerError, match="templates tool_use, rag none is the default"):
        read_tokenizer_json(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("file")
    assert read_tokenizer_json(tmp_path)[1] == "file"


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [({"a": -1}, "integer `-1`"), ({"a": 4 * 10**9}, "token 'a' has the id 40{9}, and there are 1"),
     ({}, "'a a' becomes")],
)  # fmt: skip
def test_bad_vocabularies_are_refused(tmp_path, vocabulary, message):
    write_folder(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"] = vocabulary
    file.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=message):
        read_tokenizer_json(tmp_path)


def test_damaged_files_are_named(tmp_path):
    with pytest.raises(TokenizerError, match="the folder has no tokenizer.json"):
        read_tokenizer_json(tmp_path)
    write_folder(tmp_path, bos_token="<s>")
    with pytest.raises(TokenizerError, match="not laid out as expected: KeyError.*<s>"):
        read_tokenizer_json(tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text("[" * 100_000)
    with pytest.raises(TokenizerError, match="tokenizer_config.json: not JSON"):
        read_tokenizer_json(tmp_path)
    settings.unlink()
    with pytest.raises(TokenizerError, match="the folder has no tokenizer_config.json"):
        read_tokenizer_json(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[" * 100_000)
    with pytest.raises(TokenizerError, match="tokenizer.json: "):
        read_tokenizer_json(tmp_path)
