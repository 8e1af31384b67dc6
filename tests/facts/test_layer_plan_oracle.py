"""Every layer plan against what transformers itself keeps: real modeling code on the meta device, byte for byte.

Counted are the logical bytes of the cache's tensors after a prompt and a few single-token steps (``tools/meta_caches.py`` says why);
the plan is made from the config.json that transformers writes for the very model that is run.
"""

from __future__ import annotations

import importlib
import json
import logging
import random
import re
import sys
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.data.dtypes import bits_of, dtype_named
from hubaudit.facts.config_reader import ConfigReader
from hubaudit.facts.layer_plan import plan_layers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Json, LayerSpec

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.oracle

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "corpus" / "configs"
# Batch, prompt tokens, new tokens, encoder tokens; windows are 16.
CASES = ((1, 5, 1, 9), (2, 40, 1, 37))
MORE_CASES = ((3, 3, 1, 5), (1, 61, 1, 70))
DRAWS = 24
DRAWS_OF_MANY = 4  # the later ones change a single dimension, which fits together more often
DEPTHS = (5, 6, 8, 12, 16, 24)


def _tool(name: str) -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(f"tools.{name}")
    finally:
        sys.path.remove(str(ROOT))


meta_caches = _tool("meta_caches")
meta_cases = _tool("meta_cases")
meta_variants = _tool("meta_variants")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    CLASSES = [pair for pair in meta_caches.model_classes() if pair[0] not in meta_cases.CANNOT]
    logging.disable(logging.NOTSET)


def one(model_type: str, *rest: Any, name: str) -> Any:
    """One test; all of a model type run in one process (``--dist loadgroup``), which imports its code once."""
    return pytest.param(model_type, *rest, id=name, marks=pytest.mark.xdist_group(model_type))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Modeling code warns and logs about odd drawn values; what it keeps is compared all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        yield
    logging.disable(logging.NOTSET)


def planned(config: dict[str, Json]) -> tuple[LayerSpec, ...]:
    """The plan; the test fails with the reason where there is none."""
    plan, reason = plan_layers(ConfigReader(config))
    assert plan is not None, reason
    return plan


def planned_bytes(plan: tuple[LayerSpec, ...], case: tuple[int, int, int, int], dtype: str) -> int:
    """What a reader of the plan computes for (batch, prompt, new, encoder tokens)."""
    batch, prompt, new, encoder = case
    counts = {"tokens": prompt + new, "prompt_tokens": prompt, "new_tokens": new, "encoder_tokens": encoder}
    total = 0
    for tensor in (tensor for layer in plan for tensor in layer.tensors):
        counted = counts[tensor.grows_with]
        entries = counted % tensor.tokens_per_entry if tensor.unfinished else counted // tensor.tokens_per_entry
        kept = entries if tensor.window_tokens is None else min(entries, tensor.window_tokens)
        elements = tensor.fixed_elements + tensor.elements_per_token * kept
        total += batch * elements * bits_of()[tensor.dtype or dtype_named(dtype) or ""] // 8
    return total


def runner(config: dict[str, Json], class_name: str, case: Any) -> Any:
    """The model of ``config``, ready to run with its cache."""
    made = meta_caches.config_of(config)
    made = getattr(made, case.section) if case.section else made
    built = meta_caches.build(made, case.class_name or class_name, dtype=case.dtype, device=case.device)
    for part in (case.module or "").split("."):
        built = getattr(built, part) if part else built
    return meta_caches.Run(
        built, inputs=case.inputs, first_inputs=case.first_inputs, tokens=case.tokens, whole=case.whole
    )


def kept_bytes(run: Any, case: tuple[int, int, int, int]) -> int:
    """What the model really keeps."""
    batch, prompt, steps, encoder = case
    kept = run.kept(batch=batch, prompt=prompt, steps=steps, encoder_tokens=encoder)
    return int(meta_caches.total_bytes(kept))


def default_config(model_type: str, class_name: str) -> dict[str, Json]:
    """The class's defaults, shallow, with what the class needs to be a model at all."""
    case = meta_cases.case_for(model_type)
    config = meta_cases.patched(meta_caches.small_default(model_type), case.set)
    return {**config, "architectures": [class_name]}


