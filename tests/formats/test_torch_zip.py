"""PyTorch checkpoints: pickles assembled opcode by opcode, files of torch.save, and files that lie."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any

import pytest
from byte_sources import BytesSource
from hypothesis import given, settings
from hypothesis import strategies as st

from hubaudit.data import table
from hubaudit.errors import MalformedFileError
from hubaudit.formats import torch_tensors, torch_zip
from hubaudit.formats.torch_zip import read_torch_zip
from hubaudit.types import TensorInfo, WeightFile

# --- assembling ------------------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    """A string, as protocol 2 writes it."""
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    """An integer of any size."""
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def name(module: str, attribute: str) -> bytes:
    """A global."""
    return f"c{module}\n{attribute}\n".encode()


def numbers(values: tuple[int, ...]) -> bytes:
    """A tuple of integers."""
    return b"(" + b"".join(number(value) for value in values) + b"t"


def mapping(items: dict[str, bytes]) -> bytes:
    """A dictionary of strings to what is given."""
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def storage(key: str, items: int, kind: str = "FloatStorage", module: str = "torch") -> bytes:
    """A reference to a storage, as torch.save's persistent_id writes it."""
    return b"(" + text("storage") + name(module, kind) + text(key) + text("cpu") + number(items) + b"tQ"


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without holes."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def tensor(held: bytes, shape: tuple[int, ...], *, offset: int = 0, stride: tuple[int, ...] | None = None) -> bytes:
    """The call that rebuilds a tensor."""
    place = number(offset) + numbers(shape) + numbers(contiguous(shape) if stride is None else stride)
    return (
        name("torch._utils", "_rebuild_tensor_v2")
        + b"("
        + held
        + place
        + b"\x89"
        + name("collections", "OrderedDict")
        + b")RtR"
    )


