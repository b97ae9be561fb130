"""`cog-triton inspect`: the manifest of an engine, wherever it is."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING
from unicodedata import category

from cli.output import counted
from shared.artifact import WHY_NO_MANIFEST, EngineDirectory, read_manifest
from shared.errors import WeightsNotFound, WeightsUnreachable
from shared.http import Unreachable
from shared.secrets import public_address
from shared.sizes import readable
from shared.source import NotThere, found, local_path, opened

if TYPE_CHECKING:
    from shared.artifact import Manifest

_STEERING = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp"])  # Unicode's categories


def manifest_of(source: str) -> Manifest | None:
    """The manifest of the engine at `source`; None if it has none.

    `source` is the path or URL of an engine.tar, or the path of a directory that holds an unpacked one.

    Only the beginning of a URL's file is fetched. Raises what `EngineDirectory` and `read_manifest` raise,
    WeightsUnreachable and WeightsNotFound.
    """
    try:
        path = local_path(source)
        if path is not None and stat.S_ISDIR(found(path).st_mode):
            return EngineDirectory(path).manifest
        with opened(source, lambda _arrived, _total: None, attempts=1) as stream:
            return read_manifest(stream)
    except NotThere:
        raise WeightsNotFound(source=source) from None
    except Unreachable as error:
        raise WeightsUnreachable(source=public_address(source), reason=error.reason) from None


def described(manifest: Manifest | None) -> str:
    """For people: one fact per line, without what is not known."""
    if manifest is None:
        return WHY_NO_MANIFEST
    facts = {
        "engine": f"{manifest.engine} {manifest.engine_version or ''}".rstrip(),
        "model": manifest.model,
        "revision": manifest.revision,
        "GPU": manifest.gpu_name and f"{manifest.gpu_name} (SM {manifest.sm})",
        "GPUs needed": manifest.ranks if manifest.sm else None,
        "TensorRT-LLM": manifest.tensorrt_llm_version,
        "TensorRT": manifest.tensorrt_version,
        "CUDA": manifest.cuda_version,
        "driver": manifest.driver_version,
        "built by": f"cog-triton {manifest.cog_triton_version}",
        "config": f"SHA-256 {manifest.config_digest}",
        "size": f"{readable(manifest.total_size)} in {counted(len(manifest.files), 'file')}",
    }
    return "\n".join(f"{name + ':':<14}{_shown(str(value))}" for name, value in facts.items() if value)


def _shown(text: str) -> str:
    """Without characters that steer a terminal or begin a line: an archive may come from a stranger."""
    return "".join(ascii(one)[1:-1] if category(one) in _STEERING else one for one in text)
