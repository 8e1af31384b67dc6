"""The user's Hub token, as huggingface_hub finds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from stat import S_ISREG

from httpx2 import HTTPError
from huggingface_hub import constants

_VARIABLES = ("HF_OIDC_RESOURCE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
#: A token has 37 characters; the other file lists all that the user has stored.
_MAX_TOKEN_BYTES = 10_000
_MAX_STORED_BYTES = 1_000_000


def find_token() -> str | None:
    """The token that ``huggingface_hub.get_token`` finds; ``None`` where the user is not logged in.

    It is asked only where one of the places that it looks at is there: importing it (and YAML, and file locks) takes a tenth of a second. It reads its
    files whatever they are, so what is no file of tokens is refused before.

    Raises:
        OSError, ValueError: the token is there and cannot be read, or cannot be had.
    """
    is_in_notebook = "google.colab" in sys.modules  # whose secrets may hold one
    if not any(os.environ.get(name, "").strip() for name in _VARIABLES):
        if not _is_there(constants.HF_TOKEN_PATH, _MAX_TOKEN_BYTES) and not is_in_notebook:
            return None
        _is_there(constants.HF_STORED_TOKENS_PATH, _MAX_STORED_BYTES)
    from huggingface_hub import errors, get_token

    try:
        return get_token()
    except errors.OIDCError as error:
        raise ValueError(str(error).partition("\n")[0]) from None
    except (
        HTTPError,
        LookupError,
        TypeError,
    ) as error:  # whose words may be the server's, or the endpoint with its password
        raise ValueError(f"the exchange that HF_OIDC_RESOURCE asks for failed ({type(error).__name__})") from None


def _is_there(path: str, most_bytes: int) -> bool:
    """Whether the file is there.

    Raises:
        OSError, ValueError: something is there that would be read without end, or cannot be looked at.
    """
    if not Path(path).exists() or Path(path).samefile(os.devnull):
        return False
    found = Path(path).stat()
    if not S_ISREG(found.st_mode):
        raise ValueError(f"`{path}` is no file")
    if found.st_size > most_bytes:
        raise ValueError(f"`{path}` has {found.st_size:,} bytes, which is no file of tokens")
    return True
