"""What Nix says of the images, and that their bytes depend on the locks alone."""

import ast
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from pathlib import Path

import pip
import pytest

from nix.lock import stand_ins
from tests.support.images import CPU, NAMES, ROOT, build_image, copy_repository, run

LAYERS = "images: builtins.mapAttrs (_: image: map toString image.layers) images"
# As a user's own flake has it, except for where it comes from.
MODEL = """{{
  inputs.cog-triton.url = "path:{root}";
  inputs.cog-triton.inputs.nixpkgs.url = "path:{root}/nix/host-toolchain";
  outputs = {{ cog-triton, ... }}: {{
    packages.x86_64-linux.default = cog-triton.lib.mkModel {{
      runner = cog-triton.packages.x86_64-linux.{runner};
      env.COG_WEIGHTS = "https://example.com/engine.tar";
    }};
  }};
}}
"""
# A package's own way to be built, of which pip asks for the metadata.
BACKEND = """
import pathlib

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    made = pathlib.Path(folder, "mirrored-VERSION.dist-info")
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\\nName: mirrored\\nVersion: VERSION\\n")
    (pathlib.Path.home() / ".cache").mkdir(parents=True)
    return made.name
"""
HOME_OF_BUILDS = Path("/homeless-shelter")
BRIDGE, ENGINE = 4, 5  # their places among the layers
FEATURES = ("--extra-experimental-features", "nix-command flakes")
AS_ROOT = (
    "--option",
    "build-users-group",
    "",
    "--option",
    "sandbox",
    "false",
    "--option",
    "substituters",
    "",
)


def nix(*arguments, check=True, **environment):
    return run(ROOT / "ci/nix", *arguments, check=check, env={**os.environ, **environment})


def evaluated(**environment):
    """The layers of each image."""
    shown = nix("eval", "--json", ".#packages.x86_64-linux", "--apply", LAYERS, **environment)
    return json.loads(shown.stdout)


def test_every_image_evaluates():
    assert evaluated().keys() - {"default"} == NAMES


def test_runners_differ_in_the_engine_layer_and_what_it_needs_alone(stand_in_locks):
    images = evaluated(COG_TRITON_LOCKS=str(stand_in_locks))
    vllm = [images[name] for name in NAMES if "-vllm-" in name]
    (compiler,) = {layers.pop(ENGINE) for layers in vllm}
    assert "layer-compiler" in compiler
    runners = [layers for name, layers in images.items() if "runner" in name]
    assert len({tuple(layers[:ENGINE] + layers[ENGINE + 1 :]) for layers in runners}) == 1
    assert len({layers[ENGINE] for layers in runners}) == len(NAMES) - 1


def test_only_what_the_bridge_is_made_of_compiles_it_anew(tmp_path):
    checkout = copy_repository(tmp_path)

    def bridge():
        apply = f"image: toString (builtins.elemAt image.layers {BRIDGE})"
        return run(checkout / "ci/nix", "eval", "--raw", f".#{CPU}", "--apply", apply).stdout

    before = bridge()
    for module in ("shared/errors/serving.py", "runner/protocol/frames.py"):
        (checkout / module).write_text((checkout / module).read_text() + "\n# changed\n")
    assert bridge() == before
    source = checkout / "runner/bridge/backend.c"
    source.write_text(source.read_text() + "\n")
    assert bridge() != before


def test_a_path_that_is_no_url_gives_the_same_image(cpu, tmp_path):
    checkout = copy_repository(tmp_path / "100% of it, a copy")
    git("init", "--quiet", cwd=checkout)
    git("add", ".", cwd=checkout)
    before = set(Path("/tmp").glob("cog-triton-flake-*"))
    known = {"COG_TRITON_REVISION": value} if (value := revision(cpu)) else {}
    other = build_image(CPU, tmp_path / "an image", root=checkout, **known)
    assert run(other, "digest").stdout == run(cpu, "digest").stdout
    run(checkout / "ci/nix", "flake", "show")
    assert set(Path("/tmp").glob("cog-triton-flake-*")) <= before


