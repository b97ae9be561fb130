"""A stand-in for CUDA's libraries, which the registry's PyTorch refers to even where it computes on the CPU.

    python cuda_stubs.py ZIG

in the environment of vLLM; `ZIG` is the folder that holds the package `ziglang`. One small library takes the place of
2.8 GB: it has every function that PyTorch's libraries refer to, under CUDA's symbol versions, and each says that
there is no device.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile

if TYPE_CHECKING:
    from collections.abc import Iterator

_CUDA = ("libcu", "libnccl", "libnv")
_WITHOUT_VERSIONS = ("cuFile", "curand", "cusparseLt", "nccl")  # how the names in those libraries begin
_NO_DEVICE = 100  # cudaErrorNoDevice
_SYMBOL = struct.Struct("<I2xH16x")  # of Elf64_Sym: where its name is, and its section
_UNDEFINED = 0


def referred(library: Path) -> Iterator[tuple[str, str]]:
    """The functions of CUDA that a library refers to, each with its symbol version, or ""."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym")
        numbers = elf.get_section_by_name(".gnu.version")
        needs = elf.get_section_by_name(".gnu.version_r")
        versions = {
            version["vna_other"]: version.name
            for need, its in needs.iter_versions()
            for version in its
            if need.name.startswith(_CUDA)
        }
        strings = elf.get_section(symbols["sh_link"])
        # There are many of them: they are taken without an object for each.
        rows = zip(_SYMBOL.iter_unpack(symbols.data()), memoryview(numbers.data()).cast("H"), strict=True)
        for (name_at, section), number in rows:
            if section != _UNDEFINED:
                continue
            name, version = strings.get_string(name_at), versions.get(number)
            if version is not None or name.startswith(_WITHOUT_VERSIONS):
                yield name, version or ""


def needed(library: Path) -> set[str]:
    """The names of the libraries of CUDA that a library is linked to."""
    with library.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        return {tag.needed for tag in tags if tag.needed.startswith(_CUDA)}


def compile_stub(functions: dict[str, set[str]], zig: Path, output: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "stub.c"), Path(scratch, "versions")
        names = sorted(set().union(*functions.values()))
        source.write_text("".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in names))
        nodes = {version: "".join(f"{name}; " for name in sorted(its)) for version, its in functions.items()}
        script.write_text("".join(f"{version} {{ {its}}};\n" for version, its in nodes.items() if version))
        command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-s", "-O1", "-fno-builtin", "-nostdlib"]
        subprocess.run(
            [*command, f"-Wl,--version-script={script}", "-o", output, source],
            check=True,
            env=os.environ
            | {"PYTHONPATH": str(zig), "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch},
        )


def main() -> None:
    zig = Path(sys.argv[1]).resolve()
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    place = Path(torch.origin).parent / "lib"
    libraries = sorted(place.glob("*.so"))
    functions = defaultdict(set)
    for library in libraries:
        for name, version in referred(library):
            functions[version].add(name)
    stub = place / "no-cuda.so.0"
    compile_stub(functions, zig, stub)
    present = {path.name for path in libraries}
    for name in set().union(*map(needed, libraries)) - present:
        link = place / name
        link.unlink(missing_ok=True)
        link.symlink_to(stub.name)


if __name__ == "__main__":
    main()
