"""What developers start says how it is used, when it is started in another way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from shared.layout import PROJECT_ROOT


def told(*command, **options):
    """How it ends, and the last line that it writes."""
    ended = subprocess.run(
        command,
        **{"cwd": PROJECT_ROOT} | options,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["commit"], "say what is committed: ci/commit MESSAGE"),
        (["take-commit"], "name the bundle: ci/take-commit locks.bundle"),
        (["sign-image", "registry/image"], "usage: ci/sign-image HOST/REPOSITORY DIGEST SBOM"),
        (["same-digest"], "say how many there should be: ci/same-digest COUNT FILE..."),
        (["attached"], "usage: ci/attached HOST/REPOSITORY:TAG [TYPE]"),
        (["provenance", "cog-triton-runner-cpu"], "usage: ci/provenance NAME DIGEST"),
        (["nix"], "say what Nix should do: ci/nix build .#cog-triton-runner-cpu"),
    ],
)
def test_a_script_says_what_it_lacks(arguments, usage):
    program, *rest = arguments
    status, last = told(PROJECT_ROOT / "ci" / program, *rest)
    assert status != 0
    assert last.endswith(usage)


@pytest.mark.parametrize(
    "script",
    [
        "attached",
        "build-image",
        "check-image",
        "commit",
        "fill-locks",
        "make-room",
        "propose",
        "provenance",
        "push-image",
        "same-digest",
        "sign-image",
        "take-commit",
        "update-locks",
    ],
)
def test_an_option_starts_no_work(script, tmp_path):
    """`ci/update-locks --help` rewrote the locks, `ci/build-image --help` installed Nix."""
    # A copy, and without the programs that it starts: one that goes on harms nothing.
    shutil.copytree(PROJECT_ROOT / "nix/oci", tmp_path / "nix/oci")
    program = tmp_path / "ci" / script
    program.parent.mkdir()
    shutil.copy(PROJECT_ROOT / "ci" / script, program)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "dirname").symlink_to(shutil.which("dirname"))
    (programs / "python3").symlink_to(sys.executable)
    without, *others = (
        told(program, *words, cwd=tmp_path, env={"PATH": str(programs)})
        for words in ([], ["--help"], ["-h", "word"], ["--help", "word", "word"])
    )
    assert without[0] != 0
    assert f"ci/{script} " in without[1].rpartition(": ")[2]
    assert others == [without] * 3


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (["tools.manifests", "--crds", "/none"], "python -m tools.manifests: error: /none is not a folder"),
        (["nix.lock.stand_ins", "/dev/null/none"], "/dev/null/none/files: Not a directory"),
        (
            ["tests.gpu.serving", "--side", "none"],
            "python -m tests.gpu.serving: error: argument --side: invalid choice: 'none'",
        ),
        (
            ["tests.gpu.serving", "--target", "/none", "--log", "OUTPUT"],
            "/none/home/engines/vllm/bin/python has no vLLM: unpack the payload, or `make test-vllm` for a checkout",
        ),
        (
            ["tests.gpu.prove_libraries", "--site", "/none", "--cuobjdump", "/", "--scratch", "/"],
            "python -m tests.gpu.prove_libraries: error: /none does not exist",
        ),
        (
            ["tests.gpu.image.payload", "/none", "/none", "--site", "/"],
            "python -m tests.gpu.image.payload: error: /none does not exist",
        ),
        (
            ["tools.vllm_arguments", "/etc/passwd"],
            "/etc/passwd is neither a wheel of vLLM nor a folder in which one was unpacked.",
        ),
        (
            ["tools.vllm_arguments", "--none"],
            "python -m tools.vllm_arguments: error: unrecognized arguments: --none",
        ),
        (
            ["tools.vllm_pin", "0.26"],
            "python -m tools.vllm_pin: error: '0.26' is not a full version: write it as vLLM's releases do, like 0.26.0",
        ),
        (
            ["nix.lock.stand_ins", "--none"],
            "python -m nix.lock.stand_ins: error: unrecognized arguments: --none",
        ),
        (
            ["tests.gpu.serving.page", "--none"],
            "tests.gpu.serving.page: error: unrecognized arguments: --none",
        ),
        (
            ["tests.bridge.coverage", "--none"],
            "tests.bridge.coverage: error: unrecognized arguments: --none",
        ),
        (
            ["runner.bridge.build", "--zig-path", "/none", "--output", "OUTPUT"],
            "The bridge was not compiled: the reason is above.",
        ),
        (
            ["runner.bridge.build", "--zig-path", "/none", "--output", "/dev/null/none/bridge.so"],
            "/dev/null/none: Not a directory",
        ),
    ],
)
def test_a_module_says_what_it_cannot_use(arguments, last, tmp_path):
    words = [str(tmp_path / "output") if word == "OUTPUT" else word for word in arguments]
    status, said = told(sys.executable, "-m", *words)
    assert status != 0
    assert said.startswith(last)


@pytest.mark.parametrize("script", ["bit_compare", "vllm_generate"])
def test_a_python_without_pytorch_is_told(script, tmp_path):
    status, said = told(sys.executable, PROJECT_ROOT / f"tests/gpu/{script}.py", "--scratch", tmp_path)
    assert status == 1
    assert said.startswith(f"{sys.executable} has no PyTorch that sees a GPU: ModuleNotFoundError")


def test_make_passes_the_address_of_an_engine_on_as_it_is(tmp_path):
    """A signed URL was cut at its `&`, whose rest the shell ran, and a path at its space."""
    (tmp_path / "Makefile").write_bytes((PROJECT_ROOT / "Makefile").read_bytes())
    program = tmp_path / ".venv/bin/cog-triton"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    # What `make test` hands on would make this make one of its own, which says the folders that it enters.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    for engine in ("https://host/engine.tar?Date=1&Signature=it's;2", "my engines/engine.tar"):
        make = ["make", "--old-file", "setup", "serve", f"ENGINE={engine}", "PORT=5001"]
        ended = subprocess.run(
            make, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert ended.stdout.splitlines() == ["serve", engine, "--port", "5001"]
