import asyncio
import os

from runner.lifecycle.log_filter import LogForwarder


def test_lines_are_passed_on_within_4_kb_and_the_last_error_is_remembered(capfd):
    error = "E2406 BridgeMisconfigured: The engine bridge cannot start: x. Fix it."
    lines = [b"first", b"x" * 3_000_000, error.encode(), b"CudaDriverHelper has not been initialized"]

    async def forward():
        reading, writing = os.pipe()
        forwarder = LogForwarder()
        forwarding = asyncio.create_task(forwarder.forward(os.fdopen(reading, "rb")))
        await asyncio.to_thread(_write, writing, b"\n".join([*lines, b"last"]))
        await forwarding
        return forwarder.last_error

    assert str(asyncio.run(forward())).startswith("E2406")
    first, long, told, last = capfd.readouterr().err.splitlines(keepends=True)
    assert (first, last) == ("first\n", "last\n")
    assert len(long) <= 4096
    assert long.endswith(" bytes left out]\n")
    assert told == f"{error}\n"


def _write(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as pipe:
        pipe.write(data)
