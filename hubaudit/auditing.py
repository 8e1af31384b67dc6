"""One audit, start to end: what was named → snapshot → facts → estimate and findings → Report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubaudit.data import table
from hubaudit.estimate.modes import definite, estimate, variants
from hubaudit.facts.layer_plan_rows import all_rows
from hubaudit.facts.repository import understand
from hubaudit.facts.tensors import role_of
from hubaudit.findings import find, rules
from hubaudit.types import Report, Subject, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from hubaudit.types import Estimate, Fit, Hardware, Mode, ModelFacts, RepoSnapshot


#: Tables that nearly every answer needs.
_TABLES = (
    "buffers.toml",
    "config_defaults.json",
    "config_synonyms.toml",
    "dtypes.toml",
    "layer_kinds.toml",
    "layer_plans_cacheless.toml",
    "load_rules.json",
    "overheads.toml",
    "quantizers.toml",
    "roles.toml",
    "runtimes.toml",
    "unbuilt.toml",
    "weight_files.toml",
)


def prepare() -> None:
    """Read the tables and the rules that the answer will need: while the Hub answers, there is time for it."""
    rules()
    all_rows()
    role_of("")
    for name in _TABLES:
        table(name)


def audit(
    name: str,
    *,
    mode: Mode = "infer",
    workload: Workload | None = None,
    hardware: tuple[Hardware, ...] = (),
    revision: str | None = None,
    token: str | None = None,
    cache_dir: Path | None = None,
    offline: bool = False,
    file: str | None = None,
) -> Report:
    """Audit one model: what it is, what memory it needs, and what is wrong with its repository.

    Args:
        name: a Hub id, ``id@revision``, a huggingface.co URL, a folder, a weight file or a saved bundle.
        mode: ``infer``, ``train`` or ``kv``; ignored where ``workload`` is given.
        workload: what the model is asked to do; by default one prompt of 2,048 tokens and 512 new ones.
        hardware: devices to judge the estimate against, for ``report.fit``.
        revision: a branch, tag or commit of a Hub repository.
        token: a Hub token; by default the one that huggingface_hub finds.
        cache_dir: where facts are kept by commit; by default in huggingface_hub's assets cache.
        offline: ask the Hub nothing.
        file: the weights to audit, by their path in the repository, instead of those that loaders would choose.

    Raises:
        HubauditError: the reason in one line, a hint, and the exit code that the command line uses.
    """
    from hubaudit.hub import fetch  # huggingface_hub takes longer to import than an audit of a bundle to run

    snapshot = fetch(name, revision=revision, token=token, cache_dir=cache_dir, offline=offline, file=file)
    return audit_snapshot(snapshot, workload or Workload(mode=mode), hardware)


def audit_snapshot(snapshot: RepoSnapshot, workload: Workload, hardware: tuple[Hardware, ...] = ()) -> Report:
    """Audit what was already read.

    Raises:
        HubauditError: as for :func:`audit`, the network left out.
    """
    return audit_facts(snapshot, understand(snapshot), workload, hardware)


def audit_facts(
    snapshot: RepoSnapshot,
    facts: ModelFacts,
    workload: Workload,
    hardware: tuple[Hardware, ...] = (),
    *,
    with_variants: bool = True,
) -> Report:
    """Audit what was already read and understood, for one workload of several.

    Raises:
        HubauditError: the workload does not go with the model.
    """
    made = estimate(facts, workload)
    return Report(
        subject=Subject(
            repo_id=snapshot.repo_id, revision=snapshot.revision, commit=snapshot.commit, source=snapshot.source
        ),
        facts=facts,
        workload=definite(facts, workload),
        estimate=made,
        variants=variants(facts, workload) if with_variants else (),
        fit=_judged(facts, workload, made, hardware) if hardware else (),
        findings=find(snapshot, facts),
    )


def _judged(facts: ModelFacts, workload: Workload, made: Estimate, hardware: tuple[Hardware, ...]) -> tuple[Fit, ...]:
    from hubaudit.fit.judge import judge  # only for those who ask

    return judge(facts, workload, made, hardware)
