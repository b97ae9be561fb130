"""The workflows, run here: every `run:` step under the shell that GitHub gives it, with a registry on loopback."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace
from zipfile import ZipFile

import pytest

from ci.workflow.run import Run
from tests.support.images import CPU, NAMES, NIX_WITH_GITHUB, ROOT, copy_repository, registry, run
from tests.support.loopback import folder_server

# bcrypt of "secret"
HTPASSWD = "user:$2y$05$jgidEhSlbjN.X7B/4QQ22u7neymJrqcxSRi3GtG/ihF9m81vMIJTq\n"
# Has to know the packages that are asked for; those that are used are there already.
APT = """#!/bin/sh
for word in "$@"; do
    case $word in update | install | -*) ;; *) apt-cache show "$word" > /dev/null || exit 100 ;; esac
done
"""
GH = """#!/bin/sh
[ -n "$GH_TOKEN" ] || exit 4
echo "$*" >> {log}
"""
# A registry on loopback has no TLS.
SKOPEO = """#!/bin/sh
verb=$1
shift
case $verb in login) set -- --tls-verify=false "$@" ;; esac
exec /usr/bin/skopeo "$verb" "$@"
"""
# What locks anew is tested elsewhere (tests/integration/test_lock.py, tests/unit/vllm/test_pin.py).
MAKE = """#!/bin/sh
case $1 in
lock) echo >> requirements/runner.txt ;;
vllm-pin) echo "# $*" >> pyproject.toml ;;
*) exec /usr/bin/make "$@" ;;
esac
"""
# There is no formatter here: the test only shows that it is called correctly.
NIXFMT = """ "mkdir -p $out/bin; printf '#!/bin/sh\\ntest $# -gt 3' > $out/bin/nixfmt; chmod 755 $out/bin/nixfmt";"""
INSTEAD = {
    ".ci/run": "test -x .ci/run",  # is what runs this
}
WHEELS = {
    "tensorrt-llm": "tensorrt_llm-1.2.1-cp312-cp312-linux_x86_64.whl",
    "tensorrt-cu13-libs": "tensorrt_cu13_libs-10.14.1.48-py2.py3-none-manylinux_2_28_x86_64.whl",
}


@pytest.fixture(scope="module")
def publishers(tmp_path_factory):
    """The site of a publisher that tells the hashes."""
    folder = tmp_path_factory.mktemp("publishers")
    for name, file in WHEELS.items():
        (folder / name).mkdir()
        (folder / name / "index.html").write_text(f'<a href="{file}#sha256={"a" * 64}">{file}</a>')
    with folder_server(folder) as server:
        yield server.url


def repository(folder, publishers):
    """A bare repository of this checkout whose locks ask `publishers`; and its commit."""
    copy = copy_repository(folder / "copy")
    for path in copy.glob("nix/locks/**/*.json"):
        text = path.read_text()
        path.write_text(text.replace("https://pypi.nvidia.com", publishers))
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "."],
        ["commit", "--quiet", "-m", "All"],
    ):
        run("git", *who, *command, cwd=copy)
    run("git", "clone", "--quiet", "--bare", copy, folder / "repository")
    return folder / "repository", run("git", "rev-parse", "HEAD", cwd=copy).stdout.strip()


def a_run(folder, repository, commit, *, workflow="images", event="push", host=""):
    """A run of a workflow of the repository, on a machine with GitHub."""
    (folder / "runtime").mkdir(parents=True)
    text = run("git", "show", f"{commit}:.github/workflows/{workflow}.yml", cwd=repository).stdout
    (folder / "workflow.yml").write_text(text)
    toolchain = folder / "nixpkgs"
    shutil.copytree(ROOT / "nix/host-toolchain", toolchain)
    packages = (toolchain / "packages.nix").read_text()
    parts = re.split(r"(?<=nixfmt =\n    runCommand \"nixfmt\" \{ \}\n      ).*", packages, maxsplit=1)
    (toolchain / "packages.nix").write_text(NIXFMT.join(parts))
    made = Run(
        workflow=Run.read(folder / "workflow.yml"),
        folder=folder / "run",
        repository=repository,
        commit=commit,
        environments=ROOT,
        github={
            "event": {"repository": {"private": False}},
            "event_name": event,
            "ref": "refs/heads/main" if event != "pull_request" else "refs/pull/1/merge",
            "ref_type": "branch",
            "ref_name": "main",
            "sha": commit,
            "actor": "someone",
            "token": "t0ken",
            "repository": "owner/cog-triton",
            "run_id": "1",
            "workflow": workflow,
        },
        variables={"REGISTRY": f"{host}/owner", "REGISTRY_USER": "user"} if host else {},
        secrets={"REGISTRY_PASSWORD": "secret", "COSIGN_PRIVATE_KEY": "k3y", "COSIGN_PASSWORD": ""}
        if host
        else {},
        environment={
            "TOOLCHAIN": "host",
            "XDG_RUNTIME_DIR": str(folder / "runtime"),  # who is logged in, unless a step says where to look
            "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
        },
        only={"image": [CPU]},
        instead=INSTEAD,
    )
    logged = {"log": folder / "gh.log", "nixpkgs": toolchain}
    for name, text in {
        "apt-get": APT,
        "skopeo": SKOPEO,
        "gh": GH.format(**logged),
        "nix": NIX_WITH_GITHUB.format(**logged),
    }.items():
        (made.programs / name).write_text(text)
        (made.programs / name).chmod(0o755)
    return made


@pytest.fixture(scope="module")
def pushed(tmp_path_factory, cpu, publishers):
    """The run of `images` for a push to main."""
    folder = tmp_path_factory.mktemp("pushed")
    bare, commit = repository(folder, publishers)
    (folder / "htpasswd").write_text(HTPASSWD)
    access = {"auth": {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}}
    with registry(folder, **access) as host:
        made = a_run(folder, bare, commit, host=host)
        results = made.all()
        yield SimpleNamespace(run=made, results=results, folder=folder, host=host, commit=commit, bare=bare)


def test_a_push_to_main_passes(pushed):
    wanted = dict.fromkeys(pushed.results, "success") | {"image": "skipped"}
    assert {name: result["result"] for name, result in pushed.results.items()} == wanted


def test_what_was_run_is_pushed_with_its_contents_and_its_making(pushed):
    target = f"{pushed.host}/owner/{CPU}:{pushed.commit}"
    auth = {"REGISTRY_AUTH_FILE": str(pushed.run.folder / "auth.json"), "PATH": "/usr/bin:/bin"}
    raw = run("skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{target}", env=auth).stdout
    digest = (pushed.run.artifacts / CPU / "digest").read_text().strip()
    assert json.loads(raw)["layers"]
    contents = json.loads(run(ROOT / "ci/attached", target, "application/spdx+json", env=auth).stdout)
    assert "ctranslate2" in {package["name"] for package in contents["packages"]}
    making = json.loads(run(ROOT / "ci/attached", target, "application/vnd.in-toto+json", env=auth).stdout)
    assert making["subject"] == [{"name": CPU, "digest": {"sha256": digest.removeprefix("sha256:")}}]
    signed = (pushed.run.folder / "cosign.log").read_text()
    assert f"/owner/{CPU}@{digest}" in signed


def test_hashes_that_were_filled_are_used_and_proposed(pushed):
    assert pushed.results["locks"]["outputs"]["filled"] == "true"
    # With them, every image can be built.
    assert set(json.loads(pushed.results["locks"]["outputs"]["images"])) == NAMES
    proposed = run("git", "rev-parse", "locks/filled", cwd=pushed.bare).stdout.strip()
    assert run("git", "rev-parse", "locks/filled^", cwd=pushed.bare).stdout.strip() == pushed.commit
    lock = json.loads(run("git", "show", f"{proposed}:nix/locks/publishers.json", cwd=pushed.bare).stdout)
    assert all(row["sha256"] for row in lock["artifacts"])
    assert "pr create --head locks/filled" in (pushed.folder / "gh.log").read_text()
    # What was pushed says that it was made of the commit that is proposed.
    making = run(
        ROOT / "ci/attached",
        f"{pushed.host}/owner/{CPU}:{pushed.commit}",
        "application/vnd.in-toto+json",
        env={"REGISTRY_AUTH_FILE": str(pushed.run.folder / "auth.json"), "PATH": "/usr/bin:/bin"},
    ).stdout
    assert proposed in making


def test_little_is_cached(pushed):
    """GitHub keeps 10 GB for a repository: what CUDA's images fetch would be more."""
    assert [key.rpartition("-")[0] for key in pushed.run.cached] == [f"nix-{CPU}"]


