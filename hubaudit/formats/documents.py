"""JSON documents that repositories hold beside their weights: configs and weight indexes."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections import Counter
from posixpath import normpath
from typing import TYPE_CHECKING

from hubaudit.errors import MalformedFileError
from hubaudit.formats.quoting import shown
from hubaudit.types import WeightIndex

if TYPE_CHECKING:
    from hubaudit.types import Json

MAX_CONFIG_BYTES = 10_000_000
MAX_INDEX_BYTES = 100_000_000
MAX_PATH_CHARACTERS = 1024


def parse_object(content: bytes, path: str, *, may_repeat_keys: bool = True) -> dict[str, Json]:
    """A file that must hold one JSON object.

    Where ``may_repeat_keys``, the last of two equal keys counts, as it does for who loads the file with Python's ``json``.

    Raises:
        MalformedFileError: it does not, with the byte where it goes wrong.
    """
    value = _parsed(content, path, may_repeat_keys=may_repeat_keys)
    if not isinstance(value, dict):
        raise MalformedFileError(path, f"holds a JSON {type(value).__name__}, not an object", offset=0)
    return value


def parse_array(content: bytes, path: str) -> dict[str, Json]:
    """A file that must hold one JSON array, kept as an object whose only key is ``items``, for a snapshot's configs are objects.

    Raises:
        MalformedFileError: it does not, with the byte where it goes wrong.
    """
    value = _parsed(content, path, may_repeat_keys=True)
    if not isinstance(value, list):
        raise MalformedFileError(path, f"holds a JSON {type(value).__name__}, not an array", offset=0)
    return {"items": value}


def _parsed(content: bytes, path: str, *, may_repeat_keys: bool) -> Json:
    try:
        text = content.decode("utf-8-sig")
        value: Json = json.loads(text, object_pairs_hook=None if may_repeat_keys else without_repeats)
    except UnicodeDecodeError as error:
        raise MalformedFileError(path, "not UTF-8", offset=error.start) from None
    except json.JSONDecodeError as error:
        mark = 3 if content.startswith(BOM_UTF8) else 0
        raise MalformedFileError(path, f"not JSON: {error.msg}", offset=mark + byte_position(error)) from None
    except RecursionError:
        raise MalformedFileError(path, "JSON nested too deeply") from None
    except ValueError as error:
        raise MalformedFileError(path, f"not acceptable JSON: {error}") from None
    return value


def without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """For ``json.loads``: an object whose keys are all different.

    Raises:
        ValueError: two are equal.
    """
    merged = dict(pairs)
    if len(merged) < len(pairs):
        [(repeated, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {shown(repeated)} appears twice")
    return merged


def byte_position(error: json.JSONDecodeError) -> int:
    """The byte at which a UTF-8 text stops being JSON; Python counts characters."""
    return len(error.doc[: error.pos].encode())


def parse_index(content: bytes, path: str) -> WeightIndex:
    """A ``*.index.json``. Shard names are checked before anyone asks for a file of that name.

    The index names shards from its own folder; in the result they are paths in the repository.

    Raises:
        MalformedFileError: no JSON object, no ``weight_map`` of strings, or a shard name that leaves the repository.
    """
    index = parse_object(content, path)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise MalformedFileError(path, "has no `weight_map` from tensor names to shard names")
    folder = path[: path.rfind("/") + 1]
    # One text for all the tensors of a shard.
    paths = {shard: f"{folder}{shard}" for shard in dict.fromkeys(weight_map.values())}
    for shard in paths.values():
        if not is_repo_path(shard):
            raise MalformedFileError(path, f"names a shard outside the repository: {shown(shard)}")
    shards = {tensor: paths[shard] for tensor, shard in weight_map.items()}
    return WeightIndex(path=path, total_size_bytes=declared_total(index.get("metadata")), weight_map=shards)


def declared_total(metadata: Json) -> int | None:
    """``metadata.total_size`` of an index in bytes; real files hold floats and zeros, so only a whole number counts."""
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or not 0 <= total < 2**63:
        return None
    return int(total) if total == int(total) else None


def is_repo_path(path: str) -> bool:
    """Whether ``path`` names a file inside its repository: relative, normal, with no control characters or backslashes."""
    return (
        0 < len(path) <= MAX_PATH_CHARACTERS
        and path.isprintable()
        and "\\" not in path
        and not path.startswith(("/", "../"))
        and normpath(path) == path
        and path not in (".", "..")
    )