def test_an_image_says_what_it_was_pruned_for():
    told = 'builtins.mapAttrs (_: image: [ (image.config.Labels."cog-triton.sm" or null) (image.config.Env.COG_TRITON_SM or null) ])'
    images = json.loads(nix("eval", "--json", ".#packages.x86_64-linux", "--apply", told).stdout)
    ends = {name: name.rpartition("-")[2] for name in NAMES}
    wanted = {name: end if end.isdigit() else None for name, end in ends.items()}
    assert {name: images[name] for name in NAMES} == {name: [sm, sm] for name, sm in wanted.items()}


def test_the_flake_can_be_shown():
    nix("flake", "show")


def test_an_unknown_hash_names_the_command_that_fills_it(tmp_path):
    shutil.copytree(ROOT / "nix/locks", tmp_path / "locks")
    path = tmp_path / "locks/wheels/runner.json"
    lock = json.loads(path.read_text())
    lock["wheels"][0]["sha256"] = None
    path.write_text(json.dumps(lock))
    refused = nix("build", f".#{CPU}", "--no-link", check=False, COG_TRITON_LOCKS=str(tmp_path / "locks"))
    assert refused.returncode
    assert "The locks hold no sha256 for" in refused.stderr
    assert "run 'make lock'" in refused.stderr


def fetched(folder, file, content):
    """A package that only a mirror of NVIDIA's index has, which Nix asks pip for."""
    name, version = file.split("-")[:2]
    page = folder / "mirror" / name / "index.html"
    page.parent.mkdir(parents=True)
    (page.parent / file).write_bytes(content)
    page.write_text(f'<a href="{file}">it</a>')
    row = {
        "name": name,
        "version": version.removesuffix(".tar.gz"),
        "file": file,
        "sha256": hashlib.sha256(content).hexdigest(),
        "index": "https://pypi.nvidia.com",
    }
    shutil.copytree(ROOT / "nix/locks", folder / "locks")
    (folder / "locks/wheels/mirrored.json").write_text(json.dumps({"python": "3.12", "wheels": [row]}))
    nix_folder = f'(/. + "{ROOT}/nix")'  # whose path may have a space
    given = f'pkgs = import ({nix_folder} + "/host-toolchain/packages.nix") {{ }}; locks = {folder}/locks;'
    given += " readJSON = path: builtins.fromJSON (builtins.readFile path);"
    wheel = f'(builtins.head ((import ({nix_folder} + "/fetch.nix") {{ {given} }}).wheels "mirrored").packages).path'
    link = folder / "fetched"
    build = ["nix", *FEATURES, "build", "--impure", "--expr", wheel, "--out-link", link, *AS_ROOT]
    run(*build, env={**os.environ, "NVIDIA_INDEX_URL": (folder / "mirror").as_uri()})
    return link


def test_a_mirror_of_nvidias_index_is_asked_for_its_wheels(tmp_path):
    version = f"1.{time.time_ns()}"  # of which the store has none
    row = {"name": "mirrored", "version": version, "file": f"mirrored-{version}-py3-none-any.whl"}
    content = stand_ins.wheel(row, {"mirrored.py": ""})
    assert fetched(tmp_path, row["file"], content).read_bytes() == content


def test_a_source_that_writes_into_its_home_stops_no_other_build(tmp_path):
    """Where there is no sandbox, Nix refuses to build once the home that it names exists."""
    version = f"1.{time.time_ns()}"
    root = f"mirrored-{version}"
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.replace("VERSION", version),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    content = packed.getvalue()
    try:
        assert fetched(tmp_path, f"{root}.tar.gz", content).read_bytes() == content
        assert not HOME_OF_BUILDS.exists()
    finally:
        shutil.rmtree(HOME_OF_BUILDS, ignore_errors=True)


def test_a_models_image_has_the_runners_layers(cpu, tmp_path):
    flake = tmp_path / "flake/flake.nix"
    flake.parent.mkdir()
    flake.write_text(MODEL.format(root=copy_repository(tmp_path / "cog-triton"), runner=CPU))
    model = tmp_path / "model"
    nix("build", f"path:{flake.parent}", "--out-link", model)
    own, base = (json.loads(run(result, "inspect", "--json").stdout) for result in (model, cpu))
    assert own["layers"] == base["layers"]
    assert own["digest"] != base["digest"]
    run(model, "layout", tmp_path / "layout")
    inspected = run("skopeo", "inspect", "--config", f"oci:{tmp_path / 'layout'}").stdout
    labels = json.loads(inspected)["config"]["Labels"]
    assert labels["org.opencontainers.image.base.name"] == CPU
    assert labels["org.opencontainers.image.base.digest"] == base["digest"]


