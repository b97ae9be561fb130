"""A whole runner on two hosts: `cog-triton serve` on the first, `cog-triton join` on the second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import openai
import pytest

from demo.cog_client import PredictionClient
from demo.cog_server import TRUSTS_NOBODY
from shared.errors import EngineProcessDied
from tests.hosts.conftest import LOST_WITHIN, SECRET, address_of, joined
from tests.support.tensorrt_llm_engine import NVML
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.hosts.namespaces import Namespace

COG_TRITON = str(Path(sys.executable).with_name("cog-triton"))
HTTP_PORT = 5000
MODEL_NAME = "two-hosts"


class TwoHosts:
    """Each has one GPU, and the engine needs two. All that starts here is started by the command line."""

    def __init__(self, hosts: tuple[Namespace, Namespace], directory: Path, engine: Path) -> None:
        self.first, self.second = hosts
        self.url = f"http://{self.first.address}:{HTTP_PORT}"
        self.log = directory / "log"
        self.log.touch()
        self._engine = engine
        self._driver = directory / "driver"
        self._driver.mkdir()
        library = self._driver / "libnvidia-ml.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, NVML / "nvml.c"], check=True)

    @contextmanager
    def serving(self, **environment: str) -> Iterator[None]:
        """The runner on the first host, from which this thread's clients talk to it meanwhile."""
        words = (
            COG_TRITON,
            "serve",
            str(self._engine),
            "--host",
            self.first.address,
            "--port",
            f"{HTTP_PORT}",
        )
        told = {"HOSTS_ADDRESS": address_of(self.first), "SERVED_MODEL_NAME": MODEL_NAME}
        with self.log.open("a") as file:
            process = subprocess.Popen(
                self.first.command(*words),
                stdout=file,
                stderr=file,
                env=self._environment(environment | told),
            )
        try:
            with self.first.inside():
                yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(40) == 0, self.log.read_text()
            finally:
                process.kill()
                process.wait()

    def joining(self, **environment: str):
        """The second host."""
        words = (COG_TRITON, "join", address_of(self.first), str(self._engine))
        return joined(self.second.command(*words), self.log, **self._environment(environment))

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        mine = {"LD_LIBRARY_PATH": str(self._driver), "CUDA_VISIBLE_DEVICES": "0", "HOSTS_SECRET": SECRET}
        return os.environ | mine | more

    def status(self) -> str:
        """What /health-check says of the runner."""
        try:
            answer = httpx2.get(f"{self.url}/health-check", timeout=10, verify=TRUSTS_NOBODY)
        except httpx2.TransportError:
            return "STARTING"
        return str(answer.json()["status"])

    def wait_ready(self, seconds: float) -> None:
        try:
            wait_for(lambda: self.status() == "READY", seconds)
        except AssertionError:
            raise AssertionError(self.log.read_text()) from None

    def by_cog(self, prompt: str, tokens: int) -> str:
        """The text that Cog's API streams, by its events."""
        inputs = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
        pieces = list(PredictionClient(self.url, timeout=60).text(inputs))
        assert len(pieces) > 1
        return "".join(pieces)

    def by_openai(self, prompt: str, tokens: int) -> str:
        """The text that OpenAI's API streams."""
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0) as client:
            answer = client.completions.create(
                model=MODEL_NAME, prompt=prompt, max_tokens=tokens, temperature=0, stream=True
            )
            pieces = [choice.text for part in answer for choice in part.choices]
        assert len(pieces) > 1
        return "".join(pieces)

    def lose(self, prompt: str, tokens: int, lose: Callable[[], object]) -> None:
        """Take the second host away in the middle of a prediction, which says so in time, as /health-check does."""
        inputs = {"prompt": prompt, "max_tokens": tokens, "min_tokens": tokens, "temperature": 0}
        text = PredictionClient(self.url, timeout=60).text(inputs)
        next(text)
        lose()
        lost = time.monotonic()
        with pytest.raises(EngineProcessDied) as failed:
            list(text)
        assert time.monotonic() - lost < LOST_WITHIN
        reason = (
            f"E2409 HostLost: The host {self.second.address}, which serves part of the engine, was lost: "
        )
        assert reason in str(failed.value)
        wait_for(lambda: self.status() == "UNHEALTHY")
