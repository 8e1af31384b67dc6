"""What comes with hubaudit and how it is made: few needs, every one of CI's by hash, every action by commit."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from typing import Any

import pytest
import yaml
from fixture_models import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
TOX = (ROOT / "tox.ini").read_text(encoding="utf-8")
#: The dependency groups that each file is the lock of, and those of no need of the package's own.
GROUPS: dict[str, tuple[str, ...]] = {
    "base": (), "core": ("tests",), "lowest": ("tests",), "full": ("tests", "oracle"), "lint": ("lint",), "typing": ("typing",), "docs": ("docs",),
    "workflows": ("workflows",), "release": ("release",), "tox": ("tox",), "real-model": ("real-model",),
}  # fmt: skip
ALONE = ("real-model", "release", "tox", "workflows")
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)[^\n]*((?:\n    --hash=\S+[^\n]*)*)", re.MULTILINE)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def canonical(name: str) -> str:
    """As the package index compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> dict[str, set[str]]:
    """The versions of each package in a lock; there may be one for each Python."""
    found: dict[str, set[str]] = {}
    for package, version, _ in PINNED.findall((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")):
        found.setdefault(canonical(package), set()).add(version)
    return found


def test_a_plain_install_brings_three_packages() -> None:
    """click, huggingface_hub and rich, and what these need; nobody's torch."""
    names = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert names == {"click", "huggingface_hub", "rich"}
    assert not pins("base").keys() & {"torch", "transformers", "numpy", "safetensors", "accelerate"}
    assert len(pins("base")) < 30


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_locked_package_has_its_hashes(lock: Any) -> None:
    """Pip then refuses any file that is not the one that was locked, and any package that is not named."""
    text = lock.read_text(encoding="utf-8")
    packages = PINNED.findall(text)
    assert packages
    for package, _, hashes in packages:
        assert re.fullmatch(r"(\n    --hash=sha256:[0-9a-f]{64}( \\)?)+", hashes), package
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(entries) == len(packages), "something is not pinned by version"


@pytest.mark.parametrize("name", GROUPS)
def test_the_locks_are_of_todays_needs(name: str) -> None:
    """What pyproject.toml asks for is there, in a version that it allows (`tox -e lock` writes them)."""
    wanted = [] if name in ALONE else list(PROJECT["project"]["dependencies"])
    wanted += [one for group in GROUPS[name] for one in PROJECT["dependency-groups"][group]]
    locked = pins(name)
    for requirement in map(Requirement, wanted):
        versions = locked[canonical(requirement.name)]
        assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), requirement


def test_the_lowest_versions_are_those_that_are_promised() -> None:
    """`tox -e lowest` installs exactly the lower bounds of pyproject.toml."""
    assert "deps = -r requirements/lowest.txt" in TOX.partition("[testenv:lowest]")[2].partition("[testenv:")[0]
    locked = pins("lowest")
    for requirement in map(Requirement, PROJECT["project"]["dependencies"]):
        (bound,) = [one.version for one in SpecifierSet(str(requirement.specifier)) if one.operator == ">="]
        assert set(map(Version, locked[canonical(requirement.name)])) == {Version(bound)}


def test_ci_installs_nothing_without_a_hash() -> None:
    """Every pip names a lock, every environment has one, and the wheel is not built with a backend that tox fetches itself."""
    assert {path.stem for path in LOCKS} == set(GROUPS)
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert all("--require-hashes" in run for run in runs if "pip install" in run)
    (built,) = [at for at, run in enumerate(runs) if run.startswith("python -m build --wheel --no-isolation ")]
    (tried,) = [at for at, run in enumerate(runs) if run.startswith("python -m tox ")]
    assert built < tried
    assert "--installpkg" in runs[tried]
    for row in job["strategy"]["matrix"]["include"]:
        assert row["env"] == "lowest" or row["lock"] in GROUPS, row
    assert "--require-hashes" in TOX.partition("\n[real_model]\n")[2].partition("\n[")[0]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_named_by_its_commit(workflow: Any) -> None:
    """A tag can be moved; `./` is this repository."""
    used = re.findall(r"uses: (\S+)", workflow.read_text(encoding="utf-8"))
    assert used
    assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", one) for one in used if one != "./"), used


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_strangers_write_is_no_script(workflow: Any) -> None:
    """Nothing is put together into a script; a pull request runs with its own rights; what is checked out holds no credentials; a job names its rights."""
    text = workflow.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    assert document["permissions"] == {}
    assert "pull_request_target" not in text
    for job in document["jobs"].values():
        assert "permissions" in job
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), step
            if "checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_an_audit_that_could_look_nothing_up_fails() -> None:
    """Without ``--strict`` pip-audit ends with 0 where the index knows none of the packages."""
    for path in (ROOT / "tox.ini", ROOT / ".github" / "workflows" / "release.yml"):
        runs = re.findall(r"pip-audit --.*", path.read_text(encoding="utf-8"))
        assert runs
        assert all("--strict" in run for run in runs), runs


def test_every_python_that_is_promised_is_tried() -> None:
    """The classifiers, tox's environments and CI's matrix name the same versions."""
    promised = {one.rpartition(" ")[2] for one in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", one)}
    ci = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert promised == {f"3.{minor}" for minor in re.findall(r"env: py3(\d+)", ci)}
    assert "[testenv:py3{" + ",".join(sorted(one.partition(".")[2] for one in promised)) + "}]" in (
        ROOT / "tox.ini"
    ).read_text(encoding="utf-8")


def test_a_release_keeps_no_secret() -> None:
    """PyPI trusts the workflow by OIDC: no token, no password, and the right to prove itself in the one job that publishes."""
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "password" not in text
    assert text.count("id-token: write") == 1
    build, publish = text.split("\n  publish:\n")
    assert "id-token" not in build
    assert "gh-action-pypi-publish@" in publish
    assert "python tools/sbom.py " in build


def test_the_sbom_says_of_what_it_is() -> None:
    """The version and the direct needs of the package stand in it, beside what the library finds in the lock."""
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "tools" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    components = [{"name": name, "bom-ref": f"ref-{name}"} for name in ("anyio", "click", "huggingface-hub", "rich")]
    bom = {
        "metadata": {"component": {"bom-ref": "root", "name": "hubaudit"}},
        "components": components,
        "dependencies": [{"ref": "ref-anyio"}, {"ref": "root"}],
    }
    made = tool.completed(bom, "1.2.3", PROJECT["project"]["dependencies"])
    assert made["metadata"]["component"]["version"] == "1.2.3"
    assert made["metadata"]["component"]["purl"] == "pkg:pypi/hubaudit@1.2.3"
    assert made["dependencies"] == [
        {"ref": "ref-anyio"},
        {"ref": "root", "dependsOn": ["ref-click", "ref-huggingface-hub", "ref-rich"]},
    ]
