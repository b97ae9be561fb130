"""The environments of the images: which Python each runs on, and which wheels fit there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.tags import Tag, compatible_tags, cpython_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

PLATFORM = "x86_64-linux"
GLIBC_MINOR = 41  # of Debian trixie
_DEBIAN_PYTHON = "3.13"  # of Debian trixie
# Names of older platforms, by the glibc they imply (PEP 600).
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True, slots=True)
class Environment:
    """`requirements/NAME.txt` says what is in one; `nix/locks/wheels/NAME.json`, which files."""

    name: str
    python: str = _DEBIAN_PYTHON
    # Pure Python packages that are only published as source.
    sources: frozenset[str] = frozenset()
    # Exists only while it has a file of requirements.
    optional: bool = False


ENVIRONMENTS = (
    Environment("runner"),
    Environment("engine-ctranslate2"),
    Environment("tokenizer-converter"),
    Environment("triton"),
    Environment("bridge"),
    # Runs in the building machine's Python, nixpkgs' or the host's: this one or newer.
    Environment("tools", "3.11"),
    Environment("engine-vllm"),
    # `make vllm-pin VERSION=... NEXT=1` makes it, while there is a version newer than that.
    Environment("engine-vllm-next", optional=True),
    # The wheel of TensorRT-LLM 1.2.1 only exists for Python 3.10 and 3.12.
    Environment("engine-tensorrt-llm", "3.12", sources=frozenset({"tensorrt-cu13"})),
)


def markers(python: str) -> dict[str, str]:
    """The values of PEP 508 markers in an image."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }


def tags(python: str) -> list[Tag]:
    """The tags of wheels that an image can run, best first."""
    major, minor = (int(number) for number in python.split("."))
    platforms = list(_platforms())
    interpreter = f"cp{major}{minor}"
    return [
        *cpython_tags((major, minor), abis=[interpreter], platforms=platforms),
        *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms),
    ]


def _platforms() -> Iterator[str]:
    for minor in range(GLIBC_MINOR, 4, -1):
        yield f"manylinux_2_{minor}_x86_64"
        if minor in _LEGACY:
            yield f"{_LEGACY[minor]}_x86_64"
    yield "linux_x86_64"
