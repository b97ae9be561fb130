"""Which names are those of secrets, and how to show an address without the secrets in it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

# `token` only as the last word, and not one of many: `max_tokens`, `tokenizer`, `input_token_count`,
# `time_to_first_token` and `per_token` are not secrets.
_SECRET_NAME = re.compile(
    r"secret|passw(or)?d|api_?key|authorization|credential"
    r"|(^|(?<!first)(?<!^per)(?<!_per)[_-])token$",
    re.IGNORECASE,
)

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)
_URL = re.compile(rf"(?<![a-z0-9+.-]){_SCHEME.pattern}://\S+", re.IGNORECASE)


def names_secret(key: str) -> bool:
    """Whether a value under this key is a secret."""
    return _SECRET_NAME.search(key) is not None


def public_address(address: str) -> str:
    """A URL without user, password, query and fragment, which may hold signatures; a path unchanged."""
    scheme, found, _ = address.partition("://")
    if not found or not _SCHEME.fullmatch(scheme) or scheme.lower() == "file":
        return address
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises when the host is not valid
    except ValueError:
        # What looks like a wrong port may be part of a password.
        return f"{scheme}://..." if "@" in address else re.split("[?#]", address, maxsplit=1)[0]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def public_text(text: str) -> str:
    """A text with `public_address` of each URL in it, whatever precedes it: `--metrics=https://...`."""
    return _URL.sub(lambda found: public_address(found[0]), text)
