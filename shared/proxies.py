"""The proxies that the environment names, for every client here."""

from __future__ import annotations

from urllib.request import getproxies

from shared.source import is_web_address


def proxy_problem() -> str | None:
    """A clause about a proxy that no client here can use; None if there is none."""
    for variable in ("http", "https", "all"):
        proxy = getproxies().get(variable)
        if proxy and not is_web_address(proxy if "://" in proxy else f"http://{proxy}"):
            return f"{variable.upper()}_PROXY is not an http or https URL"
    return None
