"""PyTorch checkpoints (``pytorch_model.bin``, ``.pt``, ``.pth``): tensors from the zip directory and the pickle, nothing unpickled.

The format: PyTorch 2.13, torch/serialization.py (``_save``) and caffe2/serialize/inline_container.h: a zip archive with one folder that
holds ``data.pkl`` and an entry ``data/<key>`` for each storage. TorchScript archives have ``constants.pkl`` and ``code/`` as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from hubaudit.data import table
from hubaudit.errors import MalformedFileError
from hubaudit.formats.pickle_machine import BrokenPickleError
from hubaudit.formats.pickle_ops import Pickle, read_pickle
from hubaudit.formats.quoting import shown
from hubaudit.formats.torch_sharing import share_bytes
from hubaudit.formats.torch_tensors import Declared, declared_tensors
from hubaudit.formats.zip_directory import NotZipError, ZipDirectory
from hubaudit.types import TensorInfo, WeightFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hubaudit.formats.source import ByteSource
    from hubaudit.types import Json

MAX_PICKLE_BYTES = 64 * 2**20
_HEAD_BYTES = 512
_ZIP_START: Final = b"PK\x03\x04"
#: torch/serialization.py: MAGIC_NUMBER, in the bytes that a pickle makes of it.
_LEGACY_MAGIC: Final = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
#: Names under which training programs put the model beside other things: Lightning, the PyTorch tutorials, Megatron and fairseq,
#: DeepSpeed, BasicSR. The first one that holds tensors is taken.
_MODEL_KEYS: Final = ("state_dict", "model_state_dict", "model", "module", "net", "network", "params", "weights")
#: Classes that a TorchScript archive defines itself, and the types its own reader knows (torch/jit/_pickle.py): no imports.
_SCRIPT_NAMES: Final = ("__torch__.", "torch.jit._pickle.")
_SCRIPT_CONSTANTS: Final = "CONSTANTS"  # what TorchScript code calls them
_STILL: Final = "what config.json says can still be estimated"


def read_torch_zip(source: ByteSource) -> WeightFile:
    """Read one checkpoint: the archive's directory at its end, then its pickle. Tensor data is not read.

    ``dtype`` is in safetensors' spelling; dtypes that safetensors lacks have torch's name in capitals (``"QINT8"``,
    ``"COMPLEX128"``). Names are paths (``"state_dict.model.embed.weight"``). ``format`` is ``"torch"``, or ``"torchscript"`` for
    such an archive, whose constants are named ``"CONSTANTS.0"``.

    ``stored_bytes`` gives each byte of a storage to one tensor. Tensors without elements of their own (tied weights, slices beside
    their whole) have 0 and stand in ``metadata["shared_tensors"]`` with the tensor whose elements they are, so that parameters can
    be counted once; views of one storage with elements of their own are not among them.

    ``metadata`` holds ``suspicious_globals`` (names that ``torch.load(weights_only=True)`` would not accept, sorted; nothing of
    them was imported or run), ``shared_tensors``, ``model_key`` (the top-level key that holds the model, ``""`` where its tensors
    lie at the top, ``None`` where it cannot be told), ``quantized_tensors``, ``sparse_tensors`` and ``tensor_subclasses`` (see
    ``torch_tensors.Declared``), ``unviewed_bytes`` (bytes of storages that no tensor shows) and ``pickle_protocol``.

    Raises:
        MalformedFileError: no zip archive (old torch formats are told apart), no checkpoint, or parts that contradict each other.
    """
    try:
        archive = ZipDirectory(source)
    except NotZipError:
        head = source.read(0, _HEAD_BYTES) if source.size_bytes else b""
        raise MalformedFileError(
            source.path, _why_no_archive(head), offset=0, is_cut_off=head.startswith(_ZIP_START)
        ) from None
    folder = _folder(archive, source.path)
    script = f"{folder}constants.pkl" in archive.entries
    parts = [_read_part(source, archive, folder, "data")]
    if script:
        parts.append(_read_part(source, archive, folder, "constants", _SCRIPT_CONSTANTS))
    return WeightFile(
        path=source.path,
        size_bytes=source.size_bytes,
        format="torchscript" if script else "torch",
        tensors=tuple(tensor for part in parts for tensor in part.tensors),
        metadata=_metadata(parts, script=script),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one pickle of the archive and the storages beside it say."""

    pickle: Pickle
    declared: Declared
    tensors: tuple[TensorInfo, ...]
    owners: Mapping[str, str]
    unviewed_bytes: int


