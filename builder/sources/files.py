"""What is in a model's folder, checked before anything works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builder.model_json import check_size, read_object, refuse_lfs_pointer
from builder.sources.hub_cache import belongs
from shared.errors import CheckpointInvalid, ModelFolderUnusable
from shared.unreadable import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_OBJECTS = (
    "config.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
)  # fmt: skip
_READ_WHOLE = (".json", ".jinja", ".model", ".txt")
# Far beyond every model: anything that believed such a number would use up all memory.
_MAX_SIZES = {"num_hidden_layers": 4096, "num_attention_heads": 1 << 15, "vocab_size": 1 << 24}


def check_files(folder: Path, names: Iterable[str]) -> None:
    """Raise ModelFolderUnusable for one of `names` that is not a file, that this user may not read, or that a
    link brings in from elsewhere; CheckpointInvalid for a Git LFS pointer, for JSON that cannot be read, and
    for sizes that no model and no such file has.
    """
    root = _root(folder)
    for name in names:
        path = folder / name
        if not belongs(path, root):
            reason = f"{name} is a link that leads out of it; put a copy of the file there"
            raise ModelFolderUnusable(path=str(folder), reason=reason)
        try:
            if not path.is_file():
                raise ModelFolderUnusable(path=str(folder), reason=f"{name} in it is not a file")
            refuse_lfs_pointer(path)
        except OSError as error:
            reason = f"{name} in it cannot be read: {reason_of(error)}"
            raise ModelFolderUnusable(path=str(folder), reason=reason) from None
        if name.endswith(_READ_WHOLE):
            check_size(path)
        if name in _OBJECTS:
            _check_sizes(name, read_object(path))


def _root(folder: Path) -> Path:
    """What files of `folder` belong to: the folder; in the hub's cache, the whole same model."""
    folder = folder.resolve()
    model = folder.parents[1] if folder.parent.name == "snapshots" else folder
    return model if model.name.startswith("models--") else folder


def _check_sizes(name: str, content: dict[str, Any]) -> None:
    for section in (content, *(value for value in content.values() if isinstance(value, dict))):
        for key, most in _MAX_SIZES.items():
            if isinstance(value := section.get(key), int) and value > most:
                raise CheckpointInvalid(reason=f"{name} has {key} {value}, but no model has more than {most}")
