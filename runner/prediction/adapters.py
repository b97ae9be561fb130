"""The adapters that can be asked for by name, and the folder of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import AdapterUnknown, RequestInvalid, VllmAdapterInvalid
from shared.lora import is_adapter

if TYPE_CHECKING:
    from pathlib import Path

    from shared.errors import CogTritonError

_MAX_SHOWN = 100


def by_name(error: CogTritonError, name: str | None) -> CogTritonError:
    """What an engine says of the adapter of a request, which has `name`: engines only know its folder."""
    if name is not None and isinstance(error, AdapterUnknown | VllmAdapterInvalid) and error.details:
        return type(error)(**(error.details | {"name": name}))
    return error


class Adapters:
    """All of them are below one folder; those directly in it are known from the start."""

    def __init__(self, folder: Path | None) -> None:
        """None: there are none, and cannot be any. Raises OSError for one that cannot be read."""
        self._folder = folder
        self._places: dict[str, str] = {}
        if folder is not None and folder.is_dir():
            self._places = {path.name: path.name for path in sorted(folder.iterdir()) if is_adapter(path)}

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def place(self, name: str) -> str:
        """The folder of an adapter, below the common one. Raises AdapterUnknown."""
        try:
            return self._places[name]
        except KeyError:
            raise AdapterUnknown(name=name[:_MAX_SHOWN]) from None

    def found(self, path: str) -> str:
        """The adapter at `path`, absolute or below the folder. Raises RequestInvalid."""
        if self._folder is None:
            raise RequestInvalid(
                parameter="lora_path",
                reason="no adapters can be loaded here: that needs LORA_FOLDER, and vLLM with enable_lora",
            )
        folder = self._folder.resolve()
        try:
            place = (folder / path).resolve()
            is_there = place != folder and place.is_relative_to(folder) and is_adapter(place)
        except (OSError, ValueError):
            is_there = False
        if not is_there:
            raise RequestInvalid(
                parameter="lora_path", reason=f"there is no adapter at {path} in the folder of adapters"
            )
        return str(place.relative_to(folder))

    def check_name(self, name: str, place: str, served: str) -> None:
        """Raises RequestInvalid when it is that of the model, or of another adapter."""
        if name == served or self._places.get(name, place) != place:
            raise RequestInvalid(
                parameter="lora_name", reason=f"{name} is already the name of the model or of another adapter"
            )

    def add(self, name: str, place: str) -> None:
        """From now on, `name` means what `found` returned."""
        self._places[name] = place

    def remove(self, name: str) -> None:
        """Raises AdapterUnknown."""
        self.place(name)
        del self._places[name]