def checkpoint(
    root: bytes, storages: dict[str, int], *, folder: str = "archive/", extra: dict[str, bytes] | None = None
) -> bytes:
    """An archive with this pickle and storages of these many bytes, as torch.save lays it out."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as writer:
        writer.writestr(f"{folder}data.pkl", b"\x80\x02" + root + b".")
        for key, size_bytes in storages.items():
            writer.writestr(f"{folder}data/{key}", bytes(size_bytes))
        for entry, data in (extra or {}).items():
            writer.writestr(entry, data)
    return file.getvalue()


def read(content: bytes) -> WeightFile:
    """What the parser finds in these bytes."""
    return read_torch_zip(BytesSource(content, path="model.bin"))


def refused(content: bytes, reason: str = "") -> MalformedFileError:
    """The error that these bytes must raise, which names the file."""
    with pytest.raises(MalformedFileError) as caught:
        read(content)
    assert caught.value.path == "model.bin"
    assert reason in caught.value.reason
    return caught.value


ONE = mapping({"w": tensor(storage("0", 6), (2, 3))})


# --- what is found ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["archive/", "pytorch_model/", ""])
def test_reads_tensors_from_the_calls_that_would_rebuild_them(folder: str) -> None:
    """Names, shapes, dtypes and bytes come from the pickle, whatever the archive calls its folder."""
    root = mapping(
        {
            "w": tensor(storage("0", 6, "HalfStorage"), (2, 3)),
            "scalar": tensor(storage("1", 1), ()),
            "none": tensor(storage("2", 0), (0, 4)),
            "step": number(7),
        }
    )
    found = read(checkpoint(root, {"0": 12, "1": 4, "2": 0}, folder=folder))
    assert found.format == "torch"
    assert found.tensors == (
        TensorInfo("w", "F16", (2, 3), 12),
        TensorInfo("scalar", "F32", (), 4),
        TensorInfo("none", "F32", (0, 4), 0),
    )
    assert found.metadata == {
        "suspicious_globals": [],
        "shared_tensors": {},
        "model_key": "",
        "quantized_tensors": [],
        "sparse_tensors": [],
        "tensor_subclasses": {},
        "unviewed_bytes": 0,
        "pickle_protocol": 2,
    }


def test_only_the_directory_and_the_pickle_are_read() -> None:
    """Of a checkpoint of 8 MB the tail and the pickle are read, and nothing of the storages before the tail."""
    source = BytesSource(checkpoint(mapping({"w": tensor(storage("0", 2_000_000), (2_000_000,))}), {"0": 8_000_000}))
    assert read_torch_zip(source).tensors[0].stored_bytes == 8_000_000
    assert len(source.reads) == 2
    assert source.read_bytes < 65_557 + 400


def test_an_untyped_storage_takes_its_dtype_from_the_call() -> None:
    """Newer dtypes lie in untyped storages, counted in bytes, and are named beside the shape; two FP4 in a byte count as two."""
    version_3 = name("torch._utils", "_rebuild_tensor_v3")

    def typed(key: str, shape: tuple[int, ...], dtype: str) -> bytes:
        place = number(0) + numbers(shape) + numbers(contiguous(shape))
        held = storage(key, 8, "UntypedStorage", "torch.storage")
        return (
            version_3
            + b"("
            + held
            + place
            + b"\x89"
            + name("collections", "OrderedDict")
            + b")R"
            + name("torch", dtype)
            + b"tR"
        )

    root = mapping(
        {
            "a": typed("0", (2, 4), "float8_e4m3fn"),
            "b": typed("1", (4,), "uint16"),
            "c": typed("2", (2, 4), "float4_e2m1fn_x2"),
        }
    )
    found = read(checkpoint(root, {"0": 8, "1": 8, "2": 8})).tensors
    assert found == (
        TensorInfo("a", "F8_E4M3", (2, 4), 8),
        TensorInfo("b", "U16", (4,), 8),
        TensorInfo("c", "F4", (2, 8), 8),
    )


def test_nested_checkpoints_keep_their_paths() -> None:
    """Every tensor of a training checkpoint is there under its path, and the model's key is named."""
    state = mapping({"layer.weight": tensor(storage("0", 4), (2, 2))})
    moments = mapping({"exp_avg": tensor(storage("1", 4), (2, 2))})
    groups = b"](" + mapping({"lr": number(1)}) + b"e"
    root = mapping(
        {
            "optimizer": mapping({"state": b"}(" + number(0) + moments + b"u", "param_groups": groups}),
            "state_dict": state,
        }
    )
    found = read(checkpoint(root, {"0": 16, "1": 16}))
    assert [item.name for item in found.tensors] == ["optimizer.state.0.exp_avg", "state_dict.layer.weight"]
    assert found.metadata["model_key"] == "state_dict"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("a", "b"), None),
        (("ours",), "ours"),
        (("optimizer", "module"), "module"),
        (("model", "state_dict"), "state_dict"),
    ],
)
def test_the_model_is_named_only_where_it_can_be_told(keys: tuple[str, ...], expected: str | None) -> None:
    """One key that holds tensors, or a usual name, is the model; of two unusual ones neither is."""
    root = mapping({key: mapping({"w": tensor(storage(key, 4), (4,))}) for key in keys})
    assert read(checkpoint(root, dict.fromkeys(keys, 16))).metadata["model_key"] == expected


def test_tied_weights_are_counted_once() -> None:
    """The second tensor on the same elements has no bytes and names the first, transposed or not."""
    held = storage("0", 6)
    root = mapping(
        {"embed": tensor(held, (2, 3)), "head": tensor(held, (2, 3)), "turned": tensor(held, (3, 2), stride=(1, 3))}
    )
    found = read(checkpoint(root, {"0": 24}))
    assert [(item.name, item.stored_bytes) for item in found.tensors] == [("embed", 24), ("head", 0), ("turned", 0)]
    assert found.metadata["shared_tensors"] == {"head": "embed", "turned": "embed"}


def test_one_tensor_in_two_places_has_two_names() -> None:
    """A tensor object that the pickle refers to twice is reported under both names, the second without bytes."""
    root = b"}(" + text("a") + tensor(storage("0", 4), (4,)) + b"q\x05" + text("b") + b"h\x05u"
    found = read(checkpoint(root, {"0": 16}))
    assert [(item.name, item.stored_bytes) for item in found.tensors] == [("a", 16), ("b", 0)]
    assert found.metadata["shared_tensors"] == {"b": "a"}


