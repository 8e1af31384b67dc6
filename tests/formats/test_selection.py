"""Which files are the weights: one set for each model, as the loaders choose, and everything else named with its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubaudit.errors import CannotAuditError, NotFoundError
from hubaudit.formats.selection import Selection, select_file, select_parts, select_weights
from hubaudit.formats.weight_names import weight_name
from hubaudit.formats.weight_sets import find_sets, size_of
from hubaudit.types import RepoFile


def listing(*paths: str) -> list[RepoFile]:
    """A listing in which the n-th file has n bytes."""
    return [RepoFile(path=path, size_bytes=at) for at, path in enumerate(paths, 1)]


def chosen(*paths: str) -> tuple[str, ...]:
    """The files that are read of a repository of these."""
    (only,) = select_weights(listing(*paths)).chosen
    return only.files


def others(selection: Selection) -> dict[tuple[str, str | None], tuple[str, ...]]:
    """What is left, by format and variant."""
    return {(one.format, one.variant): one.files for one in selection.others}


# --- as transformers and diffusers choose ----------------------------------------------------------------------------------


# transformers 5.23.0, modeling_utils.py _get_resolved_checkpoint_files: safetensors, their index, pytorch_model.bin, its index.
TRANSFORMERS_ORDER = [
    ["model.safetensors"],
    ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
    ["pytorch_model.bin"],
    ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"],
]
INDEXES = ["model.safetensors.index.json", "pytorch_model.bin.index.json"]


@pytest.mark.parametrize("first", range(4))
def test_transformers_order(first: int) -> None:
    """What transformers would find first is read, whatever else is there."""
    files = [path for one in TRANSFORMERS_ORDER[first:] for path in one]
    indexes = [index for index in INDEXES if first < 2 or "pytorch" in index]
    assert list(chosen(*files, *indexes)) == TRANSFORMERS_ORDER[first]


def test_diffusers_takes_the_index_first() -> None:
    """models/modeling_utils.py looks for the index before the whole file, unlike transformers."""
    shards = [f"diffusion_pytorch_model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = "diffusion_pytorch_model.safetensors.index.json"
    assert list(chosen("diffusion_pytorch_model.safetensors", *shards, index)) == shards


def test_a_variant_is_taken_where_there_is_nothing_else_and_that_is_said() -> None:
    """A plain file wins, even as a .bin, for no loader takes a variant unasked."""
    assert chosen("model.fp16.safetensors", "pytorch_model.bin") == ("pytorch_model.bin",)
    (only,) = select_weights(listing("model.bf16.safetensors", "model.fp16.safetensors")).chosen
    assert (only.files, only.variant) == (("model.fp16.safetensors",), "fp16")
    assert only.note == "only the variant is there: load it with variant='fp16'"


def test_twins_are_counted_once_and_named_with_their_bytes() -> None:
    """safetensors, .bin, TensorFlow, Flax, ONNX and GGUF of one model: one is read, the sizes of the others add up."""
    found = select_weights(
        listing("model.safetensors", "pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "onnx/model.onnx",
                "onnx/model_fp16.onnx", "gguf/model-Q4_K_M.gguf", "config.json", "training_args.bin", "optimizer.pt")
    )  # fmt: skip
    assert found.chosen[0].files == ("model.safetensors",)
    assert others(found) == {
        ("torch", None): ("pytorch_model.bin",),
        ("tensorflow", None): ("tf_model.h5",),
        ("flax", None): ("flax_model.msgpack",),
        ("onnx", None): ("onnx/model.onnx", "onnx/model_fp16.onnx"),
        ("gguf", "Q4_K_M"): ("gguf/model-Q4_K_M.gguf",),
    }
    assert sum(one.size_bytes or 0 for one in found.others) == 2 + 3 + 4 + 5 + 6 + 7


# --- names -----------------------------------------------------------------------------------------------------------------


# Names of real repositories: DeepSeek-V3 (163 in six digits), MiniMax-M1, Kimi-K2, Qwen3.5, Mistral, Meta's originals, legacy variants.
ODD = [
    ["model-00001-of-000163.safetensors", "model-00002-of-000163.safetensors"],
    ["model_00012-of-00072.safetensors", "model_00013-of-00072.safetensors"],
    ["model-1-of-62.safetensors", "model-2-of-62.safetensors"],
    ["model.safetensors-00001-of-00094.safetensors", "model.safetensors-00002-of-00094.safetensors"],
    ["consolidated-00001-of-00039.safetensors", "consolidated-00002-of-00039.safetensors"],
    ["model-00001-of-00002.fp16.safetensors", "model-00002-of-00002.fp16.safetensors"],
    ["model.fp16-00001-of-00002.safetensors", "model.fp16-00002-of-00002.safetensors"],
    ["pytorch_model_00001-of-00072.bin", "pytorch_model_00002-of-00072.bin"],
    ["consolidated.00.pth", "consolidated.01.pth"],
]


@pytest.mark.parametrize("names", ODD, ids=lambda names: names[0])
def test_shards_of_odd_names_belong_together(names: list[str]) -> None:
    """Every spelling that was seen makes one set."""
    (only,) = select_weights(listing(*names)).chosen
    assert list(only.files) == names


def test_missing_shards_are_named_as_their_sisters_are() -> None:
    """The digits, the separator and the count stay; numbering from 0 is no gap at the end."""
    (only,) = select_weights(listing("model_00001-of-00003.safetensors")).chosen
    assert only.missing == ("model_00002-of-00003.safetensors", "model_00003-of-00003.safetensors")
    (only,) = select_weights(listing("model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors")).chosen
    assert only.missing == ()


def test_the_most_complete_of_several_cuts() -> None:
    """A set cut into other numbers of files is another set."""
    found = select_weights(listing("model-00001-of-00003.safetensors", "model-00001-of-00001.safetensors"))
    assert found.chosen[0].files == ("model-00001-of-00001.safetensors",)
    assert others(found) == {("safetensors", None): ("model-00001-of-00003.safetensors",)}


@pytest.mark.parametrize(
    ("index", "shard"),
    [
        ("model.safetensors.index.json", "model-00001-of-00001.safetensors"),
        ("model.safetensors.index.fp16.json", "model.fp16-00001-of-00001.safetensors"),
        ("model.safetensors.fp16.index.json", "model-00001-of-00001.fp16.safetensors"),
        ("model.fp16.safetensors.index.json", "model.fp16-00001-of-00001.safetensors"),
        ("pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"),
    ],
)
def test_an_index_belongs_to_its_shards(index: str, shard: str) -> None:
    """In all spellings that transformers and diffusers have had."""
    (only,) = select_weights(listing(index, shard)).chosen
    assert (only.index, only.files) == (index, (shard,))


@pytest.mark.parametrize(
    "path",
    ["optimizer.bin", "scheduler.pt", "rng_state_0.pth", "training_args.bin", "random_states_0.pt", "imatrix.gguf", "scaler.pt",
     "global_step100/mp_rank_00_model_states.pt", "tokenizer.model", "vocab.bin", "README.md", "events.out.tfevents", "spiece.bin"],
)  # fmt: skip
def test_no_weights(path: str) -> None:
    """What training leaves beside a model, and other binary files, is never taken for one."""
    assert weight_name(path) is None


def test_equal_numbers_begin_another_set() -> None:
    """Two spellings of one shard are two sets, and neither file is lost."""
    names = (
        "model-00001-of-00002.safetensors",
        "model_00001-of-00002.safetensors",
        "model-1-of-2.safetensors",
        "model-01-of-2.safetensors",
    )
    found = select_weights(listing(*names))
    assert sorted(path for one in (*found.chosen, *found.others) for path in one.files) == sorted(names)
    assert len(found.chosen[0].files) == 1


def test_a_count_beyond_belief_is_no_count() -> None:
    """A name does not make us list a million missing shards."""
    (only,) = select_weights(listing("model-00001-of-999999.safetensors")).chosen
    assert only.missing == ()


# --- GGUF ------------------------------------------------------------------------------------------------------------------


def test_a_shard_without_a_count_names_no_other() -> None:
    """Meta's own files say nowhere how many they are: of the fourth alone it is not known what is missing."""
    (only,) = select_weights(listing("consolidated.03.pth")).chosen
    assert only.missing == ()