@pytest.fixture(scope="module")
def pull_request(tmp_path_factory, cpu):
    """The run for a pull request, where no publisher is reached."""
    folder = tmp_path_factory.mktemp("pull-request")
    bare, commit = repository(folder, "http://127.0.0.1:1")
    made = a_run(folder, bare, commit, event="pull_request")
    # It is checked for the push.
    made.instead = {**INSTEAD, 'ci/check-image "$IMAGE"': 'ci/build-image "$IMAGE"'}
    return SimpleNamespace(run=made, results=made.all())


def test_a_pull_request_builds_without_pushing(pull_request):
    wanted = dict.fromkeys(pull_request.results, "success") | {"publish": "skipped", "propose": "skipped"}
    assert {name: result["result"] for name, result in pull_request.results.items()} == wanted


def test_images_that_cannot_be_made_are_left_out(pull_request):
    images = json.loads(pull_request.results["locks"]["outputs"]["images"])
    assert CPU in images
    assert not [
        name for name in images if name == "cog-triton-builder" or re.fullmatch(r".*runner-\d\d", name)
    ]


@pytest.fixture(scope="module")
def updated(tmp_path_factory, pushed):
    """The weekly run, for what was pushed. Locks are asked for elsewhere (tests/integration/test_lock.py)."""
    folder = tmp_path_factory.mktemp("updated")
    made = a_run(folder, pushed.bare, pushed.commit, workflow="update", event="schedule", host=pushed.host)
    (made.programs / "make").write_text(MAKE)
    (made.programs / "make").chmod(0o755)
    with folder_server(index_of_vllm(folder / "index", "99.0.0")) as server:
        made.environment["PIP_INDEX_URL"] = server.url
        return SimpleNamespace(run=made, results=made.all())


