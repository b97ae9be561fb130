"""Attacks on Triton's own protocols, where the operator has opened them or another user of the machine looks."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tests.security.attack import NOBODY, Attack
from tests.security.wire import HOST, exchange, head, status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.security.attack import Target

_CHUNKS = 600_000
_DEPTH = 1_000_000
_PATHS = ("/v2/models/ensemble/generate", "/v2/repository/index")
_RESTRICTED = re.compile(rb"--(?:grpc-restricted-protocol|http-restricted-api)=[^:]*:([^=\0]+)=([^\0]*)")


class TritonBodies(Attack):
    """3: 600,000 chunks of a byte, and JSON of a million lists one in another, to Triton's HTTP."""

    settings: ClassVar[Mapping[str, str]] = {"TRITON_HTTP_ADDRESS": ""}  # the siege names a free port

    async def round(self) -> None:
        port = self.target.triton_http_port
        if port is None:
            raise ValueError("this needs TRITON_HTTP_ADDRESS")
        chunked = {"Transfer-Encoding": "chunked", "Content-Type": "application/json", "Connection": "close"}
        sized = {"Content-Length": str(_DEPTH), "Content-Type": "application/json", "Connection": "close"}

        async def one(number: int) -> None:
            path = _PATHS[number % 2]
            if number < 2:
                data = head("POST", path, port, chunked) + b"1\r\n[\r\n" * _CHUNKS + b"0\r\n\r\n"
            else:
                data = head("POST", path, port, sized) + b"[" * _DEPTH
            self.counts[str(status(await exchange(port, data, seconds=20)))] += 1

        await self.repeat(4, 2, one)


class TritonNeighbor(Attack):
    """2: another user of the machine, over gRPC: registers memory and changes the log, with the keys that
    command lines show; then over every port on which Triton listens.
    """

    settings: ClassVar[Mapping[str, str]] = {"TRITON_GRPC_ADDRESS": ""}
    user = NOBODY

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        import tritonclient.grpc as triton_grpc  # now: nobody may be unable to read it

        self._client = triton_grpc.InferenceServerClient

    async def round(self) -> None:
        keys = self._shown_keys()
        if keys:
            self.breaches.append(f"a command line shows keys of {len(keys)} restricted APIs")
        for port in {*self.target.ports} - {self.target.port, self.target.triton_http_port}:
            self._change(f"{HOST}:{port}", keys)
            await asyncio.sleep(0)

    def _shown_keys(self) -> dict[str, str]:
        shown: dict[str, str] = {}
        for pid in self.target.pids:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            for name, value in _RESTRICTED.findall(command):
                shown[f"triton-grpc-protocol-{name.decode()}"] = value.decode()
        return shown

    def _change(self, address: str, headers: dict[str, str]) -> None:
        client = self._client(address)
        calls: dict[str, Any] = {
            "registered shared memory": lambda: client.register_system_shared_memory(
                "hostile", "/nobodys", 64, headers=headers, client_timeout=5
            ),
            "changed log settings": lambda: client.update_log_settings(
                {"log_verbose_level": 1}, headers=headers, client_timeout=5
            ),
            "changed trace settings": lambda: client.update_trace_settings(
                settings={"trace_level": ["TIMESTAMPS"]}, headers=headers, client_timeout=5
            ),
            "unloaded the model": lambda: client.unload_model("ensemble", headers=headers, client_timeout=5),
        }
        with client:
            for what, call in calls.items():
                try:
                    call()
                except Exception as problem:
                    self.counts[f"refused: {what}"] += 1
                    if "Unable to open shared memory region" in str(problem):
                        self.breaches.append(f"{address}: Triton tried to open memory for nobody")
                else:
                    self.breaches.append(f"{address}: nobody {what}")