def test_views_share_the_bytes_and_not_each_others_elements() -> None:
    """Halves of one storage have their own bytes; a slice beside its whole has none; what no tensor shows is counted apart."""
    held = storage("0", 10)
    halves = mapping({"left": tensor(held, (4,)), "right": tensor(held, (4,), offset=4)})
    found = read(checkpoint(halves, {"0": 40}))
    assert [item.stored_bytes for item in found.tensors] == [16, 16]
    assert found.metadata["shared_tensors"] == {}
    assert found.metadata["unviewed_bytes"] == 8
    beside = mapping({"slice": tensor(held, (3,), offset=2), "whole": tensor(held, (10,))})
    found = read(checkpoint(beside, {"0": 40}))
    assert [item.stored_bytes for item in found.tensors] == [0, 40]
    assert found.metadata["shared_tensors"] == {"slice": "whole"}


def test_columns_of_one_storage_are_no_copies_of_each_other() -> None:
    """Interleaved views reach over the same bytes but share no element, so neither stands for the other."""
    held = storage("0", 12)
    columns = {f"c{at}": tensor(held, (3, 2), offset=at, stride=(4, 1)) for at in (0, 2)}
    found = read(checkpoint(mapping(columns), {"0": 48}))
    assert found.metadata["shared_tensors"] == {}
    assert sum(item.stored_bytes for item in found.tensors) == 48
    expanded = read(checkpoint(mapping({"e": tensor(storage("0", 1), (100,), stride=(0,))}), {"0": 4}))
    assert expanded.tensors == (TensorInfo("e", "F32", (100,), 4),)


def test_parameters_and_their_state_are_followed() -> None:
    """A Parameter is its tensor, and tensors among a Parameter's own attributes are found under its name."""
    inner = tensor(storage("0", 4), (4,))
    hooks = name("collections", "OrderedDict") + b")R"
    state = mapping({"scale": tensor(storage("1", 1), ())})
    root = mapping(
        {
            "p": name("torch._utils", "_rebuild_parameter") + b"(" + inner + b"\x88" + hooks + b"tR",
            "q": name("torch._utils", "_rebuild_parameter_with_state")
            + b"("
            + inner.replace(text("0"), text("2"))
            + b"\x88"
            + hooks
            + state
            + b"tR",
        }
    )
    found = read(checkpoint(root, {"0": 16, "1": 4, "2": 16}))
    assert [(item.name, item.shape) for item in found.tensors] == [("p", (4,)), ("q", (4,)), ("q.scale", ())]


def test_whole_modules_are_read_like_their_state_dict() -> None:
    """A pickled module is not built, its class is recorded, and its tensors have the names its state_dict would give."""

    def module(parameters: dict[str, bytes], children: dict[str, bytes]) -> bytes:
        levels = mapping({"training": b"\x88", "_parameters": mapping(parameters), "_modules": mapping(children)})
        return name("my.models", "Block") + b")\x81" + levels + b"b"

    inner = module({"weight": tensor(storage("0", 4), (4,))}, {})
    found = read(checkpoint(module({"scale": tensor(storage("1", 1), (1,))}, {"layers": inner}), {"0": 16, "1": 4}))
    assert [item.name for item in found.tensors] == ["scale", "layers.weight"]
    assert found.metadata["suspicious_globals"] == ["my.models.Block"]


def test_names_that_read_alike_are_told_apart() -> None:
    """Two paths with the same text give two names, so that no tensor hides another."""
    one, two, three = (tensor(storage(key, 1), ()) for key in "012")
    root = mapping({"a": mapping({"b": one}), "a.b": two, "x": mapping({"": three})})
    assert [item.name for item in read(checkpoint(root, {"0": 4, "1": 4, "2": 4})).tensors] == ["a.b", "a.b#2", "x"]
    again = b"](" + mapping({"a.b": one, "a": mapping({"b": two, "b#2": three})}) + b"e"
    names = [item.name for item in read(checkpoint(again, {"0": 4, "1": 4, "2": 4})).tensors]
    assert len(set(names)) == 3