def index_of_vllm(folder, version):
    """A package index with one release of vLLM, whose wheel is empty."""
    wheel = folder / "vllm" / f"vllm-{version}-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    about = f"vllm-{version}.dist-info"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return folder


def test_newer_locks_are_proposed_and_what_was_pushed_is_scanned(updated, pushed):
    assert {result["result"] for result in updated.results.values()} == {"success"}
    changed = run("git", "diff", "--name-only", "locks/newer^", "locks/newer", cwd=pushed.bare).stdout
    assert changed.split() == ["flake.lock", "requirements/runner.txt"]


def test_a_new_release_of_vllm_is_proposed_by_itself(updated, pushed):
    assert updated.results["propose"]["result"] == "success"
    changed = run("git", "diff", "--name-only", "vllm/newest^", "vllm/newest", cwd=pushed.bare).stdout
    assert changed.split() == ["pyproject.toml"]
    assert run("git", "rev-parse", "vllm/newest^", cwd=pushed.bare).stdout.strip() == pushed.commit


def test_every_step_was_executed(pushed, pull_request, updated):
    executed = {text for each in (pushed, pull_request, updated) for _, text in each.run.executed}
    written = [
        step["run"]
        for path in [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob(".github/actions/*/action.yml")]
        for document in [Run.read(path)]
        for job in [*document.get("jobs", {}).values(), *([document["runs"]] if "runs" in document else [])]
        for step in job["steps"]
        if "run" in step
    ]
    assert [text for text in written if text not in executed] == []


def test_images_that_differ_are_told(tmp_path):
    same, other = (f"sha256:{letter * 64}\n" for letter in "ab")
    for name, text in {"a": same, "b": same, "c": other, "d": "\n"}.items():
        (tmp_path / name).write_text(text)

    def status(*arguments):
        return subprocess.run(
            [ROOT / "ci/same-digest", *arguments], cwd=tmp_path, capture_output=True, check=False
        ).returncode

    assert [status("2", "a", "b"), status("2", "a", "c"), status("2", "a"), status("2", "d", "d")] == [
        0,
        1,
        1,
        1,
    ]