# --- class defaults --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model_type", "class_name"), [one(t, c, name=f"{t}-{c}") for t, c in CLASSES])
def test_class_defaults(model_type: str, class_name: str) -> None:
    """Below and beyond every window, from the whole config.json and from the one without the class's defaults."""
    case = meta_cases.case_for(model_type)
    config = default_config(model_type, class_name)
    saved = meta_caches.as_json(meta_caches.config_of(config))
    plans = [planned(config), planned({**saved, "model_type": model_type, "architectures": [class_name]})]
    run = runner(config, class_name, case)
    for numbers in CASES:
        assert [planned_bytes(plan, numbers, case.dtype) for plan in plans] == [kept_bytes(run, numbers)] * 2, numbers


# --- what defaults do not show -----------------------------------------------------------------------------------------------------

VARIANTS = meta_variants.VARIANTS


@pytest.mark.parametrize(
    ("model_type", "class_name", "changes"), [one(*row, name=f"{row[0]}-{'-'.join(row[2])}") for row in VARIANTS]
)
def test_variants(model_type: str, class_name: str, changes: dict[str, Any]) -> None:
    """Other rules, other kinds of layer, shared caches, older keys: as the file says it, before any class has filled it in."""
    case = meta_cases.case_for(model_type)
    config = meta_cases.patched(default_config(model_type, class_name), changes)
    plan = planned(config)
    run = runner(config, class_name, case)
    for numbers in CASES:
        assert planned_bytes(plan, numbers, case.dtype) == kept_bytes(run, numbers), numbers


# --- drawn dimensions --------------------------------------------------------------------------------------------------------------

GEOMETRY = re.compile(
    r"^(num_(attention|key_value|kv)_heads|n_heads?|num_heads|(decoder_)?attention_heads|head_dim|v_head_dim|d_kv|d_model|hidden_size"
    r"|n_embd|kv_lora_rank|qk_rope_head_dim|sliding_window|window_size|attention_chunk_size)$"
)


def _language_models() -> list[tuple[str, str]]:
    """One class for each language model, in the type of its own where it has one: wrappers add nothing to draw."""
    types = {model_type: name for model_type, name in reversed(CLASSES) if not meta_cases.case_for(model_type).module}
    found: dict[str | None, tuple[str, str]] = {}
    for model_type, name in sorted(types.items()):
        inner = ConfigReader({"model_type": model_type}).language_model().model_type
        if model_type not in meta_cases.NOT_DRAWN and (inner not in found or inner == model_type):
            found[inner] = (model_type, name)
    return sorted(found.values())


def read_keys(plan: tuple[LayerSpec, ...]) -> set[str]:
    """The keys of the file that the plan was made from, by path."""
    places = (place for layer in plan for place in layer.where.split("; "))
    return {place.removeprefix("config.json#") for place in places if place.startswith("config.json#")}


