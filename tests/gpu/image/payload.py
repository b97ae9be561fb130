"""A runner's image in few and small files, for a machine with a GPU and no network.

    ci/build-image cog-triton-runner-vllm-90 RESULT
    python -m tests.gpu.image.payload RESULT DIR --site SITE [--part-mb 51]

Makes each layer again, which compares it with its recorded digest, and sorts its files:

- those whose bytes the machine gets anyway, in SITE (of `tests.gpu.serving.payload`), by their SHA-256;
- the large libraries of PyTorch and CUDA, which the machine has for its own Python: they do not depend on it; and
  those of Triton's server, which it gets without symbols;
- bytecode of the engine's modules, which the image's Python makes there;
- packages of the engine that no dense model loads on this GPU: left out;
- all others: packed with xz into DIR/payload/image.part*, with the engines that are to be served.

`image.json` among them says where each file of the image comes from. `tests.gpu.image` puts it together again.
"""

from __future__ import annotations

import argparse
import ast
import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nix.oci.image import Image
from tests.gpu.serving.model import ENGINE_ARGUMENTS, write_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
_HOME = "opt/cog-triton/"
_ENGINE = f"{_HOME}engines/vllm/"
_SITE = f"{_ENGINE}lib/python3.13/site-packages/"
_SMALL = 1 << 10  # bytes; below, finding it elsewhere is not worth a line
_LARGE = 1 << 20
_BYTECODE = ".cpython-313.pyc"
# Of the machine's own PyTorch and Triton, if large: nothing in them is made for one version of Python.
_OF_THE_MACHINE = re.compile(
    r"(?:torch/lib/(?!libtorch_python)|nvidia/|triton/backends/nvidia/(?:bin|lib)/).*"
)
_SERVER = "triton/"  # of _HOME; the machine gets it without symbols
# Compilers of kernels (nvcc is one), pictures, video, other servers and other GPUs: nothing that serving a dense
# model on sm_90 loads.
_LEFT_OUT = re.compile(
    r"(runner/lib/python3.13/site-packages/(?:coglet|hf_xet|ml_dtypes)|anthropic|bin/z3|cuda|cudnn|cutlass|cv2"
    r"|external|flashinfer/data|grpc|llvmlite|mcp|mistral_common/data|nvidia/(?:cu13|cudnn|nccl|nvshmem)/include"
    r"|nvidia/cu13/(?:nvvm/)?bin|nvidia/cu13/lib/libnvvm|nvidia/nvshmem/lib/libnvshmem_device|numba"
    r"|nvidia_cutlass_dsl|nvidia_cutlass_dsl_packages|opencv_python_headless\.libs|pycountry/locales"
    r"|PyNvVideoCodec|pynvvideocodec|tilelang|tokenspeed_mla|tokenspeed_triton|torch/include|torch/bin/protoc"
    r"|torch/bin/ptxas|torchcodec|triton/backends/amd/lib|triton/backends/nvidia/lib/cupti"
    r"|triton/instrumentation|vllm/third_party/(?:deep_gemm/include|fmha_sm100)|vllm/vllm_flash_attn/_vllm_fa2_C"
    r"|z3)\b.*"
)
_MAKE_AGAIN = """\
import json, sys
library, layer = json.loads(sys.stdin.read())
sys.path[:0] = library
from oci.layer import make_again
make_again(layer, sys.stdout.buffer.write, plain=True)
"""


def parts_of(result: Path) -> tuple[list[str], dict[str, Any]]:
    """The modules' folders and what the image is made of, from the program that `nix build` made."""
    _, path, _, call = ast.parse(result.read_text()).body
    assert isinstance(path, ast.Assign)
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    return ast.literal_eval(path.value), ast.literal_eval(call.value.args[0])


