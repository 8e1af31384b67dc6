"""Adapters, modules and checkpoints made and loaded by the libraries themselves: the same counts, and the same bytes once loaded."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.facts.repository import understand
from hubaudit.hub.fetching import fetch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hubaudit.types import ModelFacts

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # the libraries warn each other

LLAMA: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}  # fmt: skip


def bytes_of(tensors: Iterable[Any]) -> int:
    """Bytes of these tensors, each storage once."""
    return sum({tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors}.values())


def read(folder: Path) -> ModelFacts:
    """What hubaudit makes of a folder."""
    return understand(fetch(str(folder), offline=True))


def save_llama(folder: Path, dtype: str = "bfloat16", *, tied: bool = False) -> Any:
    """A small Llama in a folder, as safetensors."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, tie_word_embeddings=tied))
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "how",
    [
        {"target_modules": ["q_proj", "v_proj"]},
        {"target_modules": "all-linear", "use_dora": True},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"], "bias": "lora_only"},
    ],
    ids="+".join,
)
def test_an_adapter_once_loaded(dtype: str, how: dict[str, Any], tmp_path: Path) -> None:
    """PEFT saves it and loads it onto its base: what it then takes is what was told."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    model = save_llama(tmp_path / "base", dtype)
    tuned = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=4, **how))
    tuned.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    tuned.save_pretrained(tmp_path / "adapter")
    facts = read(tmp_path / "adapter")
    base, own = facts.components
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    assert base.resident_bytes == bytes_of(loaded.parameters())
    with_adapter = peft.PeftModel.from_pretrained(loaded, tmp_path / "adapter")
    assert facts.resident_bytes == bytes_of(with_adapter.parameters())
    saved = peft.utils.save_and_load.load_peft_weights(str(tmp_path / "adapter"), device="cpu")
    assert own.parameters is not None
    assert own.parameters.total == sum(tensor.numel() for tensor in saved.values())
    assert facts.parameters is not None
    assert base.parameters is not None
    assert facts.parameters.total == base.parameters.total + own.parameters.total


@pytest.mark.parametrize("kind", ["IA3Config", "LoHaConfig", "VeraConfig", "OFTConfig"])
def test_other_adapters(kind: str, tmp_path: Path) -> None:
    """Adapters of other kinds are counted by what their files hold."""
    peft = pytest.importorskip("peft")
    model = save_llama(tmp_path / "base", "float32")
    options: dict[str, Any] = {"target_modules": ["q_proj"]} | (
        {"feedforward_modules": []} if kind == "IA3Config" else {}
    )
    tuned = peft.get_peft_model(model, getattr(peft, kind)(**options))
    tuned.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    tuned.save_pretrained(tmp_path / "adapter")
    saved = peft.utils.save_and_load.load_peft_weights(str(tmp_path / "adapter"), device="cpu")
    own = read(tmp_path / "adapter").components[1]
    assert own.parameters is not None
    assert own.parameters.total == sum(tensor.numel() for tensor in saved.values())
    assert own.architecture == tuned.peft_config["default"].peft_type.value


def test_sentence_transformers_with_a_dense_module(tmp_path: Path) -> None:
    """The library saves a transformer, a pooling and a Dense; loaded again, it has as many parameters and bytes."""
    st, transformers = pytest.importorskip("sentence_transformers"), pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).to(torch.bfloat16).save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))])
    )
    transformers.BertTokenizer(str(tmp_path / "bert" / "vocab.txt")).save_pretrained(tmp_path / "bert")
    kinds = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    modules = [
        kinds.Transformer(str(tmp_path / "bert")),
        kinds.Pooling(16),
        kinds.Dense(in_features=16, out_features=4),
    ]
    st.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    loaded = st.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    facts = read(tmp_path / "model")
    assert facts.parameters is not None
    assert facts.parameters.total == sum(parameter.numel() for parameter in loaded.parameters())
    assert facts.resident_bytes == bytes_of(loaded.parameters())
    assert len(facts.components) == 2


@pytest.mark.parametrize("heads", [2, 4])
def test_tables_that_are_made_and_not_saved(heads: int, tmp_path: Path) -> None:
    """Marian's tables of positions are in no file; loaded, the model has the bytes that were told."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.MarianConfig(
        vocab_size=96, d_model=8 * heads, max_position_embeddings=40, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=heads, decoder_attention_heads=heads, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    transformers.MarianMTModel(config).to(torch.bfloat16).save_pretrained(tmp_path)
    loaded = transformers.MarianMTModel.from_pretrained(tmp_path)
    saved = [loaded.get_buffer("final_logits_bias")]
    facts = read(tmp_path)
    assert [tensor.shape for tensor in facts.made] == [(40, 8 * heads)] * 2
    assert facts.resident_bytes == bytes_of([*loaded.parameters(), *saved])


