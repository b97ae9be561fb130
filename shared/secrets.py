"""What counts as a secret by its name, and how to name an address without the secrets in it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

# `token` only as the last word, and not one of many: `max_tokens`, `tokenizer`, `input_token_count`,
# `time_to_first_token` and `per_token` are none.
_SECRET_NAME = re.compile(
    r"secret|passw(or)?d|api_?key|authorization|credential"
    r"|(^|(?<!first)(?<!^per)(?<!_per)[_-])token$",
    re.IGNORECASE,
)


def names_secret(key: str) -> bool:
    """Whether a value under this key is a secret."""
    return _SECRET_NAME.search(key) is not None


def public_address(address: str) -> str:
    """An http(s) URL without user, password, query and fragment, where signatures stand; else `address`."""
    if not address.lower().startswith(("http://", "https://")):
        return address
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