def drawn(config: dict[str, Json], paths: set[str], rng: random.Random, chance: float) -> dict[str, Json]:
    """``config`` with some of the numbers that the plan depends on, and the usual dimensions beside them, drawn anew."""
    changes: dict[str, Json] = {}
    for path in sorted(paths) if chance else [rng.choice(sorted(paths))]:
        section: Any = config
        for name in path.split("."):
            section = section.get(name) if isinstance(section, dict) else None
        name = path.rpartition(".")[2]
        if type(section) is not int or section < 1 or name in meta_caches.DEPTHS or name.endswith("_id"):
            continue
        if rng.random() < (chance or 1.0):
            options = [section * 2, section * 3, max(1, section // 2)] + ([section + 1] if section < 8 else [])
            changes[path] = rng.choice([2, 5, 24] if "window" in name or "chunk" in name else options)
    return meta_cases.patched(config, changes)


def with_two_layers(config: dict[str, Json]) -> dict[str, Json]:
    """``config`` with two layers where all of them are alike, so that the others show nothing more; else as it is."""
    if len({(layer.kind, layer.tensors) for layer in planned(config)}) > 1:
        return config
    cut = {**meta_caches.shallow(config, 2), "architectures": config["architectures"]}
    try:
        meta_caches.config_of(cut)
    except Exception:  # noqa: BLE001 -- an encoder may need its own depth, and says so in any way
        return config
    return cut


@pytest.mark.parametrize(("model_type", "class_name"), [one(t, c, name=t) for t, c in _language_models()])
def test_drawn_dimensions(model_type: str, class_name: str) -> None:
    """Heads, widths, windows and states of any size: the first drawn config that transformers runs must agree."""
    case = meta_cases.case_for(model_type)
    config = default_config(model_type, class_name)
    if not case.set:
        config = with_two_layers(config)
    paths = read_keys(planned(config))
    sections = {path.rpartition(".")[0] for path in paths}
    paths |= {f"{s}.{name}".lstrip(".") for s in sections for name in _geometry(config, s)}
    rng = random.Random(zlib.crc32(model_type.encode()))  # noqa: S311 -- reproducible variety, not secrecy
    for draw in range(DRAWS):
        tried = drawn(config, paths, rng, 0.6 if draw < DRAWS_OF_MANY else 0.0)
        if tried == config:
            continue
        try:
            run = runner(tried, class_name, case)
            kept = [kept_bytes(run, numbers) for numbers in MORE_CASES]
        except Exception:  # noqa: BLE001, S112 -- dimensions that do not fit together are refused in any way; the next draw may do
            continue
        plan = planned(tried)
        assert [planned_bytes(plan, numbers, case.dtype) for numbers in MORE_CASES] == kept
        return
    pytest.fail(f"none of {DRAWS} drawn configurations could be run")


def _geometry(config: dict[str, Json], section: str) -> list[str]:
    held: Any = config
    for name in filter(None, section.split(".")):
        held = held.get(name, {})
    return [name for name in held if GEOMETRY.match(name)] if isinstance(held, dict) else []


# --- real configurations -------------------------------------------------------------------------------------------------------------


def _real() -> list[Any]:
    known = {model_type for model_type, _ in CLASSES}
    found: dict[str, Any] = {}
    for path in sorted(CORPUS.glob("*/config.json")):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if not isinstance(config, dict) or config.get("model_type") not in known:
            continue
        plan, _ = plan_layers(ConfigReader(config))
        if plan:  # one of many fine-tunes of the same geometry is enough
            kept, name = f"{config['model_type']} {[layer.tensors for layer in plan]}", path.parent.name
            found.setdefault(kept, pytest.param(name, id=name, marks=pytest.mark.xdist_group(config["model_type"])))
    return list(found.values())


def kinds(config: dict[str, Json]) -> set[tuple[str, bool]]:
    """The kinds of layer in a configuration's plan, and whether they share another's cache; none where there is no plan."""
    plan, _ = plan_layers(ConfigReader(config))
    return {(layer.kind, layer.shares_cache_with is None) for layer in plan or ()}


def shallow_with_every_kind(config: dict[str, Json]) -> dict[str, Json]:
    """``config`` cut to as few of its first layers as show all its kinds; whole where no cut does."""
    cuts = (meta_caches.shallow(config, depth) for depth in DEPTHS)
    return next((cut for cut in cuts if kinds(cut) == kinds(config)), config)


def has(config: dict[str, Json], path: str) -> bool:
    """Whether a configuration says anything of the key at ``path``."""
    held: Any = config
    for name in path.split("."):
        held = held.get(name) if isinstance(held, dict) else None
    return held is not None


@pytest.mark.parametrize("folder", _real())
def test_real_config(folder: str) -> None:
    """Published configurations, at a depth that still has every kind of layer."""
    config = json.loads((CORPUS / folder / "config.json").read_text(encoding="utf-8"))
    model_type = config["model_type"]
    name = next((n for t, n in CLASSES if t == model_type and n in (config.get("architectures") or ())), None)
    name = name or next(n for t, n in CLASSES if t == model_type)
    case = meta_cases.case_for(model_type)
    if case.device != "meta" or (case.set and case.module):
        pytest.skip("this model type only runs with dimensions that it does not have")
    if case.section:  # a class's own default, where the file leaves it to that, is often no model
        config = meta_cases.patched(config, {path: value for path, value in case.set.items() if not has(config, path)})
    shallow = shallow_with_every_kind({**config, "architectures": [name]})
    plan = planned(shallow)
    run = runner(shallow, name, case)
    for numbers in ((1, 4, 1, 3), (2, 30, 1, 11)):
        assert planned_bytes(plan, numbers, case.dtype) == kept_bytes(run, numbers), numbers


# --- the list itself ---------------------------------------------------------------------------------------------------------------------


def test_what_cannot_run_is_a_model_type_with_a_reason() -> None:
    """The list of exceptions names model types of transformers, and is short."""
    everything = {model_type for model_type, _ in meta_caches.model_classes()}
    assert set(meta_cases.CANNOT) <= everything
    assert all(len(reason) > 20 for reason in meta_cases.CANNOT.values())
    assert len({model_type for model_type, _ in CLASSES}) >= 170


def test_the_list_of_model_types_without_a_cache_is_fresh() -> None:
    """No class of theirs takes a cache in the installed transformers (``python -m tools.architectures --cacheless`` writes the list)."""
    tool = _tool("architectures")
    assert tool.CACHELESS.read_text(encoding="utf-8") == tool.cacheless_text()