@pytest.mark.parametrize(("sizes", "expected"), [((5, 7), 12), ((5, None), None), ((), None)])
def test_bytes_of_all_files_or_none(sizes: tuple[int | None, ...], expected: int | None) -> None:
    """A sum without one of its files would be too small."""
    named = {str(at): size for at, size in enumerate(sizes)}
    assert size_of(named, named) == expected


def test_gguf_as_llama_cpp_takes_it() -> None:
    """Q4_K_M, else Q8_0, else the first; never a projector or a draft head; the others stand side by side, by size."""
    names = ["m-BF16.gguf", "m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-F16.gguf"]
    found = select_weights(listing(*names))
    assert (found.chosen[0].files, found.chosen[0].variant) == (("m-Q4_K_M.gguf",), "Q4_K_M")
    assert found.chosen[0].note is not None
    assert "one of 4" in found.chosen[0].note
    assert [one.variant for one in found.others] == ["BF16", "Q2_K", "Q8_0", "F16"]
    assert found.others[-1].note == "projector beside a model, none by itself"
    assert chosen("m-BF16.gguf", "m-q8_0.gguf") == ("m-q8_0.gguf",)
    assert chosen("m-BF16.gguf", "m-IQ3_XXS.gguf") == ("m-BF16.gguf",)


