"""Compile the engine bridge.

    python -m runner.bridge.build --zig-path DIR --output .../engine_bridge/libtriton_engine_bridge.so

`DIR` holds the package `ziglang` (requirements/bridge.txt). What the C sources share with Python modules --
the texts of errors, the types of frames, the layout of the status page -- is written to a header here, so
that it stands in one place. The library's bytes depend on the sources and the compiler alone.
"""

from __future__ import annotations

import argparse
import os
import re
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from runner.protocol import frames, status
from runner.protocol.engine import FinishReason
from shared import errors

_SOURCES = Path(__file__).resolve().parent
_TARGET = "x86_64-linux-gnu.2.31"
_FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O2",
    "-s",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wl,--build-id=none",
    "-Wl,--allow-shlib-undefined",  # Triton's functions are found in the server that loads the library
)
_ERRORS = (
    errors.EngineProcessDied,
    errors.EngineNotReady,
    errors.EngineGaveUp,
    errors.MalformedRequest,
    errors.BridgeMisconfigured,
    errors.EngineStartFailed,
)


def constants_header() -> str:
    """What C and Python share, as C: every error text is a printf format whose fields are all `%s`."""
    numbers = {
        "PROTOCOL_VERSION": frames.PROTOCOL_VERSION,
        "ERROR_FINISH": frames.ERROR_FINISH,
        "TEXT_FINISH": frames.TEXT_FINISH,
        "NOT_FINISHED": FinishReason.NOT_FINISHED,
        **{f"FRAME_{kind.name}": kind for kind in frames.FrameType},
        **{f"INTERFACE_{interface.name}": interface for interface in frames.Interface},
        **{f"STATE_{state.name}": state for state in status.EngineState},
        "STATUS_SIZE": status.SIZE,
        "STATUS_MAGIC": status.MAGIC,
        "STATUS_MAGIC_AT": status.MAGIC_AT,
        "STATUS_ENGINE_STATE": status.ENGINE_STATE,
        "STATUS_ENGINE_PID": status.ENGINE_PID,
        "STATUS_RESTARTS": status.RESTARTS,
        "STATUS_IN_FLIGHT": status.IN_FLIGHT,
        "STATUS_STATISTICS": status.STATISTICS,
        "STATUS_STATISTICS_COUNT": status.STATISTICS_COUNT,
        "STATUS_SLOTS": status.SLOTS,
        "STATUS_SLOT_COUNT": status.SLOT_COUNT,
        "STATUS_CANCELLED": status.CANCELLED,
    }
    lines = ["#pragma once", *(f"#define {name} {int(number)}" for name, number in numbers.items())]
    lines += [f'#define {_macro_name(kind)} "{_printf_format(kind)}"' for kind in _ERRORS]
    return "\n".join(lines) + "\n"


def _macro_name(kind: type[errors.CogTritonError]) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.name())
    return f"{kind.code}_{words.upper()}"


def _printf_format(kind: type[errors.CogTritonError]) -> str:
    text = f"{kind.code} {kind.name()}: {kind.message} {kind.remedy}".replace("%", "%%")
    fields = {field: "%s" for _, field, _, _ in string.Formatter().parse(text) if field}
    return text.format(**fields).replace("\\", "\\\\").replace('"', '\\"')


def build(zig_path: Path, output: Path) -> None:
    """Compile the library to `output`, which appears whole or not at all.

    Raises subprocess.CalledProcessError when the compiler refuses; it has said why on stderr.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as scratch:
        include = Path(scratch, "include")
        include.mkdir()
        (include / "constants.h").write_text(constants_header())
        library = Path(scratch, output.name)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", _TARGET, *_FLAGS]
        command += [f"-I{include}", "-o", str(library)]
        command += [path.name for path in sorted(_SOURCES.glob("*.c"))]
        environment = {
            **os.environ,
            "PYTHONPATH": str(zig_path),
            "ZIG_LOCAL_CACHE_DIR": str(Path(scratch, "zig")),
            "ZIG_GLOBAL_CACHE_DIR": str(Path(scratch, "zig")),
        }
        subprocess.run(command, check=True, cwd=_SOURCES, env=environment)
        library.replace(output)


def main() -> None:
    parser = argparse.ArgumentParser(prog="runner.bridge.build", description="Compile the engine bridge.")
    parser.add_argument("--zig-path", type=Path, required=True, help="the folder that holds `ziglang`")
    parser.add_argument("--output", type=Path, required=True, help="the library to write")
    options = parser.parse_args()
    build(options.zig_path.resolve(), options.output.resolve())


if __name__ == "__main__":
    main()
