"""JSON as it is printed: readable in any language, and with nothing in it that a terminal or an editor would act on."""

from __future__ import annotations

import json
import re

_BEYOND_ASCII = re.compile("[^\n -~]")


def json_text(value: object, *, indent: int | None = None) -> str:
    """``value`` as JSON. Letters stay as they are; half characters, direction marks and the controls that JSON lets stand are escaped.

    C1 controls (U+009B opens a terminal's escape sequences as ESC [ does, ECMA-48 §5.3) and bidirectional marks need no escape in JSON (RFC 8259 §7).
    """
    return _BEYOND_ASCII.sub(_escaped, json.dumps(value, ensure_ascii=False, indent=indent))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]
