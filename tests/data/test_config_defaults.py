"""The table of class defaults against the classes themselves, and the reader against real files as transformers reads them."""

from __future__ import annotations

import importlib
import json
import logging
import random
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hubaudit.data import table
from hubaudit.facts.config_reader import ConfigReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hubaudit.types import Json, Sourced

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "hubaudit" / "data" / "config_defaults.json"
CORPUS = ROOT.parent / "shared" / "corpus" / "configs"

FILES_A_CLASS = 4
COUNTS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
COUNTS += ("head_dim", "vocab_size", "max_position_embeddings", "intermediate_size")


@pytest.fixture(scope="module")
def tool() -> Iterator[Any]:
    """``tools.config_defaults``, with transformers there to be asked."""
    pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.syspath_prepend(str(ROOT))
        warnings.simplefilter("ignore")
        yield importlib.import_module("tools.config_defaults")
    logging.disable(logging.NOTSET)


# --- the file by itself ------------------------------------------------------------------------------------------------------


def test_the_file_has_one_model_type_a_line_in_order() -> None:
    """A change of one class is a change of one line."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if re.match(r'"[^"]+": \{"', line)]
    names = [next(iter(json.loads("{" + line.rstrip(",") + "}"))) for line in lines]
    assert {*names, "common_aliases", "common_defaults"} >= set(table("config_defaults.json")["model_types"])
    assert [name for name in names if not name.startswith("common_")] == sorted(
        table("config_defaults.json")["model_types"]
    )


def test_what_the_table_names_is_in_the_table() -> None:
    """Sections are read with classes that have a line, and a rule speaks of keys that the class has."""
    rows = table("config_defaults.json")["model_types"]
    for name, row in rows.items():
        for kind in row.get("sub_configs", {}).values():
            assert kind in rows, name
        for rule in [*(how.get("rule") for how in row.get("derived", {}).values()), *row.get("nulls", {}).values()]:
            for word in re.findall(r"[a-z]\w+(?:\.\w+)?", (rule or "").replace("ceil(", "").replace("len(", "")):
                section = word.partition(".")[0]
                places = (
                    row["defaults"],
                    row.get("derived", {}),
                    row.get("sub_configs", {}),
                    row.get("auto_sub_configs", {}),
                )
                assert any(section in place for place in (*places, table("config_defaults.json")["common_defaults"])), (
                    name,
                    word,
                )


def test_no_key_is_both_a_constant_and_computed() -> None:
    """A computed value is never written down as a constant."""
    for name, row in table("config_defaults.json")["model_types"].items():
        assert not row["defaults"].keys() & row.get("derived", {}).keys(), name


def test_every_synonym_and_section_has_its_source() -> None:
    """A row of the hand-written table says who uses the key and where that was read."""
    synonyms = table("config_synonyms.toml")
    assert all(row["source"] and row["used_by"] for row in [*synonyms["synonym"], *synonyms["section"]])
    for row in synonyms["model_type"]:
        assert row["source"]
        assert row["read_as"] in table("config_defaults.json")["model_types"]
        assert row["name"] not in table("config_defaults.json")["model_types"]


def attribute(config: Any, name: str) -> Any:
    """What a built config has, tuples as lists; ``None`` where it has nothing, or nothing that holds for every layer."""
    try:
        return json.loads(json.dumps(getattr(config, name, None)))
    except Exception:  # noqa: BLE001 -- transformers has its own errors for attributes that differ by layer
        return None


# --- against transformers -------------------------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_the_table_is_what_the_installed_transformers_gives(tool: Any) -> None:
    """The file is the tool's output for the pinned transformers, to the byte."""
    made, kept = tool.generate().splitlines(), FILE.read_text(encoding="utf-8").splitlines()
    assert [line for line in made if line not in set(kept)] == []
    assert made == kept


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_random_files_of_every_class_are_never_read_wrongly(tool: Any) -> None:
    """Some keys left out, some changed: what the reader answers is what the built class then has, for every attribute in the table."""
    library, compared, tally = tool.library(), 0, Tally()
    wrong: list[tuple[Any, ...]] = []
    for name, config_class in library.classes.items():
        chance = random.Random(f"files of {name}")  # noqa: S311 -- reproducible variety
        probe = tool.Probe(config_class, library.base, tool.START.get(name))
        for _ in range(FILES_A_CLASS):
            config = _random_config(probe, chance)
            built = probe.build(config)
            if built is not None:
                reader = ConfigReader({**probe.start, **config}, model_type=name)
                tally.compare(f"{name} {config}", reader, built)
                for key, answer, effective in _answers(name, reader, probe.read(built)):
                    compared += 1
                    if answer.value != effective:
                        wrong.append((name, key, answer.value, answer.where, effective, config))
    wrong += tally.wrong
    print(f"{compared} values of classes and {tally.right} of their sections compared")  # noqa: T201 -- the figure is what the test is read for
    assert wrong == []
    assert compared + tally.right > 30_000


