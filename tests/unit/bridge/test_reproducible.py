"""The bridge is a function of its sources and its compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shared.layout import Layout

ROOT = Path(__file__).parents[3]


def test_two_build_directories_give_the_same_bytes(tmp_path):
    libraries = []
    for name in ("one", "another/and/deeper"):
        libraries.append(tmp_path / name / "libtriton_engine_bridge.so")
        places = ["--zig-path", str(Layout.current().home / "zig"), "--output", str(libraries[-1])]
        command = [sys.executable, "-m", "runner.bridge.build", *places]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    built = Layout.current().backend_directory / "engine_bridge/libtriton_engine_bridge.so"
    assert {library.read_bytes() for library in libraries} == {built.read_bytes()}
