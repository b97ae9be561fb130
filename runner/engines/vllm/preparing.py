"""What a request needs before the engine core gets it, done outside the thread that reads requests."""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import Output
from shared.errors import UNEXPECTED, CogTritonError, EngineInternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.protocol.engine import Request

    from .adapters import Adapters
    from .grammars import Grammars


class Preparing:
    """Requests that only ask for tokens do not come here."""

    def __init__(
        self,
        grammars: Grammars | None,
        adapters: Adapters | None,
        add: Callable[[Any], bool],
        end: Callable[[str, Output], None],
    ) -> None:
        """`add` gives the engine core a request, if nobody has cancelled it.

        `end` gets the last output of one that never reaches it.
        """
        self.grammars = grammars
        self.adapters = adapters
        self.waiting: set[str] = set()
        """The core's ids of the requests that have not reached it yet."""
        self._add = add
        self._end = end
        # Each is done one at a time. An adapter does not wait until others' structures have been tried.
        self._tries = ThreadPoolExecutor(1, thread_name_prefix="structures")
        self._loads = ThreadPoolExecutor(1, thread_name_prefix="adapters")

    def submit(self, request: Request, asked: Any) -> None:
        """Give the core `asked`, the core's form of `request`: now if everything is known, else later."""
        if not self._is_structure_known(request):
            self._later(self._tries, request, asked)
        elif request.lora is not None:
            self._later(self._loads, request, asked)
        else:
            self._give(request, asked)

    def forget(self, core_id: str) -> None:
        """It was cancelled: what has not begun for it need not be done."""
        self.waiting.discard(core_id)

    def close(self) -> None:
        """End what it holds."""
        for threads in (self._tries, self._loads):
            threads.shutdown(wait=False, cancel_futures=True)
        if self.grammars is not None:
            self.grammars.close()

    def _later(self, threads: ThreadPoolExecutor, request: Request, asked: Any) -> None:
        self.waiting.add(asked.request_id)
        threads.submit(self._prepare, request, asked)

    def _is_structure_known(self, request: Request) -> bool:
        structure = request.structured_output
        return structure is None or self.grammars is None or self.grammars.known(structure) is not None

    def _give(self, request: Request, asked: Any) -> None:
        """Raises StructuredOutputInvalid, AdapterUnknown, VllmAdapterInvalid and VllmAdaptersInUse."""
        from .requests import hold_to

        structure, grammars = request.structured_output, self.grammars
        if structure is not None and grammars is not None:
            hold_to(asked, grammars.known(structure) or grammars.check(structure))
        if request.lora is None or self.adapters is None:
            self._add(asked)
            return
        asked.lora_request = self.adapters.use(request.lora, asked.request_id)
        is_given = False
        try:
            is_given = self._add(asked)
        finally:
            if not is_given:
                self.adapters.left(asked.request_id)

    def _prepare(self, request: Request, asked: Any) -> None:
        if asked.request_id not in self.waiting:
            return  # others wait for this thread
        failed: CogTritonError | None = None
        try:
            self._give(request, asked)
        except CogTritonError as error:
            failed = error
        except Exception:
            traceback.print_exc()
            failed = EngineInternalError(reason=UNEXPECTED)
        finally:
            self.waiting.discard(asked.request_id)
        if failed is not None:
            self._end(asked.request_id, Output(request.request_id, error=failed))
