"""Which release of Cog's server the modules beside this one were written for."""

from __future__ import annotations

from importlib import metadata

from shared.logs import get_logger

RELEASE = "0.23.1"


def check_release() -> None:
    """Warn about a server whose insides may differ; tests/integration/test_cog_lacks.py shows whether they
    do.
    """
    found = metadata.version("coglet")
    if found != RELEASE:
        get_logger().warning(
            "an unknown release of Cog's server: cancellations may not reach predictions",
            found=found,
            known=RELEASE,
        )