def test_long_and_odd_keys_beside_the_tensors_are_no_error() -> None:
    """A dictionary of other things may have keys of any length and kind."""
    other = b"}(" + text("x" * 3_000) + b"](Ne" + b"N](Ne" + numbers((1, 2)) + b"](Nee"[:-1] + b"u"
    found = read(checkpoint(mapping({"texts": other, "w": tensor(storage("0", 1), ())}), {"0": 4}))
    assert [item.name for item in found.tensors] == ["w"]


def test_a_later_value_of_the_same_key_wins() -> None:
    """A key that is set twice has its last value, as in the dictionary that Python would build."""
    root = b"}(" + text("w") + tensor(storage("0", 1), ()) + text("w") + tensor(storage("1", 3), (3,)) + b"u"
    assert [(item.name, item.shape) for item in read(checkpoint(root, {"0": 4, "1": 12})).tensors] == [("w", (3,))]


# --- what is refused, and what is only reported ------------------------------------------------------------------------------


def test_hostile_calls_are_reported_and_the_rest_is_read() -> None:
    """A call that would run code is recorded, not run, and the tensors beside it are still found."""
    attack = name("os", "system") + text("touch pwned") + b"\x85R"
    root = mapping({"x": attack, "w": tensor(storage("0", 6), (2, 3)), "y": name("builtins", "eval")})
    found = read(checkpoint(root, {"0": 24}))
    assert found.metadata["suspicious_globals"] == ["builtins.eval", "os.system"]
    assert [item.name for item in found.tensors] == ["w"]


def test_a_pickle_that_breaks_after_its_attack_names_it() -> None:
    """Where the pickle cannot be read to its end, the error tells the byte and what was named before."""
    root = name("os", "system") + text("true") + b"\x85R\xff"
    error = refused(checkpoint(root, {}), "'os.system'")
    assert error.offset == 30 + len("archive/data.pkl") + 2 + len(root) - 1


LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
TAR = b"storages" + bytes(249) + b"ustar\x0000" + bytes(300)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no torch checkpoint"),
        (LEGACY + bytes(100), "an old torch format (no zip archive"),
        (TAR, "an old torch format (a tar archive"),
        (b"\x80\x04N." + bytes(100), "a bare pickle"),
        (b"\x80\x05N." + bytes(100), "a bare pickle"),
        (b"\x80\x06N." + bytes(100), "no torch checkpoint: it starts with"),
        (b"\x93NUMPY" + bytes(100), "no torch checkpoint: it starts with"),
        (checkpoint(ONE, {"0": 24})[:-10], "starts as a zip archive and does not end as one"),
    ],
)
def test_what_is_no_archive_is_told_apart(content: bytes, reason: str) -> None:
    """Old formats, bare pickles and cut files each have their own reason; the old ones say that the config still helps."""
    error = refused(content, reason)
    assert ("config.json" in error.reason) == ("old torch" in reason or "pickle" in reason)


def call(arguments: bytes, function: str = "_rebuild_tensor_v2") -> bytes:
    """A checkpoint of one tensor built with these arguments."""
    return mapping({"w": name("torch._utils", function) + b"(" + arguments + b"tR"})


HELD = storage("0", 6)


