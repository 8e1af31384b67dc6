"""The user's Hub token, as huggingface_hub finds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from huggingface_hub import constants

_VARIABLES = ("HF_OIDC_RESOURCE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def find_token() -> str | None:
    """The token that ``huggingface_hub.get_token`` finds; ``None`` where the user is not logged in.

    It is asked only where one of the places that it looks at is there: importing it (and YAML, and file locks) takes a tenth of a second.

    Raises:
        OSError, ValueError: the token is there and cannot be read, or cannot be had.
    """
    is_in_notebook = "google.colab" in sys.modules  # whose secrets may hold one
    if not is_in_notebook and not any(map(os.environ.get, _VARIABLES)) and not Path(constants.HF_TOKEN_PATH).exists():
        return None
    from huggingface_hub import get_token

    return get_token()