def _members(
    python: str, library: list[str], layer: dict[str, Any]
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The files of a layer, while it is made again. Raises RuntimeError when it is not what was recorded."""
    command = [python, "-IB", "-c", _MAKE_AGAIN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        assert maker.stdin is not None
        assert maker.stdout is not None
        maker.stdin.write(json.dumps([library, layer]).encode())
        maker.stdin.close()
        with tarfile.open(fileobj=maker.stdout, mode="r|", bufsize=1 << 20) as members:
            for member in members:
                yield member, members.extractfile(member) if member.isreg() else None
        while maker.stdout.read(1 << 20):  # what pads the archive
            pass
    if maker.returncode:
        raise RuntimeError(f"the layer {layer['name']} could not be made again")


def _digests(site: Path) -> dict[str, str]:
    """Paths below SITE, by the SHA-256 of their contents."""
    found = {}
    for path in site.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size >= _SMALL:
            with path.open("rb") as content:
                found[hashlib.file_digest(content, "sha256").hexdigest()] = str(path.relative_to(site))
    return found


def _published(layers: list[dict[str, Any]]) -> dict[str, str]:
    """The SHA-256 of the files of all wheels, by their path in site-packages, as the wheels list them."""
    found = {}
    wheels = {path for layer in layers for step in layer["steps"] for path in step.get("wheels", ())}
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            (name,) = (one for one in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", one))
            for line in wheel.read(name).decode().splitlines():
                file, digest, _ = line.rsplit(",", 2)
                if digest.startswith("sha256="):
                    found[file] = base64.urlsafe_b64decode(digest[7:] + "=").hex()
    return found


class _Sorted:
    """Where the files of an image come from; those that are carried go to `output`."""

    def __init__(self, known: dict[str, str], published: dict[str, str], output: tarfile.TarFile) -> None:
        self._known = known
        self._published = published
        self._output = output
        self.of_the_site: dict[str, dict[str, Any]] = {}
        self.of_the_machine: dict[str, dict[str, Any]] = {}
        self.bytecode: dict[str, str] = {}
        self.left_out: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def take(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        name = member.name.removeprefix("./")
        inside = name.removeprefix(_SITE).removeprefix(_ENGINE).removeprefix(_HOME)
        in_the_engine = name.startswith(_ENGINE)
        if name.startswith(_HOME) and (found := _LEFT_OUT.fullmatch(inside)):
            self.left_out[found[1]] += member.size
            self.bytes["left out"] += member.size
            return
        if content is None or member.size < _SMALL:
            self._carry(member, content)
            return
        data = content.read()
        digest = hashlib.sha256(data).hexdigest()
        if in_the_engine and member.name.endswith(_BYTECODE):
            self.bytecode[name] = digest
            self.bytes["compiled there"] += member.size
            return
        facts = {"sha256": digest, "size": member.size, "mode": member.mode}
        if digest in self._known:
            self.of_the_site[name] = {**facts, "path": self._known[digest]}
            self.bytes["of the site"] += member.size
        elif in_the_engine and member.size >= _LARGE and _OF_THE_MACHINE.fullmatch(inside):
            self.of_the_machine[name] = {**facts, "path": inside, "published": self._published[inside]}
            self.bytes["of the machine"] += member.size
        elif name.startswith(f"{_HOME}{_SERVER}") and member.size >= _LARGE:
            published = self._published[inside.removeprefix(_SERVER)]
            self.of_the_machine[name] = {**facts, "home": inside, "published": published}
            self.bytes["of the machine"] += member.size
        else:
            self._carry(member, io.BytesIO(data))

    def _carry(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        self.bytes["carried"] += member.size
        member.name = f"rootfs/{member.name.removeprefix('./')}"
        if member.islnk():
            member.linkname = f"rootfs/{member.linkname.removeprefix('./')}"
        self._output.addfile(member, content)


def _engines(directory: Path) -> None:
    """The demo's model as `cog-triton build` makes an engine of it, and the shape of an 8B model."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    config = directory / "demo.yaml"
    config.write_text(json.dumps({"engine": "vllm", "model": str(ROOT / "demo/model")}))
    build = [
        "-m",
        "cli",
        "build",
        str(config),
        "-o",
        str(directory / "demo.tar"),
    ]
    subprocess.run([sys.executable, *build], cwd=ROOT, check=True)
    write_engine(directory / "8b", ENGINE_ARGUMENTS).rename(directory / "8b.tar")
    shutil.rmtree(directory / "8b")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.image.payload")
    parser.add_argument("result", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--part-mb", type=int, default=51)
    options = parser.parse_args()
    for path in (options.result, options.site):
        if not path.exists():
            parser.error(f"{path} does not exist")
    directory = options.directory.resolve()
    payload = directory / "payload"
    shutil.rmtree(payload, ignore_errors=True)
    payload.mkdir(parents=True)
    library, spec = parts_of(options.result)
    image = Image.of(spec)
    _engines(directory / "engines")
    whole = directory / "image.tar"
    with tarfile.open(whole, "w", format=tarfile.PAX_FORMAT) as output:
        sorted_files = _Sorted(_digests(options.site), _published(image.layers), output)
        for layer in image.layers:
            before = sorted_files.bytes.copy()
            for member, content in _members(spec["python"], library, layer):
                sorted_files.take(member, content)
            print(layer["name"], dict(sorted_files.bytes - before), flush=True)
        facts = {
            "name": image.name,
            "digest": image.manifest.digest,
            "layers": {layer["name"]: layer["diff_id"] for layer in image.layers},
            "config": json.loads(image.config.content)["config"],
            "of the site": sorted_files.of_the_site,
            "of the machine": sorted_files.of_the_machine,
            "bytecode": sorted_files.bytecode,
            "left out": sorted_files.left_out,
            "bytes": sorted_files.bytes,
        }
        (directory / "image.json").write_text(json.dumps(facts, indent=1))
        output.add(directory / "image.json", "image.json")
        for name in ("demo.tar", "8b.tar"):
            output.add(directory / "engines" / name, f"engines/{name}")
    xz = subprocess.Popen(["xz", "-T0", "-2", "--stdout", str(whole)], stdout=subprocess.PIPE)
    assert xz.stdout is not None
    number = 0
    while part := xz.stdout.read(options.part_mb << 20):
        (payload / f"image.part{number}").write_bytes(part)
        number += 1
    if xz.wait():
        raise SystemExit("xz failed")
    whole.unlink()
    for path in sorted(payload.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path.name}")


if __name__ == "__main__":
    main()
