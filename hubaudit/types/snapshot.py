"""What was read of a repository: its files, its tensors as they are declared, and what was wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hubaudit.types.values import Config, Json, ProblemKind, Source, Sourced  # noqa: F401 - Config names Json, which type hints ask for here


class TensorInfo(NamedTuple):
    """One tensor as a weight file declares it: dtype in the file's own spelling, shape in elements, bytes it fills there.

    A tuple, because a large model has 100,000 of them and a frozen dataclass takes four times as long to make.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoFile:
    """One file of the repository's listing; ``size_bytes`` is ``None`` where the listing does not say."""

    path: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """One weight file whose header was read; ``size_bytes`` is the whole file's, ``metadata`` what the header says of itself."""

    path: str
    size_bytes: int | None
    format: str
    tensors: tuple[TensorInfo, ...]
    metadata: Config = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightIndex:
    """A ``*.index.json``: the total it claims in bytes, and the shard it names for each tensor (empty where not served)."""

    path: str
    total_size_bytes: int | None
    weight_map: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSet:
    """One whole set of weights as a loader takes it: a file, or files that belong together.

    ``variant`` is what its name adds to that of its twins: ``"fp16"``, or for GGUF the quantization, ``"Q4_K_M"``. ``size_bytes`` is ``None``
    where the listing does not say. ``index`` is the ``*.index.json`` that has the last word on ``files``, ``missing`` are shards that the
    names of the others promise and the listing lacks. ``note`` says what else there is to know of it.
    """

    format: str
    files: tuple[str, ...]
    size_bytes: int | None = None
    variant: str | None = None
    index: str | None = None
    missing: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProblem:
    """A file that the repository names and that could not be used, and why, in one line.

    ``kind`` says what became of it: it breaks its format's rules (``unreadable``), ends too soon (``truncated``), is named and not there
    (``missing``), or is there and the index does not name it (``unreferenced``).
    """

    path: str
    reason: str
    kind: ProblemKind = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms a repository is offered, by its card's header and the Hub.

    ``licence`` is the header's own word (``"apache-2.0"``, ``"other"``), ``licence_link`` where it says the text is. ``gated`` is true where one must
    ask for access, ``None`` where that is not known (a folder). ``gate_text`` is true where the header says what one agrees to.
    """

    licence: str | None = None
    licence_link: str | None = None
    gated: bool | None = None
    gate_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """What the tokenizer's files say: one more than the largest token id, and the most tokens that it lets through; where each was read."""

    tokens: Sourced[int]
    max_tokens: Sourced[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoSnapshot:
    """All that an audit read of one repository at one commit: enough to replay the audit offline.

    ``chosen`` are the weights that were read, one set for each part of a pipeline; ``others`` those that were not, because they are the same
    weights another way, or no part of the model. ``base`` is the model that an adapter is for, ``base_reason`` why it was not read and
    ``base_error`` what kind of failure that was (``HubauditError.kind``). ``card`` is the text of README.md, ``tokenizer`` what the tokenizer's
    files say: both are read where they lie on this machine, and cost no question to the Hub. ``terms`` is ``None`` where nothing told them.
    """

    repo_id: str
    revision: str | None
    commit: str | None
    source: Source
    files: tuple[RepoFile, ...] = ()
    configs: Mapping[str, Config] = field(default_factory=dict)
    weights: tuple[WeightFile, ...] = ()
    indexes: tuple[WeightIndex, ...] = ()
    card: str | None = None
    library_name: str | None = None
    hub_parameters: Mapping[str, int] | None = None
    problems: tuple[ReadProblem, ...] = ()
    chosen: tuple[WeightSet, ...] = ()
    others: tuple[WeightSet, ...] = ()
    base: RepoSnapshot | None = None
    base_reason: str | None = None
    base_error: str | None = None
    terms: Terms | None = None
    tokenizer: TokenizerFacts | None = None