BERT: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("saved", "named"),
    [
        ("BertForPreTraining", "BertForMaskedLM"),  # as bert-base-uncased
        ("BertForPreTraining", "BertModel"),  # its tensors stand below "bert."
        ("BertForNextSentencePrediction", "BertModel"),
    ],
)
def test_parts_that_the_class_lacks_are_not_loaded(saved: str, named: str, tmp_path: Path) -> None:
    """A checkpoint of another class than the config names: all of it is counted in the files, and what transformers builds of it as loaded."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    made = getattr(transformers, saved)
    model = made(made.config_class(**BERT)).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": [named]}))
    facts = read(tmp_path)
    loaded = getattr(transformers, named).from_pretrained(tmp_path)
    assert facts.parameters is not None
    assert facts.parameters.total == sum(tensor.numel() for tensor in model.parameters())
    assert facts.parameters.loaded == sum(tensor.numel() for tensor in loaded.parameters())
    assert facts.resident_bytes == bytes_of(loaded.parameters())
    assert facts.built


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_torch_checkpoint_is_the_safetensors_one(tied: bool, shards: int, tmp_path: Path) -> None:
    """The same model as pytorch_model.bin, tied weights and shards included, has the same facts but for its format."""
    torch = pytest.importorskip("torch")
    model = save_llama(tmp_path / "safe", tied=tied)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "config.json").write_bytes((tmp_path / "safe" / "config.json").read_bytes())
    state = model.state_dict()
    if shards == 1:
        torch.save(state, tmp_path / "bin" / "pytorch_model.bin")
    else:
        names = list(state)
        first = {
            name: names.index(next(other for other in names if state[other].data_ptr() == state[name].data_ptr()))
            % shards
            for name in names
        }
        paths = [f"pytorch_model-{number:05}-of-{shards:05}.bin" for number in range(1, shards + 1)]
        for at, path in enumerate(paths):
            torch.save({name: state[name] for name in names if first[name] == at}, tmp_path / "bin" / path)
        total = bytes_of(state.values())
        index = {"metadata": {"total_size": total}, "weight_map": {name: paths[first[name]] for name in names}}
        (tmp_path / "bin" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    safe, other = read(tmp_path / "safe"), read(tmp_path / "bin")
    assert other.parameters == safe.parameters
    assert (other.stored_bytes, other.resident_bytes) == (safe.stored_bytes, safe.resident_bytes)
    assert other.resident_bytes == bytes_of(model.parameters())
    assert other.disagreements == safe.disagreements == ()
    same = {"format": None, "chosen": (), "file_bytes": 0, "tensor_groups": (), "tied_embeddings": safe.tied_embeddings}
    assert replace(other, **same) == replace(safe, **same)  # type: ignore[arg-type]


def test_a_gguf_of_the_packages_writer(tmp_path: Path) -> None:
    """A file of gguf's own writer, of several types: its reader's elements and bytes are the counts."""
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count(8)
    writer.add_head_count_kv([2])
    writer.add_token_list([b"a", b"b"])
    for name, shape, kind in (
        ("token_embd.weight", (2, 256), gguf.GGMLQuantizationType.Q8_0),
        ("blk.0.attn_q.weight", (256, 256), gguf.GGMLQuantizationType.Q4_0),
        ("blk.0.attn_norm.weight", (256,), gguf.GGMLQuantizationType.F32),
    ):
        data = numpy.zeros(shape, dtype=numpy.float32)
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    facts = read(tmp_path)
    assert facts.parameters is not None
    assert facts.parameters.total == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert facts.stored_bytes == sum(int(tensor.n_bytes) for tensor in reader.tensors)
    assert (facts.layers.value, facts.kv_heads.value, facts.vocab_size.value) == (1, 2, 2)
    assert facts.layer_plan is not None
    assert [tensor.elements_per_token for tensor in facts.layer_plan[0].tensors] == [64, 64]
