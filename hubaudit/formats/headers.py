"""A weight file's header, read as its name says: the one door to the parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.formats.safetensors import read_safetensors
from hubaudit.formats.weight_names import format_of

if TYPE_CHECKING:
    from hubaudit.formats.source import ByteSource
    from hubaudit.types import WeightFile

_FORMATS = ("safetensors", "gguf", "torch")
#: How files start whose names tell nothing, such as those that huggingface_hub's cache names by their digest.
_STARTS = {b"GGUF": "gguf", b"PK\x03\x04": "torch"}


def read_header(source: ByteSource) -> WeightFile:
    """Read and check the header of a file, in the format that its name shows, else its first bytes.

    Raises:
        MalformedFileError: the file breaks its format's rules.
    """
    format = format_of(source.path.rpartition("/")[2])
    if format not in _FORMATS:
        format = _STARTS.get(source.read(0, 4), "safetensors")
    if format == "gguf":  # the parsers of the rarer formats are imported by those who meet one
        from hubaudit.formats.gguf import read_gguf

        return read_gguf(source)
    if format == "torch":
        from hubaudit.formats.torch_zip import read_torch_zip

        return read_torch_zip(source)
    return read_safetensors(source)
