"""`cog-triton inspect`: the manifest of an engine, wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.artifact import read_manifest
from shared.errors import WeightsNotFound, WeightsUnreachable
from shared.http import Unreachable
from shared.secrets import public_address
from shared.source import NotThere, opened

if TYPE_CHECKING:
    from shared.artifact import Manifest


def manifest_of(source: str) -> Manifest | None:
    """The manifest of the engine.tar at `source`, a path or URL; None where it has none.

    Of what a URL names only the beginning is fetched. Raises E4100, E4102, E4200 and E4201.
    """
    try:
        with opened(source, lambda _arrived, _total: None, attempts=1) as stream:
            return read_manifest(stream)
    except NotThere:
        raise WeightsNotFound(source=source) from None
    except Unreachable as error:
        raise WeightsUnreachable(source=public_address(source), reason=error.reason) from None