def test_split_gguf_in_folders() -> None:
    """Each quantization in a folder of its own, in several files: one set each."""
    names = [f"{quant}/m-{quant}-0000{number}-of-00002.gguf" for quant in ("BF16", "Q4_K_M") for number in (1, 2)]
    found = select_weights(listing(*names))
    assert list(found.chosen[0].files) == names[2:]
    assert others(found) == {("gguf", "BF16"): tuple(names[:2])}


@pytest.mark.parametrize(
    ("name", "variant"),
    [("qwen2-0_5b-instruct-q4_k_m.gguf", "Q4_K_M"), ("Qwen3-0.6B-UD-Q4_K_XL.gguf", "Q4_K_XL"), ("m.F16.gguf", "F16"), ("m-IQ2_XXS.gguf", "IQ2_XXS"),
     ("gpt-oss-20b-MXFP4.gguf", "MXFP4"), ("m-TQ1_0.gguf", "TQ1_0"), ("llama-2-7b-chat.gguf", None), ("m-f32.gguf", "F32")],
)  # fmt: skip
def test_quantizations_by_name(name: str, variant: str | None) -> None:
    """The last word of the name, where it is a quantization's."""
    parsed = weight_name(name)
    assert parsed is not None
    assert parsed.variant == variant


# --- folders, adapters, anything else ----------------------------------------------------------------------------------------


def test_the_repositorys_own_folder_comes_first() -> None:
    """Meta keeps its own checkpoint beside the converted one."""
    assert chosen("model.safetensors", "original/consolidated.00.pth") == ("model.safetensors",)
    found = select_weights(listing("original/consolidated.00.pth", "sub/model.safetensors"))
    assert found.chosen[0].files == ("sub/model.safetensors",)
    assert found.chosen[0].note == "in the folder `sub`"


def test_an_adapter_is_the_model_of_its_repository() -> None:
    """Both transformers and PEFT load the adapter wherever adapter_config.json lies; safetensors before the pickle."""
    files = ("adapter_config.json", "adapter_model.bin", "adapter_model.safetensors", "model.safetensors")
    assert chosen(*files) == ("adapter_model.safetensors",)
    assert chosen("adapter_model.safetensors", "model.safetensors") == ("model.safetensors",)


def test_where_no_loader_decides_the_largest_is_taken_and_that_is_said() -> None:
    """A shelf of single files, as image models often are."""
    (only,) = select_weights(listing("b.safetensors", "c.safetensors", "a.safetensors")).chosen
    assert only.files == ("a.safetensors",)
    assert only.note == "one of 3, and no loader says which; the largest was taken; --file chooses another"
    assert chosen("weights.pt", "deep/er/model.safetensors") == ("deep/er/model.safetensors",)


@pytest.mark.parametrize(
    "paths", [(), ("README.md",), ("onnx/model.onnx",), ("mmproj-F16.gguf",), ("config.json", "optimizer.pt")]
)
def test_nothing_to_read(paths: tuple[str, ...]) -> None:
    """Formats that are not read are named all the same."""
    found = select_weights(listing(*paths))
    assert found.chosen == ()
    assert len(found.others) == sum(path.endswith(("onnx", "gguf")) for path in paths)


# --- a file of the user's choice -----------------------------------------------------------------------------------------------


FILES = ["m-Q2_K.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf", "onnx/model.onnx", "config.json"]


def test_a_file_brings_its_shards() -> None:
    """Any of them, or the index, stands for all."""
    for path in FILES[1:3]:
        assert list(select_file(listing(*FILES), path).chosen[0].files) == FILES[1:3]
    shard, index = "model-00001-of-00001.safetensors", "model.safetensors.index.json"
    assert select_file(listing(shard, index), index).chosen[0].files == (shard,)
    assert others(select_file(listing(*FILES), FILES[0]))[("gguf", "Q8_0")] == tuple(FILES[1:3])