@pytest.mark.parametrize(
    ("root", "storages", "reason"),
    [
        (ONE, {"0": 23}, "needs 24 bytes, its entry has 23 bytes"),
        (ONE, {"0": 25}, "needs 24 bytes, its entry has 25 bytes"),
        (ONE, {}, "is missing"),
        (mapping({"w": tensor(storage("../x", 6), (6,))}), {"0": 24}, "is missing"),
        (mapping({"a": tensor(HELD, (6,)), "b": tensor(storage("0", 5), (5,))}), {"0": 24}, "needs 20 bytes"),
        (mapping({"w": tensor(HELD, (7,))}), {"0": 24}, "ends at byte 28 of a storage of 24"),
        (mapping({"w": tensor(HELD, (2, 3), offset=1)}), {"0": 24}, "ends at byte 28 of a storage of 24"),
        (mapping({"w": tensor(HELD, (2,), stride=(2**62,))}), {"0": 24}, "of a storage of 24"),
        (mapping({"w": tensor(HELD, (2**62, 2**62), stride=(0, 0))}), {"0": 24}, "impossible shape"),
        (mapping({"w": tensor(HELD, (-1,))}), {"0": 24}, "no natural number"),
        (mapping({"w": tensor(HELD, (2**63,), stride=(0,))}), {"0": 24}, "no natural number"),
        (mapping({"w": tensor(HELD, (2,), offset=-1)}), {"0": 24}, "no natural number"),
        (mapping({"w": tensor(HELD, (2, 3), stride=(1,))}), {"0": 24}, "2 dimensions but 1 strides"),
        (mapping({"w": tensor(HELD, (1,) * 65)}), {"0": 24}, "a size or stride that is none"),
        (mapping({"w": tensor(storage("0", 6, "OddStorage"), (6,))}), {"0": 24}, "unknown storage type 'OddStorage'"),
        (call(b"N" + number(0) + numbers((6,)) + numbers((1,))), {"0": 24}, "no storage"),
        (call(text("0") + b"Q" + number(0) + numbers((6,)) + numbers((1,))), {"0": 24}, "no storage"),
        (call(HELD), {"0": 24}, "too few arguments"),
        (call(HELD + number(0) + b"N" + numbers((1,))), {"0": 24}, "a size or stride that is none"),
        (call(HELD + b"N" + numbers((6,)) + numbers((1,))), {"0": 24}, "no natural number"),
        (call(HELD + b"\x88" + numbers((6,)) + numbers((1,))), {"0": 24}, "no natural number"),
        (
            call(HELD + number(0) + numbers((6,)) + numbers((1,)) + b"NNN", "_rebuild_tensor_v3"),
            {"0": 24},
            "unknown dtype",
        ),
        (mapping({"w": name("torch._utils", "_rebuild_tensor_v2") + b"]R"}), {"0": 24}, "too few arguments"),
        (mapping({"x" * 1_025: tensor(HELD, (6,))}), {"0": 24}, "longer than 1024"),
        (b"]" * 300 + b"a" * 299, {}, "nested more than 256"),
        (b"N" * 3 + b"0" * 4, {}, "a mark that was not set"),
    ],
)
def test_tensors_that_cannot_be_are_refused(root: bytes, storages: dict[str, int], reason: str) -> None:
    """A tensor that its storage cannot hold, or a storage that its entry cannot hold, is one error that names it."""
    assert refused(checkpoint(root, storages), reason).reason.isascii()


def test_other_archives_are_no_checkpoints() -> None:
    """A zip archive without one data.pkl is said to be none."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as writer:
        writer.writestr("word/document.xml", b"")
    refused(file.getvalue(), "no data.pkl")
    refused(checkpoint(ONE, {"0": 24}, extra={"other/data.pkl": b"N."}), "2 folders with a data.pkl")


def test_a_pickle_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle has a bound of its own, compressed or not."""
    monkeypatch.setattr(torch_zip, "MAX_PICKLE_BYTES", 1_000)
    refused(checkpoint(mapping({"w": text("x" * 1_000)}), {}), "more than 1000 bytes")