def _random_config(probe: Any, chance: random.Random) -> dict[str, Any]:
    declared = probe.declared()
    config: dict[str, Any] = {}
    for key in chance.sample(sorted(declared), chance.randint(0, min(6, len(declared)))):
        value = declared[key]
        if isinstance(value, bool):
            config[key] = not value
        elif isinstance(value, int):
            config[key] = chance.choice((value * 2, value * 6, value + 2, max(1, value // 4)))
        elif value is None and "int" in str(probe.annotation(key)):
            config[key] = chance.choice((2, 16, 20))
        else:
            config[key] = value
    for section in probe.sections:
        if chance.random() < 0.3:
            config[section] = {
                key: chance.choice((64, 128)) for key in chance.sample(COUNTS, 2) if _belongs(probe, section, key)
            }
    if chance.random() < 0.3 and declared:
        config[chance.choice(sorted(declared))] = None
    return config


def _belongs(probe: Any, section: str, key: str) -> bool:
    """Whether the section has the key by itself, and not only where a file puts it there."""
    child = getattr(probe.build({}), section, None)
    return attribute(child, key) is not None


def _answers(name: str, reader: ConfigReader, effective: dict[str, Any]) -> Iterator[tuple[str, Sourced[Json], Any]]:
    """Each attribute of the table that the reader claims to know, with what the class has; not those that the class is known to rewrite."""
    row = table("config_defaults.json")["model_types"][name]
    for key in sorted({*row["defaults"], *row.get("derived", {}), "tie_word_embeddings"} & effective.keys()):
        answer = reader.get(key)
        if (answer.value is not None or reader.is_null(key)) and not (reader.rewrites(key) and reader.says(key)):
            yield key, answer, effective[key]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real configuration files is not here")
def test_real_files_are_read_as_transformers_reads_them(tool: Any) -> None:
    """For every real config.json that transformers can load: no wrong value, and hardly an unknown one, in any section."""
    auto = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    tally = Tally()
    for file in sorted(CORPUS.glob("*/config.json")):
        config = json.loads(file.read_text(encoding="utf-8"))
        reader = ConfigReader(config)
        if reader.model_type in auto:
            tally.compare(file.parent.name, reader, auto[reader.known_type].from_dict(json.loads(json.dumps(config))))
    print(f"{tally.files} files: {tally.right} values right; unknown: {len(tally.unknown)}")  # noqa: T201
    print(*tally.unknown, f"rewritten by the class: {len(tally.rewritten)}", *tally.rewritten, sep="\n")  # noqa: T201
    assert tally.wrong == []
    assert len(tally.unknown) <= 0.01 * tally.right
    assert tally.files > 150


class Tally:
    """Counts of answers, right, wrong and missing, over all files and sections."""

    def __init__(self) -> None:
        self.files = 0
        self.right = 0
        self.wrong: list[tuple[Any, ...]] = []
        self.unknown: list[tuple[Any, ...]] = []
        self.rewritten: list[tuple[Any, ...]] = []

    def compare(self, name: str, reader: ConfigReader, config: Any) -> None:
        """One file: every section, and the one that is the language model."""
        self.files += 1
        self._section(name, reader, config)
        try:
            chosen = config.get_text_config(decoder=True)
        except ValueError:  # several sections would do, and transformers does not choose
            return
        if any(chosen is part for part in _parts(config)):  # else a copy with the decoder's keys renamed
            self._counts(f"{name} (language model)", reader.language_model(), chosen)

    def _section(self, name: str, reader: ConfigReader, config: Any) -> None:
        self._counts(name, reader, config)
        tied = getattr(config, "tie_word_embeddings", False)
        answer = reader.flag("tie_word_embeddings")
        self._value((name, "tie_word_embeddings", tied), reader, "tie_word_embeddings", answer.value, answer.where)
        for key in config.sub_configs_defaults:
            inner, child = reader.section(key), getattr(config, key, None)
            if inner is not None and child is not None:
                self._section(f"{name} {key}", inner, child)

    def _counts(self, name: str, reader: ConfigReader, config: Any) -> None:
        for key in COUNTS:
            value, answer = attribute(config, key), reader.integer(key)
            if isinstance(value, int):
                self._value((name, key, value), reader, key, answer.value, answer.where)

    def _value(self, case: tuple[Any, ...], reader: ConfigReader, key: str, answer: Any, where: str) -> None:
        if answer is None:
            self.unknown.append((*case, where))
        elif answer == case[-1]:
            self.right += 1
        elif reader.rewrites(key) and reader.says(key):
            self.rewritten.append((*case, answer, where))
        else:
            self.wrong.append((*case, answer, where))


def _parts(config: Any) -> Iterator[Any]:
    """The config and every section of it."""
    yield config
    for key in config.sub_configs_defaults:
        child = getattr(config, key, None)
        if child is not None:
            yield from _parts(child)
