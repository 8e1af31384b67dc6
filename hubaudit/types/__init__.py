"""The nouns every room passes to the next: frozen data, no logic.

Sizes are ``int`` bytes, widths ``int`` bits, counts ``int``; a name ends in its unit. What is not known is ``None`` and comes
with a reason, never with a default.
"""

from hubaudit.types.estimate import Component, DeviceShare, Estimate, Omission, Phase, StageShare, Variant
from hubaudit.types.facts import (
    BuiltTensor,
    CacheTensor,
    Disagreement,
    LayerSpec,
    MadeBuffer,
    MixtureOfExperts,
    ModelFacts,
    ParameterCount,
    Quantization,
    TensorGroup,
)
from hubaudit.types.report import ExactFit, ExactMemory, ExactPhase, Finding, Fit, Report, Subject
from hubaudit.types.snapshot import (
    ReadProblem,
    RepoFile,
    RepoSnapshot,
    TensorInfo,
    Terms,
    TokenizerFacts,
    WeightFile,
    WeightIndex,
    WeightSet,
)
from hubaudit.types.values import (
    NOTHING,
    Category,
    Checkpointing,
    Config,
    Exactness,
    Json,
    Mode,
    ProblemKind,
    Severity,
    Source,
    Sourced,
)
from hubaudit.types.workload import Hardware, Workload

__all__ = [
    "NOTHING",
    "BuiltTensor",
    "CacheTensor",
    "Category",
    "Checkpointing",
    "Component",
    "Config",
    "DeviceShare",
    "Disagreement",
    "Estimate",
    "ExactFit",
    "ExactMemory",
    "ExactPhase",
    "Exactness",
    "Finding",
    "Fit",
    "Hardware",
    "Json",
    "LayerSpec",
    "MadeBuffer",
    "MixtureOfExperts",
    "Mode",
    "ModelFacts",
    "Omission",
    "ParameterCount",
    "Phase",
    "ProblemKind",
    "Quantization",
    "ReadProblem",
    "RepoFile",
    "RepoSnapshot",
    "Report",
    "Severity",
    "Source",
    "Sourced",
    "StageShare",
    "Subject",
    "TensorGroup",
    "TensorInfo",
    "Terms",
    "TokenizerFacts",
    "Variant",
    "WeightFile",
    "WeightIndex",
    "WeightSet",
    "Workload",
]
