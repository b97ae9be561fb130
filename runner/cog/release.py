"""Which release of Cog's server the modules beside this one were written for."""

from __future__ import annotations

from importlib import metadata

from shared.logs import get_logger

RELEASE = "0.23.1"


def check_release() -> None:
    """Warn of a server whose insides may be others; tests/integration/test_cog_lacks.py tells."""
    found = metadata.version("coglet")
    if found != RELEASE:
        get_logger().warning(
            "another release of Cog's server than is known: cancels may not reach predictions",
            found=found,
            known=RELEASE,
        )
