"""What every model class of transformers makes while it is loaded and saves to no file, beside what hubaudit/data/buffers.toml tells of it.

``python -m tools.made_buffers [TYPE…]`` builds each class on the meta device in bfloat16, in the size of its default configuration, which in most types is that of a
published model. It prints a JSON row for each whose buffers are at least a hundred-thousandth of its weights, and ends with 1 where the table is wrong or lacks a row. To be
run when transformers is updated (needs torch and transformers, and a quarter of an hour).
"""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

from hubaudit.estimate.expression import evaluate
from hubaudit.facts.buffers import is_one_of, made_buffers
from hubaudit.facts.config_reader import ConfigReader
from tools import meta_cases
from tools.class_survey import classes
from tools.meta_caches import as_json, config_of, small_default, tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hubaudit.types import MadeBuffer

_BITS = 16
#: Smaller shares of the weights are not printed, and need no row.
_LEAST, _NO_ROW = 100_000, 1_000
_SECONDS = 40


def built(model_type: str, class_name: str) -> Any:
    """The class's model of its default configuration, in bfloat16 on the meta device."""
    torch, made_class = tools().torch, getattr(tools().transformers, class_name)
    try:
        said = as_json(tools().configs[model_type]())
    except (ValueError, TypeError):
        said = small_default(model_type)
    config = config_of(meta_cases.patched({**said, "model_type": model_type}, meta_cases.case_for(model_type).set))
    for name, part in type(config).sub_configs.items():
        if part is made_class.config_class:
            config = getattr(config, name)
            break
    with torch.device("meta"):
        return made_class._from_config(config, dtype=torch.bfloat16)


def row(model: Any) -> dict[str, int]:
    """Bytes of the weights, of the buffers that the table names as it tells them and as they are, and of all others that no file holds."""
    model.config.architectures = [type(model).__name__]
    config = json.loads(model.config.to_json_string(use_diff=True))
    known = made_buffers(ConfigReader(config), type(model).__name__)
    saved = set(model.state_dict())
    own = {name: tensor.nbytes for name, tensor in model.named_buffers() if name not in saved}
    made = sum(size for name, size in own.items() if is_one_of(name, known))
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return {"weights": weights, "told": told(known), "made": made, "rest": sum(own.values()) - made}


def told(known: Iterable[MadeBuffer]) -> int:
    """The table's figure."""
    formulas = ((one.formula, {name: value.value or 0 for name, value in one.inputs.items()}) for one in known)
    return sum(evaluate(formula, {**inputs, "dtype_bits": _BITS}) for formula, inputs in formulas)


def survey(wanted: list[str]) -> Iterator[dict[str, Any]]:
    """All classes, or those of the types that are given; a class that cannot be built has an ``error``."""
    for model_type, class_name in classes():
        if wanted and model_type not in wanted:
            continue
        name = {"type": model_type, "class": class_name}
        signal.alarm(_SECONDS)
        try:
            yield {**name, **row(built(model_type, class_name))}
        except Exception as error:  # noqa: BLE001 -- whatever a class raises of its own defaults
            yield {**name, "error": type(error).__name__}
        finally:
            signal.alarm(0)


def _late(*_: object) -> None:
    raise TimeoutError


def main() -> int:
    """Print the rows; 1 where one is wrong."""
    signal.signal(signal.SIGALRM, _late)
    is_wrong = False
    for found in survey(sys.argv[1:]):
        if "error" not in found:
            if max(found["told"], found["made"], found["rest"]) * _LEAST < max(1, found["weights"]):
                continue
            found["wrong"] = found["told"] != found["made"] or found["rest"] * _NO_ROW >= found["weights"]
            is_wrong |= found["wrong"]
        print(json.dumps(found), flush=True)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