def git(*arguments, cwd):
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    return run("git", *who, *arguments, cwd=cwd).stdout.strip()


def revision(image):
    """The commit in the label of an image that was built."""
    spec = ast.literal_eval(image.read_text().partition("\nmain(")[2].rpartition(")")[0])
    return spec["config"]["Labels"].get("org.opencontainers.image.revision")


@pytest.fixture
def commit(tmp_path):
    """A clone whose commit names a toolchain in the place of nixpkgs, so that nothing needs to be overridden."""
    clone = copy_repository(tmp_path / "clone")
    toolchain = shutil.copytree(ROOT / "nix/host-toolchain", tmp_path / "toolchain")
    flake = clone / "flake.nix"
    flake.write_text(flake.read_text().replace("github:NixOS/nixpkgs/nixos-25.11", f"path:{toolchain}"))
    (clone / "flake.lock").unlink()
    git("init", "--quiet", cwd=clone)
    git("add", ".", cwd=clone)
    run("nix", *FEATURES, "flake", "lock", cwd=clone)
    git("add", ".", cwd=clone)
    git("commit", "--quiet", "--message=All of it", cwd=clone)
    return clone


def test_the_commit_is_in_the_label_whether_or_not_an_input_is_overridden(commit, tmp_path):
    plain = tmp_path / "plain"
    run("nix", *FEATURES, "build", f"git+file://{commit}#{CPU}", "--out-link", plain, *AS_ROOT)
    overridden = build_image(CPU, tmp_path / "overridden", root=commit)
    assert revision(plain) == revision(overridden) == git("rev-parse", "HEAD", cwd=commit)
    assert run(plain, "digest").stdout == run(overridden, "digest").stdout


def test_what_was_changed_after_the_commit_is_not_labelled_with_it(commit, tmp_path):
    (commit / "README.md").write_text("changed")
    assert revision(build_image(CPU, tmp_path / "changed", root=commit)) is None


def layers(image):
    """The digests of its layers, by their names, from the lowest on."""
    return {
        layer["name"]: layer["digest"]
        for layer in json.loads(run(image, "inspect", "--json").stdout)["layers"]
    }


def test_another_python_and_zlib_make_the_same_image(cpu, tmp_path):
    """The other toolchain is the Debian release in the image itself, started by its own loader."""
    run(cpu, "layout", tmp_path / "layout")
    root = tmp_path / "root"
    root.mkdir()
    for digest in list(layers(cpu).values())[:2]:
        run("tar", "xf", tmp_path / "layout/blobs" / digest.replace(":", "/"), "-C", root)
    libraries = root / "usr/lib/x86_64-linux-gnu"
    python = tmp_path / "toolchain/bin/python3"
    python.parent.mkdir(parents=True)
    python.write_text(
        "#!/bin/bash\n"
        f'exec {libraries}/ld-linux-x86-64.so.2 --argv0 "$0" --library-path {libraries} {root}/usr/bin/python3.13 "$@"\n'
    )
    python.chmod(0o755)
    (tmp_path / "toolchain/lib").symlink_to(root / "usr/lib")
    # A toolchain can fetch wheels, too: those that are not in the store any more.
    shutil.copytree(Path(pip.__file__).parent, root / "usr/lib/python3/dist-packages/pip")
    versions = "import sys, zlib; print(sys.version_info[:2], zlib.ZLIB_RUNTIME_VERSION)"
    assert run(python, "-c", versions).stdout != run("/usr/bin/python3", "-c", versions).stdout
    shutil.copytree(ROOT / "nix/host-toolchain", tmp_path / "flake")
    flake = tmp_path / "flake/flake.nix"
    flake.write_text(flake.read_text().replace("{ }", f'{{ root = "{python.parent.parent}"; }}'))
    other = build_image(CPU, tmp_path / "other", TOOLCHAIN=str(tmp_path / "flake"))
    assert other.resolve() != cpu.resolve()
    assert layers(other) == layers(cpu)
    assert run(other, "digest").stdout == run(cpu, "digest").stdout