def test_a_file_that_cannot_be_taken() -> None:
    """Not there, no weights, or a format that is not read: each is said, with what is there."""
    with pytest.raises(NotFoundError, match=r"no file `x\.gguf`") as missing:
        select_file(listing(*FILES), "x.gguf")
    assert "m-Q2_K.gguf" in missing.value.hint
    with pytest.raises(CannotAuditError, match="is no weight file"):
        select_file(listing(*FILES), "config.json")
    with pytest.raises(CannotAuditError, match="is onnx, which hubaudit does not read"):
        select_file(listing(*FILES), "onnx/model.onnx")


# --- parts of a pipeline -------------------------------------------------------------------------------------------------------


SD = [
    "unet/diffusion_pytorch_model.safetensors", "unet/diffusion_pytorch_model.fp16.safetensors", "unet/diffusion_pytorch_model.bin",
    "vae/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.fp16.safetensors",
    "text_encoder/model.safetensors", "text_encoder/model.fp16.safetensors", "text_encoder/pytorch_model.bin",
    "sd_xl_base_1.0.safetensors", "unet/openvino_model.bin", "scheduler/scheduler_config.json",
]  # fmt: skip
PARTS = ["scheduler", "text_encoder", "unet", "vae"]


def test_each_part_is_chosen_once() -> None:
    """The plain files of each part; the variant of all parts is one other set, a checkpoint of the whole another."""
    found = select_parts(listing(*SD), PARTS)
    assert [one.files for one in found.chosen] == [(SD[5],), (SD[0],), (SD[3],)]
    assert set(others(found)[("safetensors", "fp16")]) == {SD[1], SD[4], SD[6]}
    assert others(found)[("torch", None)] == (SD[7], SD[2])
    assert others(found)[("safetensors", None)] == (SD[8],)
    assert next(one.size_bytes for one in found.others if one.variant == "fp16") == 2 + 5 + 7


def test_a_part_that_has_only_a_variant() -> None:
    """It is counted (not zero bytes), and how to load it is said."""
    found = select_parts(
        listing("unet/diffusion_pytorch_model.fp16.safetensors", "vae/diffusion_pytorch_model.safetensors"),
        ["unet", "vae"],
    )
    assert [one.variant for one in found.chosen] == ["fp16", None]
    assert found.chosen[0].note == "only the variant is there: load it with variant='fp16'"


def test_one_part_without_safetensors_makes_diffusers_read_pickles() -> None:
    """is_safetensors_compatible: all parts or none; a part without a .bin keeps what it has."""
    found = select_parts(listing("unet/diffusion_pytorch_model.safetensors", "unet/diffusion_pytorch_model.bin", "vae/diffusion_pytorch_model.bin",
                                 "text_encoder/model.safetensors"), ["unet", "vae", "text_encoder"])  # fmt: skip
    assert [one.format for one in found.chosen] == ["torch", "torch", "safetensors"]


# --- laws --------------------------------------------------------------------------------------------------------------------------


NAMES = st.sampled_from(
    ["model.safetensors", "model.fp16.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "pytorch_model.bin",
     "model.safetensors.index.json", "m-Q4_K_M.gguf", "m-Q8_0-00001-of-00002.gguf", "mmproj.gguf", "a.pt", "model.onnx", "config.json", "b.safetensors",
     "diffusion_pytorch_model.bin", "adapter_model.safetensors", "adapter_config.json", "consolidated.00.pth", "x.h5"]
)  # fmt: skip
PATHS = st.lists(
    st.tuples(st.sampled_from(["", "unet/", "vae/", "a/b/"]), NAMES).map("".join), unique=True, max_size=25
)


@given(PATHS)
def test_every_weight_file_is_told_exactly_once(paths: list[str]) -> None:
    """Chosen or other, never both, never lost, however the repository is taken."""
    files = listing(*paths)
    weights = sorted(path for path in paths if weight_name(path) is not None)
    for selection in (select_weights(files), select_parts(files, ["", "unet", "vae"])):
        assert sorted(path for one in (*selection.chosen, *selection.others) for path in one.files) == weights
    assert sorted(path for one in find_sets(files) for path in one.weights.files) == weights


@given(PATHS, st.randoms())
def test_the_order_of_the_listing_does_not_matter(paths: list[str], shuffler: object) -> None:
    """The same repository gives the same answer, wherever it is listed."""
    files = listing(*paths)
    again = list(files)
    shuffler.shuffle(again)  # type: ignore[attr-defined]
    assert select_weights(files) == select_weights(again)
