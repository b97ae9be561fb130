"""A node of an engine on several hosts.

    python -m runner.engines.vllm.node ENGINE_DIR RANK NODES ADDRESS PORT

It does what `vllm serve --headless` does: it has the workers of this host, which are driven by the engine
core on the first one, and ends with any of them, or with the process that started it. Why it could not start
is written to the file in COG_TRITON_FAILURE.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from runner.engines.hosts.settings import FAILURE
from shared.errors import CogTritonError

from .compile_cache import use_compile_cache
from .environment import vllm_environment
from .errors import coded, not_loaded
from .nodes import Place, use_address
from .settings import engine_arguments, known_to


def main() -> int:
    """Run until a worker ends; the exit status is never 0."""
    engine_dir, rank, nodes, address, port = sys.argv[1:]
    place = Place(int(rank), int(nodes), address, int(port))
    use_address(_own_address(place))
    try:
        _run(Path(engine_dir), place)
    except CogTritonError as error:
        Path(os.environ[FAILURE]).write_text(str(error), encoding="utf-8")
        sys.stderr.write(f"{error}\n")
    return 1


def _run(engine_dir: Path, place: Place) -> None:
    """Raises vLLM's errors (E22xx)."""
    arguments = engine_arguments(engine_dir)
    with vllm_environment() as failures:
        arguments |= use_compile_cache(engine_dir, arguments, place.nodes) | place.arguments
        try:
            from vllm.engine.arg_utils import EngineArgs
            from vllm.usage.usage_lib import UsageContext

            from .executors import MortalMultiprocExecutor
        except (ImportError, OSError, RuntimeError) as problem:
            raise not_loaded(problem) from problem
        try:
            config = EngineArgs(**known_to(EngineArgs, arguments)).create_engine_config(
                UsageContext.OPENAI_API_SERVER, headless=True
            )
            executor = MortalMultiprocExecutor(config, monitor_workers=False)
        except Exception as problem:
            logged = failures.read_text(errors="replace") if failures.exists() else ""
            raise coded([logged, f"{type(problem).__name__}: {problem}"]) from problem
    executor.start_worker_monitor(inline=True)


def _own_address(place: Place) -> str:
    """The address from which this host reaches the first one."""
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((place.address, place.port))  # nothing is sent
        address: str = probe.getsockname()[0]
        return address


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)
