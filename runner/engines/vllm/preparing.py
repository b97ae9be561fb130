"""What a request needs before the engine core gets it, beside the thread that reads requests."""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import Output
from shared.errors import CogTritonError, EngineInternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.protocol.engine import Request

    from .grammars import Grammars

_AT_ONCE = 4


class Preparing:
    """Requests that ask for nothing more than tokens do not come here."""

    def __init__(
        self,
        grammars: Grammars | None,
        add: Callable[[Any], None],
        end: Callable[[str, Output], None],
    ) -> None:
        """`add` gives the engine core a request; `end` is told the last output of one that never gets it."""
        self.grammars = grammars
        self.waiting: set[str] = set()
        """The core's ids of those that are not there yet."""
        self._add = add
        self._end = end
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="prepare")

    def submit(self, request: Request, asked: Any) -> None:
        """Have the core get `asked`, the core's form of `request`: now if all is known, else later."""
        if self._is_known(request):
            self._complete(request, asked)
            self._add(asked)
        else:
            self.waiting.add(asked.request_id)
            self._threads.submit(self._prepare, request, asked)

    def close(self) -> None:
        """End what it holds."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self.grammars is not None:
            self.grammars.close()

    def _is_known(self, request: Request) -> bool:
        structure = request.structured_output
        return structure is None or self.grammars is None or self.grammars.known(structure) is not None

    def _complete(self, request: Request, asked: Any) -> None:
        """Raises E1105."""
        from .requests import hold_to

        structure, grammars = request.structured_output, self.grammars
        if structure is not None and grammars is not None:
            hold_to(asked, grammars.known(structure) or grammars.check(structure))

    def _prepare(self, request: Request, asked: Any) -> None:
        failed: CogTritonError | None = None
        try:
            self._complete(request, asked)
            self._add(asked)
        except CogTritonError as error:
            failed = error
        except Exception as problem:
            traceback.print_exc()
            failed = EngineInternalError(reason=f"{type(problem).__name__} when it was prepared")
        finally:
            self.waiting.discard(asked.request_id)
        if failed is not None:
            self._end(asked.request_id, Output(request.request_id, error=failed))
