"""A disk that fills up during a build: which one it is, and how much space there was."""

from __future__ import annotations

import errno
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.errors import ConversionFailed, HostMemoryExhausted, NotEnoughSpace
from shared.file_system import filled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = 1 << 20  # bytes left when nothing useful can be written any more


@contextmanager
def watched_disk(step: str, place: Path) -> Iterator[None]:
    """Raise NotEnoughSpace with everything its reader needs when `step`, which writes to the folder `place`,
    fills the disk.

    A child reports it, or it is inferred from the space left: a child that writes through a mapping is killed
    instead. A NotEnoughSpace that has a `place` is complete.
    """
    free = shutil.disk_usage(place).free

    def complete() -> NotEnoughSpace:
        return NotEnoughSpace(reason=f'the step "{step}" {filled(place, free)}', place=place)

    try:
        yield
    except NotEnoughSpace as error:
        if "place" in error.details:
            raise
        raise complete() from None
    except (ConversionFailed, HostMemoryExhausted) as error:
        if shutil.disk_usage(place).free < _FULL:
            raise complete() from error
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise complete() from error
        raise