def _read_part(source: ByteSource, archive: ZipDirectory, folder: str, name: str, root: str = "") -> _Part:
    """Read ``<name>.pkl`` and check it against the storages ``<name>/*``; ``root`` is the first part of the tensors' names."""
    entry = archive.entries[f"{folder}{name}.pkl"]
    data, start = archive.read(entry, MAX_PICKLE_BYTES)
    names: tuple[str, ...] = ()
    try:
        pickle = read_pickle(data)
        names = pickle.names
        declared = declared_tensors(pickle.value, root)
    except BrokenPickleError as error:
        named = _suspicious([*error.names, *names], script=False)
        also = f"; it names {', '.join(map(shown, named[:3]))}" if named else ""
        offset = None if start is None or error.offset is None else start + error.offset
        raise MalformedFileError(source.path, f"{name}.pkl: {error.reason}{also}", offset=offset) from None
    sizes = {key: stored.size_bytes for key, stored in archive.entries.items() if key.startswith(f"{folder}{name}/")}
    _check_storages(declared, sizes, f"{folder}{name}/", source.path)
    own_bytes, owners = share_bytes(declared.tensors)
    tensors = tuple(TensorInfo(key, tensor.dtype, tensor.shape, own_bytes[key]) for key, tensor in declared.tensors)
    unviewed_bytes = sum(sizes.values()) - sum(own_bytes.values())
    return _Part(pickle=pickle, declared=declared, tensors=tensors, owners=owners, unviewed_bytes=unviewed_bytes)


def _check_storages(declared: Declared, sizes: Mapping[str, int], folder: str, path: str) -> None:
    """Each storage that a tensor names must be an entry of exactly the bytes that the pickle gives it."""
    for name, tensor in declared.tensors:
        if tensor.storage is None:
            continue
        stored = sizes.get(folder + tensor.storage)
        if stored != tensor.storage_bytes:
            held = "is missing" if stored is None else f"has {stored} bytes"
            what = f"storage {shown(tensor.storage)} of tensor {shown(name)} needs {tensor.storage_bytes} bytes"
            raise MalformedFileError(path, f"{what}, its entry {held}")


def _metadata(parts: list[_Part], *, script: bool) -> dict[str, Json]:
    names = {name for part in parts for name in part.pickle.names}
    return {
        "suspicious_globals": list(_suspicious(names, script=script)),
        "shared_tensors": {name: owner for part in parts for name, owner in part.owners.items()},
        "model_key": _model_key(parts[0].declared.under),
        "quantized_tensors": [name for part in parts for name in part.declared.quantized],
        "sparse_tensors": [name for part in parts for name in part.declared.sparse],
        "tensor_subclasses": {name: shows for part in parts for name, shows in part.declared.subclasses.items()},
        "unviewed_bytes": sum(part.unviewed_bytes for part in parts),
        "pickle_protocol": parts[0].pickle.protocol,
    }


def _suspicious(names: Iterable[str], *, script: bool) -> list[str]:
    """The names that torch's own safe reader would not accept, sorted."""
    return sorted(
        name for name in set(names) if name not in _accepted() and not (script and name.startswith(_SCRIPT_NAMES))
    )


def _model_key(under: Mapping[str, int]) -> str | None:
    """The top-level key that holds the model, from the number of tensors below each (``""``: those that lie at the top)."""
    for key in (*_MODEL_KEYS, ""):
        if under.get(key):
            return key
    return next(iter(under)) if len(under) == 1 else None


def _folder(archive: ZipDirectory, path: str) -> str:
    """The archive's one folder, with its slash; ``""`` where the pickle lies at the top."""
    folders = [name.removesuffix("data.pkl") for name in archive.entries if name.rpartition("/")[2] == "data.pkl"]
    folders = [folder for folder in folders if folder.count("/") <= 1]
    if len(folders) != 1:
        held = f"{len(folders)} folders with a data.pkl" if folders else "no data.pkl"
        raise MalformedFileError(path, f"a zip archive, but no torch checkpoint: it has {held}")
    return folders[0]


def _why_no_archive(head: bytes) -> str:
    """What a file is that does not end as a zip archive, from its first bytes."""
    if head.startswith(_ZIP_START):
        return "the file starts as a zip archive and does not end as one: it is cut off, or something follows"
    if head[257:262] == b"ustar":
        return f"an old torch format (a tar archive, before PyTorch 0.1.10), which this tool does not read; {_STILL}"
    if _LEGACY_MAGIC in head[:64]:
        return f"an old torch format (no zip archive, the default before PyTorch 1.6), which this tool does not read; {_STILL}"
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return f"a bare pickle, which is no torch checkpoint of today and which this tool does not read; {_STILL}"
    return f"no torch checkpoint: it starts with {shown(head[:8])}"


@cache
def _accepted() -> frozenset[str]:
    return frozenset(row["name"] for row in table("torch_types.json")["globals"])
