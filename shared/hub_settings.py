"""What the hub's library reads from the environment while it is imported, and fails with."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from shared.errors import SettingInvalid

_SECONDS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")


def check_hub_settings() -> None:
    """Before `huggingface_hub` is imported. Raises SettingInvalid."""
    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        _ = urlsplit(endpoint or "").port  # raises for one that is not a number
    except ValueError:
        # Without a scheme, what may be a password cannot be told apart.
        shown = endpoint if endpoint and "://" in endpoint else "***"
        raise SettingInvalid(
            setting="HF_ENDPOINT", value=shown, reason="that is not a valid address"
        ) from None
    for name in _SECONDS:
        try:
            int(os.environ.get(name) or 0)
        except ValueError:
            raise SettingInvalid(
                setting=name, value=os.environ[name], reason="it must be a whole number of seconds"
            ) from None
