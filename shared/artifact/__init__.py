"""engine.tar: what a builder makes and a runner loads; docs/architecture/7-engine-tar.md has the format."""

from .directory import EngineDirectory, is_damaged
from .manifest import CONFIG, MANIFEST, WHY_NO_MANIFEST, Check, EngineFacts, FileEntry, Manifest
from .partial import partial_of, remove_partials, sweep
from .read import extract_archive, read_manifest
from .store import Store
from .tar import Readable
from .write import PackedFile, write_archive

__all__ = [
    "CONFIG",
    "MANIFEST",
    "WHY_NO_MANIFEST",
    "Check",
    "EngineDirectory",
    "EngineFacts",
    "FileEntry",
    "Manifest",
    "PackedFile",
    "Readable",
    "Store",
    "extract_archive",
    "is_damaged",
    "partial_of",
    "read_manifest",
    "remove_partials",
    "sweep",
    "write_archive",
]
