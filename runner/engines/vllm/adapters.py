"""LoRA adapters: which folder one is in, and which of them the engine core holds.

The core would read an adapter that it does not hold in the middle of a step, and end if that failed. So it is
told to read each one before any request needs it, and never holds so many that it would drop one by itself.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.errors import AdapterUnknown, VllmAdapterInvalid, VllmAdaptersInUse
from shared.lora import CONFIG, WEIGHTS
from shared.unreadable import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(slots=True)
class _Held:
    """An adapter that the core holds, or is being told to load."""

    number: int
    state: tuple[object, ...]
    """Of its files: different files are a different adapter."""
    path: str
    users: set[str] = field(default_factory=set)  # the core's ids of requests


class Adapters:
    """Thread-safe."""

    def __init__(self, folder: Path, most: int, call: Callable[[str, Any], Any]) -> None:
        """`most`: how many the core can hold (`max_cpu_loras`); `call`: a method of the core's, by name."""
        self._folder = folder
        self._most = most
        self._call = call
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._names: dict[str, str] = {}  # by the core's id of a request
        self._numbers = itertools.count(1)

    def use(self, name: str, core_id: str) -> Any:
        """The `LoRARequest` of the adapter in this folder; the core keeps it until `left`.

        Raises AdapterUnknown when there is none, VllmAdaptersInUse when too many others are in use,
        VllmAdapterInvalid when it cannot be read.
        """
        from vllm.lora.request import LoRARequest

        path, state = self._found(name)
        with self._lock:
            held = self._held.get(name)
            if held is None or held.state != state:
                held = self._load(name, path, state)
            self._held.move_to_end(name)
            held.users.add(core_id)
            self._names[core_id] = name
        # The core keeps blocks of its cache under the name, which must not outlive the files.
        return LoRARequest(f"{name}#{held.number}", held.number, held.path)

    def left(self, core_id: str) -> None:
        """The request has ended."""
        name = self._names.pop(core_id, None)
        held = None if name is None else self._held.get(name)
        if held is not None:
            held.users.discard(core_id)

    def _found(self, name: str) -> tuple[Path, tuple[object, ...]]:
        folder = self._folder.resolve()
        try:
            path = (folder / name).resolve()
            if path == folder or not path.is_relative_to(folder):
                raise AdapterUnknown(name=name)
            stats = [(path / part).stat() for part in (CONFIG, WEIGHTS)]
        except (OSError, ValueError):
            raise AdapterUnknown(name=name) from None
        return path, tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def _load(self, name: str, path: Path, state: tuple[object, ...]) -> _Held:
        from vllm.lora.request import LoRARequest

        old = self._held.get(name)
        if old is not None and old.users:
            raise VllmAdaptersInUse(reason="an earlier version of it is still in use")
        if old is not None:
            self._drop(name)
        if len(self._held) >= self._most:
            idle = next((other for other, held in self._held.items() if not held.users), None)
            if idle is None:
                raise VllmAdaptersInUse(reason=f"as many as fit ({self._most}) are in use by other requests")
            self._drop(idle)
        _check(name, path)
        made = _Held(next(self._numbers), state, str(path))
        try:
            self._call("add_lora", LoRARequest(f"{name}#{made.number}", made.number, made.path))
        except TimeoutError:
            raise VllmAdaptersInUse(reason="the engine core did not load it in time") from None
        except Exception as problem:
            from .errors import plain

            raise VllmAdapterInvalid(name=name, reason=plain(str(problem))) from problem
        self._held[name] = made
        return made

    def _drop(self, name: str) -> None:
        held = self._held.pop(name)
        self._call("remove_lora", held.number)


def _check(name: str, path: Path) -> None:
    """What is not an adapter at all need not reach the core."""
    try:
        config = json.loads((path / CONFIG).read_bytes())
    except OSError as error:
        raise VllmAdapterInvalid(name=name, reason=f"{CONFIG}: {reason_of(error)}") from None
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise VllmAdapterInvalid(name=name, reason=f"{CONFIG} is not a JSON object")
