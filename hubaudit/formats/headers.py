"""A weight file's header, read as its name says: the one door to the parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.errors import MalformedFileError
from hubaudit.formats.gguf import read_gguf
from hubaudit.formats.safetensors import read_safetensors
from hubaudit.formats.torch_zip import read_torch_zip
from hubaudit.formats.weight_names import format_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hubaudit.formats.source import ByteSource
    from hubaudit.types import WeightFile

_READERS: dict[str, Callable[[ByteSource], WeightFile]] = {
    "safetensors": read_safetensors,
    "gguf": read_gguf,
    "torch": read_torch_zip,
}


def read_header(source: ByteSource) -> WeightFile:
    """Read and check the header of a file whose name shows a format that this tool reads.

    Raises:
        MalformedFileError: its name shows no such format, or the file breaks its format's rules.
    """
    read = _READERS.get(format_of(source.path.rpartition("/")[2]) or "")
    if read is None:
        raise MalformedFileError(source.path, "no weight file that this tool reads, by its name")
    return read(source)
