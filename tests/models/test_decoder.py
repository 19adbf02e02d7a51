"""The decoder of a Llama against the NumPy Llama, run by the interpreter."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from relaxlab import nn
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.models import tiny
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.decoder import Decoder
from relaxlab.models.gguf import GGUFTensor, read_gguf, write_gguf
from relaxlab.models.loader import Checkpoint, ModelError, open_model
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import parse, print_module
from relaxlab.testing.llama_numpy import LlamaNumpy
from tests.models.family_models import write_tokenizer

CONTEXT = 24
PRECISIONS = {
    "float32": nn.FLOAT32,
    "q8": nn.Precision("q8", "q8"),
    "q16": nn.Precision("q16", "q16"),
    "mixed": nn.Precision("q8", "bfloat16"),
}


class Runner:
    """A model with empty caches, run by the interpreter."""

    def __init__(self, checkpoint: Checkpoint, batch: int = 1, **options) -> None:
        self.model = Decoder(checkpoint.config, checkpoint.formats, max_context=CONTEXT, **options)
        methods = ("prefill", "decode", "all_logits")
        self.module, names = self.model.build(methods=methods, batch="b")
        self.weights = checkpoint.weights(self.model, names)
        config = checkpoint.config
        shapes = nn.KVCache.shapes(config.num_kv_heads, config.head_dim, CONTEXT)
        dtype = options.get("kv_dtype", "float32")
        self.cache = [
            np.zeros((batch, *s), dtype) for _ in range(config.num_layers) for s in shapes
        ]

    def __call__(self, method: str, ids, past: int = 0):
        ids = np.atleast_2d(np.array(ids, np.int32))
        return interpret(self.module, method, ids, (past,), *self.cache, *self.weights)


@pytest.fixture(scope="module")
def checkpoint():
    return open_model("tiny")


@pytest.fixture(scope="module")
def oracle():
    return LlamaNumpy.from_gguf(read_gguf(tiny.path()))


@pytest.fixture(scope="module")
def ids(checkpoint):
    return checkpoint.tokenizer.encode("What is two plus three? It is five.")[:CONTEXT]


def assert_close(got, want, tolerance=1e-5):
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


@pytest.mark.parametrize("activations", PRECISIONS)
def test_the_module_is_well_formed_and_prints_as_a_script(checkpoint, activations):
    module = Runner(checkpoint, precision=PRECISIONS[activations]).module
    assert not check_well_formed(module)
    assert_structural_equal(parse(print_module(module)), module)


def test_layers_share_their_loop_functions(checkpoint):
    one = Decoder(replace(checkpoint.config, num_layers=1), checkpoint.formats, max_context=8)
    three = Decoder(checkpoint.config, checkpoint.formats, max_context=8)
    assert one.build()[0].loop_functions().keys() == three.build()[0].loop_functions().keys()


def test_logits_of_all_positions(checkpoint, oracle, ids):
    got = Runner(checkpoint)("all_logits", ids)
    assert got.shape == (1, len(ids), checkpoint.config.vocab_size)
    assert_close(got[0], oracle.logits(ids))


@pytest.mark.parametrize("cut", [1, 5, 13])
def test_positions_join_the_cache_in_any_pieces(checkpoint, oracle, ids, cut):
    run = Runner(checkpoint)
    want = oracle.logits(ids)
    assert_close(run("prefill", ids[:cut])[0], want[cut - 1])
    assert_close(run("prefill", ids[cut:-1], cut)[0], want[-2])
    assert_close(run("decode", ids[-1:], len(ids) - 1)[0], want[-1])


def test_a_batch_is_its_sequences(checkpoint, oracle, ids):
    length = len(ids) // 2
    both = np.array([ids[:length], ids[length : 2 * length]])
    got = Runner(checkpoint, batch=2)("prefill", both)
    for row, sequence in zip(got, both, strict=True):
        assert_close(row, oracle.logits(sequence)[-1])


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"precision": PRECISIONS["q16"]}, 1e-3),
        ({"precision": PRECISIONS["q8"]}, 0.1),
        ({"precision": PRECISIONS["mixed"]}, 0.05),
        ({"kv_dtype": "float16"}, 1e-2),
    ],
)
def test_reduced_precision_stays_close(checkpoint, oracle, ids, options, tolerance):
    assert_close(Runner(checkpoint, **options)("all_logits", ids)[0], oracle.logits(ids), tolerance)


def small_config(**changes) -> DecoderConfig:
    return replace(
        DecoderConfig(
            hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, ffn_size=96,
            vocab_size=50, context_length=64, norm_eps=1e-5, rope=Rope(1e4, 16, True),
        ),
        **changes,
    )  # fmt: skip


def random_weights(config, rng):
    return {
        name: (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)
        if len(shape) > 1
        else (1 + rng.normal(size=shape) / 10).astype(np.float32)
        for name, shape in config.tensor_shapes().items()
    }


def test_projections_of_mixed_formats_are_not_merged(checkpoint, rng):
    config = small_config()
    kinds = {"attn_v": "Q8_0", "ffn_gate": "Q5_1", "ffn_up": "F16", "output": "Q5_0"}
    tensors = {}
    for name, values in random_weights(config, rng).items():
        kind = kinds.get(name.split(".")[-2], "Q4_0") if values.ndim > 1 else "F32"
        tensors[name] = GGUFTensor.quantised(name, values, kind)
    formats = {name: t.format.name for name, t in tensors.items()}
    fields = {name: t.fields() for name, t in tensors.items()}
    embedding = tensors["token_embd.weight"]
    whole = embedding.format.blocks(embedding.raw, embedding.shape)
    fields["token_embd.weight"] |= {"blocks": whole}  # which are looked up as a file has them
    mixed = replace(checkpoint, config=config, formats=formats, read=fields.__getitem__)
    run = Runner(mixed)
    assert run.model.blocks[0].attention.qkv.groups == [["q", "k"], ["v"]]
    assert run.model.blocks[0].mlp.gate_up.groups == [["gate"], ["up"]]
    ids = rng.integers(0, 50, 9).tolist()
    weights = {name: t.dequantise() for name, t in tensors.items()}
    assert_close(run("all_logits", ids)[0], LlamaNumpy(config, weights).logits(ids))


HUGGING_FACE = {
    "token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def write_folder(folder, rng):
    """A random model as Hugging Face stores it, with a byte-level tokenizer without merges."""
    config = small_config(rope=Rope(1e4, 16), vocab_size=260)
    weights = random_weights(config, rng)
    theirs = {}
    for name, values in weights.items():
        *block, short, _ = name.split(".")
        prefix = f"layers.{block[1]}." if block else ""
        theirs["lm_head.weight" if short == "output" else
               f"model.{prefix}{HUGGING_FACE[short]}.weight"] = values  # fmt: skip
    save_file(theirs, folder / "model.safetensors")
    values = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 96, "vocab_size": 260, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(values))
    template = "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}"
    write_tokenizer(folder, {"chat_template": template})
    return config, weights


def test_a_hugging_face_folder(tmp_path, rng):
    config, weights = write_folder(tmp_path, rng)
    opened = open_model(tmp_path)
    assert opened.config == config
    ids = opened.tokenizer.encode("No 12 ö")
    assert opened.tokenizer.decode(ids) == "No 12 ö" and len(ids) == 8
    assert opened.chat.encode([{"role": "user", "content": "a"}]) == [256, ids_of(opened, "a"), 257]
    assert opened.tokenizer.stop_ids == {257}
    got = Runner(opened)("all_logits", ids)[0]
    assert_close(got, LlamaNumpy(config, weights).logits(ids))


def ids_of(opened, character):
    (only,) = opened.tokenizer.encode(character)
    return only


def test_errors_of_folders(tmp_path, rng):
    write_folder(tmp_path, rng)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text().replace("\u0120", "no space"))
    with pytest.raises(ValueError, match="tokenizer.json: only vocabularies of bytes"):
        open_model(tmp_path)
    for damaged in ("[1]", '{"model": {"vocab": 1}}'):
        file.write_text(damaged)
        with pytest.raises(ValueError, match="tokenizer.json: "):
            open_model(tmp_path)
    bias = {"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)}
    save_file(bias, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"no use for: model\.layers\.0\.self_attn\.q_proj\.bias"):
        open_model(tmp_path)
    save_file({"model.norm.weight": np.ones(64, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"no tensor 'model\.embed_tokens\.weight'"):
        open_model(tmp_path)


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .* has no config\.json; give a GGUF file"):
        open_model(tmp_path)
    with pytest.raises(FileNotFoundError, match="no model 'nothing.gguf'.*smollm2-135m, tiny"):
        open_model("nothing.gguf")


def test_a_tokenizer_larger_than_the_embedding(tmp_path):
    gguf = read_gguf(tiny.path())
    tensors = dict(gguf.tensors)
    whole = tensors["token_embd.weight"].dequantise()
    tensors["token_embd.weight"] = GGUFTensor.quantised("token_embd.weight", whole[:-32], "Q8_0")
    write_gguf(tmp_path / "cut.gguf", gguf.metadata, list(tensors.values()))
    with pytest.raises(ValueError, match="tokenizer has 384 tokens, the embedding only 352 rows"):
        open_model(tmp_path / "cut.gguf")