def test_shared_containers_and_many_tensors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that hold the one before twice are looked into once each, cycles end, and the number of tensors has a bound."""
    doubled = b"](" + tensor(storage("0", 1), ()) + b"e" + b"q\x050](h\x05h\x05e" * 100
    found = read(checkpoint(doubled, {"0": 4}))
    assert len(found.tensors) == 1
    assert read(checkpoint(b"]q\x05h\x05a", {})).tensors == ()
    monkeypatch.setattr(torch_tensors, "MAX_TENSORS", 3)
    refused(checkpoint(mapping({key: tensor(storage("0", 1), ()) for key in "abcd"}), {"0": 4}), "more than 3 tensors")


def test_torchscript_archives_are_recognised() -> None:
    """An archive with constants.pkl is TorchScript: its own classes are no imports, its constants are tensors too."""
    module = name("__torch__", "Net") + b")\x81" + mapping({"weight": tensor(storage("0", 6), (2, 3))}) + b"b"
    constants = b"\x80\x02" + tensor(storage("0", 2), (2,)) + b"\x85."
    extra = {"net/constants.pkl": constants, "net/constants/0": bytes(8), "net/code/__torch__.py": b""}
    found = read(checkpoint(module, {"0": 24}, folder="net/", extra=extra))
    assert found.format == "torchscript"
    assert found.tensors == (TensorInfo("weight", "F32", (2, 3), 24), TensorInfo("CONSTANTS.0", "F32", (2,), 8))
    assert found.metadata["suspicious_globals"] == []
    assert read(checkpoint(module, {"0": 24})).metadata["suspicious_globals"] == ["__torch__.Net"]


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_the_documented_error(content: bytes) -> None:
    """Random files, and random pickles in a sound archive, end with an answer or with MalformedFileError."""
    for whole in (content, checkpoint(content, {"0": 24}), checkpoint(mapping({"w": content}), {"0": 24})):
        try:
            read(whole)
        except MalformedFileError:
            continue


RICH = mapping(
    {
        "a": tensor(storage("0", 6), (2, 3)),
        "b": b"](" + tensor(storage("1", 4, "HalfStorage"), (4,)) + numbers((1, 2)) + b"e",
        "c": name("torch._utils", "_rebuild_parameter") + b"(" + tensor(storage("0", 6), (3,), offset=1) + b"\x88NtR",
        "d": name("torch._tensor", "_rebuild_from_type_v2")
        + b"("
        + name("x", "y")
        + name("z", "T")
        + numbers((1,))
        + b"}tR",
    }
)


@settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, len(RICH) - 1), st.integers(0, 255)), min_size=1, max_size=5))
def test_damaged_pickles_raise_only_the_documented_error(changes: list[tuple[int, int]]) -> None:
    """A damaged pickle ends with MalformedFileError or with tensors whose bytes the archive really holds."""
    damaged = bytearray(RICH)
    for at, byte in changes:
        damaged[at] = byte
    content = checkpoint(bytes(damaged), {"0": 24, "1": 8})
    try:
        found = read(content)
    except MalformedFileError:
        return
    assert 0 <= sum(item.stored_bytes for item in found.tensors) <= 32
    assert len({item.name for item in found.tensors}) == len(found.tensors)


# --- against torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.oracle
def test_the_table_is_torchs() -> None:
    """torch_types.json has the dtypes, widths, storages and accepted names of the installed torch, and no others."""
    torch = pytest.importorskip("torch")
    unpickler = pytest.importorskip("torch._weights_only_unpickler")
    rows = table("torch_types.json")
    assert {row["name"] for row in rows["globals"]} == set(unpickler._get_allowed_globals())
    named = {
        name_: str(dtype).removeprefix("torch.") for dtype, name_ in torch.storage._dtype_to_storage_type_map().items()
    }
    assert {row["name"]: row["dtype"] for row in rows["storages"]} == named
    dtypes = {
        str(dtype): dtype for dtype in (*torch.storage._dtype_to_storage_type_map(), *torch.storage._new_dtypes())
    }
    assert {f"torch.{row['name']}" for row in rows["dtypes"]} == set(dtypes)


def saved(value: object, **options: Any) -> bytes:
    """What torch.save writes."""
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """The tensors of what torch.load returned, by their path."""
    torch = pytest.importorskip("torch")
    if isinstance(value, torch.Tensor):
        return {prefix: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    found: dict[str, Any] = {}
    for key, child in pairs:
        found |= flat(child, f"{prefix}.{key}" if prefix else str(key))
    return found


def compare(value: object, **options: Any) -> WeightFile:
    """Read what torch.save wrote, and hold every name, shape, dtype and byte against what torch.load returns."""
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    content = saved(value, **options)
    found = read(content)
    spelled = {dtype: spelling for spelling, dtype in safetensors._TYPES.items()}
    on_meta = flat(torch.load(io.BytesIO(content), map_location="meta", weights_only=True))
    assert [(item.name, item.shape) for item in found.tensors] == [
        (key, tuple(item.shape)) for key, item in on_meta.items()
    ]
    for item, loaded in zip(found.tensors, on_meta.values(), strict=True):
        assert item.dtype == spelled.get(loaded.dtype, item.dtype)
    in_memory = flat(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    covered: dict[int, set[int]] = {}
    for loaded in in_memory.values():
        width, held = loaded.element_size(), loaded.untyped_storage()
        elements = torch.arange(held.nbytes() // width).as_strided(
            loaded.shape, loaded.stride(), loaded.storage_offset()
        )
        spots = {int(element) * width + byte for element in elements.flatten() for byte in range(width)}
        covered.setdefault(held.data_ptr(), set()).update(spots)
    assert sum(item.stored_bytes for item in found.tensors) == sum(len(spots) for spots in covered.values())
    assert found.metadata["suspicious_globals"] == []
    return found


@pytest.mark.oracle
def test_agrees_with_torch_on_every_plain_dtype() -> None:
    """A state dict with one tensor of each dtype reads as torch.load reads it, and as safetensors spells and counts it."""
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    state = {f"layer.{spelling}": torch.zeros(2, 4, dtype=dtype) for spelling, dtype in safetensors._TYPES.items()}
    found = compare(state)
    assert [item.dtype for item in found.tensors] == list(safetensors._TYPES)
    fp4 = {"fp4": torch.zeros(2, 4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}
    raw = safetensors.save(fp4)
    (item,) = read(saved(fp4)).tensors
    assert f'"dtype":"{item.dtype}","shape":{list(item.shape)}'.replace(" ", "").encode() in raw


@pytest.mark.oracle
def test_agrees_with_torch_on_a_training_checkpoint() -> None:
    """Model, optimizer and scalars, with tied weights, views and empty tensors, read as torch.load reads them."""
    torch = pytest.importorskip("torch")
    model = torch.nn.ModuleDict(
        {
            "embed": torch.nn.Embedding(10, 4),
            "norm": torch.nn.BatchNorm1d(4),
            "head": torch.nn.Linear(4, 10, bias=False),
        }
    )
    model["head"].weight = model["embed"].weight
    optimizer = torch.optim.AdamW(model.parameters())
    model["head"](model["norm"](model["embed"](torch.arange(3)))).sum().backward()
    optimizer.step()
    fused = torch.zeros(12, 4)
    value = {
        "epoch": 3,
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": {"q": fused[:4], "k": fused[4:8], "v": fused[8:], "turned": fused.t()},
        "odd": [torch.zeros(0, 3), torch.tensor(1.5), torch.nn.Parameter(torch.zeros(3)), (torch.ones(1).expand(5),)],
    }
    found = compare(value)
    assert found.metadata["model_key"] == "state_dict"
    shared = found.metadata["shared_tensors"]
    assert isinstance(shared, dict)
    assert shared["state_dict.head.weight"] == "state_dict.embed.weight"
    assert {key: owner for key, owner in shared.items() if key.startswith("views")} == {
        f"views.{part}": "views.turned" for part in "qkv"
    }


@pytest.mark.oracle
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_agrees_with_torch_in_every_protocol(protocol: int) -> None:
    """The pickle protocol makes no difference."""
    torch = pytest.importorskip("torch")
    value = {"a": torch.zeros(3, 2, dtype=torch.bfloat16), "b": {"c": torch.ones(5, dtype=torch.bool)}}
    content = saved(value, pickle_protocol=protocol)
    found = read(content)
    assert found.tensors == (TensorInfo("a", "BF16", (3, 2), 12), TensorInfo("b.c", "BOOL", (5,), 5))
    assert found.metadata["pickle_protocol"] == protocol


@pytest.mark.oracle
@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning"
)  # torch calls both kinds beta or deprecated
def test_reads_torchs_other_tensors() -> None:
    """Sparse, quantized and meta tensors are reported with the bytes that they have, and named as what they are."""
    torch = pytest.importorskip("torch")
    packed = torch.quantize_per_channel(torch.zeros(4, 6), torch.ones(4), torch.zeros(4), 0, torch.quint4x2)
    csr = torch.eye(4).to_sparse_csr()
    value = {"coo": torch.eye(3).to_sparse(), "csr": csr, "packed": packed, "meta": torch.empty(7, 2, device="meta")}
    found = read(saved(value))
    assert {item.name: (item.dtype, item.shape, item.stored_bytes) for item in found.tensors} == {
        "coo.indices": ("I64", (2, 3), 48),
        "coo.values": ("F32", (3,), 12),
        "csr.compressed_indices": ("I64", (5,), 40),
        "csr.plain_indices": ("I64", (4,), 32),
        "csr.values": ("F32", (4,), 16),
        "packed": ("QUINT4X2", (4, 6), 12),
        "packed.quantizer.1": ("F32", (4,), 16),
        "packed.quantizer.2": ("F32", (4,), 16),
        "meta": ("F32", (7, 2), 0),
    }
    assert found.metadata["sparse_tensors"] == ["coo", "csr"]
    assert found.metadata["quantized_tensors"] == ["packed"]
    assert found.metadata["suspicious_globals"] == []


@pytest.mark.oracle
def test_reads_archives_without_check_sums_and_refuses_the_old_format() -> None:
    """torch.save may leave check sums out; what it wrote before 1.6 is refused with its reason."""
    torch = pytest.importorskip("torch")
    value = {"w": torch.zeros(3)}
    torch.serialization.set_crc32_options(False)
    try:
        assert compare(value).tensors == (TensorInfo("w", "F32", (3,), 12),)
    finally:
        torch.serialization.set_crc32_options(True)
    refused(saved(value, _use_new_zipfile_serialization=False), "an old torch format (no zip archive")


@pytest.mark.oracle
def test_whole_modules_have_the_names_of_their_state_dict() -> None:
    """A module saved whole reads like its state_dict, and its classes are reported as what torch would not load safely."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.BatchNorm1d(4)))
    found = read(saved(module))
    assert {item.name: item.shape for item in found.tensors} == {
        key: tuple(item.shape) for key, item in module.state_dict().items()
    }
    assert "torch.nn.modules.linear.Linear" in found.metadata["suspicious_globals"]  # type: ignore[operator]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_agrees_with_torch_on_torchscript() -> None:
    """A scripted module's parameters and buffers are found under their names, tied ones once."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 4, bias=False), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4, bias=False)
    )
    module[2].weight = module[0].weight
    scripted = torch.jit.trace(module.eval(), torch.zeros(2, 4))
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    found = read(file.getvalue())
    assert found.format == "torchscript"
    assert {item.name: item.shape for item in found.tensors} == {
        key: tuple(item.shape) for key, item in scripted.state_dict().items()
    }
    assert found.metadata["shared_tensors"] == {"2.weight": "0.weight"}
    assert found.metadata["suspicious_globals"] == []


@pytest.mark.oracle
def test_subclasses_are_named_with_what_they_show() -> None:
    """A wrapper around other tensors is reported with its class, its dtype and its shape, and its parts with their bytes."""
    torch = pytest.importorskip("torch")
    two = pytest.importorskip("torch.testing._internal.two_tensor")
    found = read(saved({"w": two.TwoTensor(torch.zeros(2, 3), torch.ones(2, 3))}))
    assert {item.name: item.stored_bytes for item in found.tensors} == {"w.a": 24, "w.b": 24}
    shows = {"class": "torch.testing._internal.two_tensor.TwoTensor", "dtype": "F32", "shape": [2, 3]}
    assert found.metadata["tensor_subclasses"] == {"w": shows}
