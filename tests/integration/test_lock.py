"""The lock tool against an index on loopback, uv itself, and programs in the place of apt's."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from nix.lock import stand_ins
from nix.lock.__main__ import main
from nix.lock.environments import ENVIRONMENTS
from nix.lock.files import LOCKS, read, write
from tests.support.loopback import folder_server

if TYPE_CHECKING:
    from pathlib import Path

HASH = "a" * 64
OTHER = "b" * 64
WHEEL = "tensorrt_llm-1.2.1-cp312-cp312-linux_x86_64.whl"
LOCAL = "torch-2.9.1+cu130-cp312-cp312-manylinux_2_28_x86_64.whl"
EXAMPLES = b"the examples"


@pytest.fixture
def site(tmp_path):
    """A publisher's site: its folder, and its address."""
    folder = tmp_path / "site"
    folder.mkdir()
    with folder_server(folder) as server:
        yield folder, server.url


def page(folder: Path, package: str, *links: str) -> None:
    (folder / package).mkdir(exist_ok=True)
    (folder / package / "index.html").write_text(
        "<!DOCTYPE html><html><body>"
        + "".join(f'<a href="{link}">x</a><br/>' for link in links)
        + "</body></html>"
    )


def artifact(name: str, file: str, *, sha256: str | None = None, index: str | None = None, address=None):
    known = {"name": name, "version": "1", "file": file, "sha256": sha256, "size": None}
    return {
        **known,
        "environment": "engine-tensorrt-llm" if index else None,
        "index": index,
        "address": address,
    }


@pytest.fixture
def checkout(tmp_path, site, monkeypatch):
    """A checkout of two empty environments, whose publishers are on loopback."""
    environments = [found for found in ENVIRONMENTS if found.name in {"runner", "engine-tensorrt-llm"}]
    monkeypatch.setattr("nix.lock.__main__.ENVIRONMENTS", environments)
    folder, address = site
    root = tmp_path / "checkout"
    (root / "requirements").mkdir(parents=True)
    for environment in environments:
        (root / f"requirements/{environment.name}.txt").touch()
    rows = [
        artifact("tensorrt_llm", WHEEL, index=f"{address}/nvidia"),
        artifact("torch", LOCAL, sha256=HASH, index=f"{address}/pytorch"),
        artifact("examples", "v1+2.tar.gz", address=f"{address}/archive/{{file}}"),
    ]
    write(root / "nix/locks/publishers.json", {"artifacts": rows})
    for part in ("nvidia", "pytorch", "archive"):
        (folder / part).mkdir()
    page(folder / "nvidia", "tensorrt-llm", f"../../files/{WHEEL}#sha256={HASH}", f"other.whl#sha256={OTHER}")
    page(folder / "pytorch", "torch", f"/whl/{LOCAL.replace('+', '%2B')}#sha256={HASH}")
    (folder / "archive/v1+2.tar.gz").write_bytes(EXAMPLES)
    # The Debian lock is as its roots ask, so that apt is not needed.
    write(root / "nix/locks/debian-roots.json", ROOTS)
    digest = hashlib.sha256((root / "nix/locks/debian-roots.json").read_bytes()).hexdigest()
    write(root / "nix/locks/debian.json", {"roots_sha256": digest, "packages": []})
    return root


ROOTS = {
    "suite": "trixie",
    "architecture": "amd64",
    "roots": [{"set": "base", "name": "bash"}],
    "stops": [{"name": "awk"}],
}


def published(checkout: Path):
    return read(checkout / "nix/locks/publishers.json")["artifacts"]


def test_unknown_hashes_are_filled_from_the_indexs_pages(checkout):
    assert main([], checkout) == 0
    wheel, local, examples = published(checkout)

    assert (wheel["sha256"], local["sha256"]) == (HASH, HASH)
    assert (examples["sha256"], examples["size"]) == (hashlib.sha256(EXAMPLES).hexdigest(), len(EXAMPLES))


def test_the_lock_of_the_environment_takes_the_filled_hashes(checkout):
    main([], checkout)
    rows = read(checkout / "nix/locks/wheels/engine-tensorrt-llm.json")["wheels"]

    assert [(row["name"], row["sha256"]) for row in rows] == [("tensorrt_llm", HASH), ("torch", HASH)]


def test_what_can_be_filled_is_filled_when_other_indexes_are_out_of_reach(checkout, capsys):
    rows = published(checkout)
    rows[2]["address"] = "http://127.0.0.1:1/{file}"
    write(checkout / "nix/locks/publishers.json", {"artifacts": rows})
    lock = checkout / "nix/locks/wheels/engine-tensorrt-llm.json"
    other = {"name": "other", "file": "other.whl", "sha256": OTHER}
    write(lock, {"wheels": [other, {"name": "tensorrt_llm", "file": WHEEL, "sha256": None}]})
    assert main(["fill"], checkout) == 1
    assert "http://127.0.0.1:1/v1%2B2.tar.gz cannot be reached" in capsys.readouterr().err
    assert [row["sha256"] for row in published(checkout)] == [HASH, HASH, None]
    assert [row["sha256"] for row in read(lock)["wheels"]] == [OTHER, HASH]


def test_the_pages_of_an_alternative_set_are_read_too(checkout, site):
    folder, address = site
    stand_ins.write_set(folder / "set")
    rows = read(LOCKS / "publishers.json")["artifacts"]
    asked = [{**row, "sha256": None, "index": f"{address}/set/simple"} for row in rows if row["index"]]
    write(checkout / "nix/locks/publishers.json", {"artifacts": asked})
    main([], checkout)

    listed = {row["file"]: row["sha256"] for row in stand_ins.listing()["artifacts"]}
    assert [row["sha256"] for row in published(checkout)] == [listed[row["file"]] for row in asked]


@pytest.mark.parametrize("content", ["{}", '{"artifacts": [{}]}', '{"wheels": [{"file": 1}]}'])
@pytest.mark.parametrize("lock", ["publishers.json", "wheels/runner.json"])
def test_a_lock_of_another_shape_is_named_and_nothing_is_filled(checkout, capsys, lock, content):
    path = checkout / "nix/locks" / lock
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    before = contents(checkout)
    assert main(["fill"], checkout) == 1
    assert capsys.readouterr().err.startswith(f"{path.name}: `")
    assert contents(checkout) == before


def contents(checkout: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lock", ["debian.json", "debian-roots.json"])
def test_a_debian_lock_of_another_shape_is_named(checkout, capsys, lock):
    write(checkout / "nix/locks" / lock, {"packages": None})
    assert main(["check-debian"], checkout) == 1
    assert capsys.readouterr().err.startswith(f"{lock}: `")


def test_a_hash_that_no_publisher_states_is_told_and_the_others_are_filled(checkout, capsys):
    lock = checkout / "nix/locks/wheels/runner.json"
    write(lock, {"wheels": [{"file": "other.whl", "sha256": None}]})
    assert main(["fill"], checkout) == 1
    assert capsys.readouterr().err == "runner.json: only `make lock` finds the sha256 of other.whl.\n"
    assert published(checkout)[0]["sha256"] == HASH


def test_a_file_without_an_address_is_named(checkout, capsys):
    write(checkout / "nix/locks/publishers.json", {"artifacts": [artifact("examples", "v1.tar.gz")]})
    assert main(["fill"], checkout) == 1
    assert capsys.readouterr().err.startswith("v1.tar.gz has neither an index nor an address.")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "SSL_CERT_FILE",
            "/none",
            "SSL_CERT_FILE is /none, which cannot be read (No such file or directory)",
        ),
        ("HTTPS_PROXY", "gopher://user:s3cret@host", "HTTPS_PROXY is not an http or https URL"),
    ],
)
def test_settings_that_cannot_be_used_are_named(checkout, capsys, monkeypatch, name, value, told):
    monkeypatch.setenv(name, value)
    assert main(["fill"], checkout) == 1
    err = capsys.readouterr().err
    assert told in err
    assert "s3cret" not in err


def test_requirements_that_are_not_there_are_named(checkout, capsys):
    (checkout / "requirements/runner.txt").unlink()
    assert main([], checkout) == 1
    assert capsys.readouterr().err == "runner.txt cannot be read; restore it from git.\n"


def remove_page(folder: Path) -> None:
    shutil.rmtree(folder / "nvidia/tensorrt-llm")


def remove_file(folder: Path) -> None:
    page(folder / "nvidia", "tensorrt-llm", f"other.whl#sha256={OTHER}")


def remove_fragment(folder: Path) -> None:
    page(folder / "nvidia", "tensorrt-llm", WHEEL)


def replace_hash(folder: Path) -> None:
    page(folder / "nvidia", "tensorrt-llm", f"{WHEEL}#sha256=0123")


def replace_file(folder: Path) -> None:
    page(folder / "pytorch", "torch", f"{LOCAL}#sha256={OTHER}")


def remove_archive(folder: Path) -> None:
    (folder / "archive/v1+2.tar.gz").unlink()


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (remove_page, "/nvidia/tensorrt-llm/ answers 404"),
        (remove_file, f"/nvidia/tensorrt-llm/ no longer lists {WHEEL}"),
        (remove_fragment, f"/nvidia/tensorrt-llm/ has no sha256 for {WHEEL}"),
        (replace_hash, f"/nvidia/tensorrt-llm/ has no sha256 for {WHEEL}"),
        (replace_file, f"/pytorch/torch/ has for {LOCAL} differs from the lock's"),
        (remove_archive, "/archive/v1%2B2.tar.gz answers 404"),
    ],
)
def test_a_publisher_that_answers_otherwise_is_refused(checkout, site, capsys, happens, says):
    happens(site[0])
    before = (checkout / "nix/locks/publishers.json").read_bytes()

    assert main([], checkout) == 1
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1
    assert (checkout / "nix/locks/publishers.json").read_bytes() == before


@pytest.mark.parametrize("place", ["index", "address"])
def test_a_publisher_out_of_reach_leaves_the_lock_as_it_was(checkout, capsys, place):
    rows = published(checkout)
    chosen = next(row for row in rows if row[place])
    chosen[place] = "http://127.0.0.1:1/{file}" if place == "address" else "http://127.0.0.1:1"
    write(checkout / "nix/locks/publishers.json", {"artifacts": rows})
    before = (checkout / "nix/locks/publishers.json").read_bytes()

    assert main([], checkout) == 1
    told = capsys.readouterr().err
    assert "cannot be reached from this machine; run `make lock` where it can." in told
    assert told.count("\n") == 1
    assert (checkout / "nix/locks/publishers.json").read_bytes() == before


@pytest.fixture
def default_index(checkout, site, monkeypatch):
    """A default index that has one package, required by the runner."""
    folder, address = site
    names = [f"brick-1.0-{tag}.whl" for tag in ("py3-none-any", "cp313-cp313-manylinux_2_28_x86_64")]
    (folder / "simple").mkdir()
    page(
        folder / "simple",
        "brick",
        *(f"{name}#sha256={h}" for name, h in zip(names, (HASH, OTHER), strict=True)),
    )
    pinned = f"brick==1.0 --hash=sha256:{HASH} --hash=sha256:{OTHER}\n"
    (checkout / "requirements/runner.txt").write_text(pinned)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{address}/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(checkout / "cache"))
    return folder / "simple"


def test_a_wheel_lock_is_made_from_the_requirement_file_and_the_index(checkout, default_index):
    assert main([], checkout) == 0
    row = read(checkout / "nix/locks/wheels/runner.json")["wheels"][0]

    assert (row["file"], row["sha256"]) == ("brick-1.0-cp313-cp313-manylinux_2_28_x86_64.whl", OTHER)


def test_without_the_default_index_the_wheel_locks_stay_as_they_were(checkout, default_index, capsys):
    shutil.rmtree(default_index / "brick")

    assert main([], checkout) == 1
    assert "The index did not list the files of runner.txt: " in capsys.readouterr().err
    assert not (checkout / "nix/locks/wheels").exists()


@pytest.mark.parametrize("fragment", [f"sha256={'c' * 64}", f"sha512={'c' * 128}"])
def test_an_index_with_other_hashes_is_named_for_that(checkout, default_index, capsys, fragment):
    page(default_index, "brick", f"brick-1.0-py3-none-any.whl#{fragment}")

    assert main([], checkout) == 1
    assert capsys.readouterr().err.startswith(
        "On the index, no file of brick 1.0 has a sha256 of the requirement file"
    )
    assert not (checkout / "nix/locks/wheels").exists()


PACKAGES = """\
Package: bash
Version: 2
Architecture: amd64
Depends: libc6 (>= 2.38), awk
Filename: pool/main/b/bash.deb
Size: 7
SHA256: 00

Package: libc6
Version: 1
Architecture: amd64
Filename: pool/updates/main/g/libc6.deb
Size: 8
SHA256: 11
"""
APT = """#!/bin/sh
echo "$0 $*" >> {log}
case "$*" in
*indextargets*) printf 'Debian http://mirror.test/debian/\\nDebian-Security http://mirror.test/security/\\n' ;;
*update*) for option; do case "$option" in *sourcelist=*) cat "${{option#*sourcelist=}}" >> {log} ;; esac; done ;;
*dumpavail* | *" show "*) cat {packages} ;;
*pkgnames*) printf 'bash\\nlibc6\\n' ;;
esac
"""


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Programs that answer as apt's do for PACKAGES; gives the file that says how they were called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / "packages").write_text(PACKAGES)
    log = tmp_path / "log"
    for name in ("apt-get", "apt-cache"):
        (programs / name).write_text(APT.format(log=log, packages=tmp_path / "packages"))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return log


def test_debian_packages_are_locked_from_the_mirrors_of_the_machines_own_sources(checkout, apt):
    assert main(["--upgrade"], checkout) == 0
    lock = read(checkout / "nix/locks/debian.json")

    assert [(row["name"], row["version"], row["archive"]) for row in lock["packages"]] == [
        ("bash", "2", "debian"),
        ("libc6", "1", "debian-security"),
    ]
    assert len(lock["snapshot"]) == len("20260101T000000Z")
    assert "http://mirror.test/debian/ trixie main" in apt.read_text()
    assert "http://mirror.test/security/ trixie-security main" in apt.read_text()


def test_the_snapshot_stays_while_the_packages_do(checkout, apt):
    main(["--upgrade"], checkout)
    path = checkout / "nix/locks/debian.json"
    path.write_text(json.dumps({**read(path), "snapshot": "earlier"}))
    main(["--upgrade"], checkout)

    assert read(path)["snapshot"] == "earlier"


def test_debian_packages_are_resolved_anew_only_when_asked_or_when_the_roots_change(checkout, apt):
    main([], checkout)
    assert not apt.exists()

    write(checkout / "nix/locks/debian-roots.json", {**ROOTS, "stops": [{"name": "awk"}, {"name": "libc6"}]})
    main([], checkout)
    assert [row["name"] for row in read(checkout / "nix/locks/debian.json")["packages"]] == ["bash"]


def test_check_debian_is_content_while_the_mirror_has_every_package(checkout, apt):
    main(["--upgrade"], checkout)

    assert main(["check-debian"], checkout) == 0


def test_check_debian_names_the_packages_that_have_left(checkout, apt, tmp_path, capsys):
    main(["--upgrade"], checkout)
    (tmp_path / "packages").write_text(PACKAGES.replace("Version: 2", "Version: 3"))

    assert main(["check-debian"], checkout) == 1
    assert capsys.readouterr().err.startswith("Debian's mirror no longer has bash 2; ")


def test_apts_own_failure_is_told_and_the_lock_stays(checkout, tmp_path, apt, capsys):
    (tmp_path / "programs/apt-get").write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    before = (checkout / "nix/locks/debian.json").read_bytes()

    assert main(["--upgrade"], checkout) == 1
    assert capsys.readouterr().err == "apt could not read Debian's lists: E: no network\n"
    assert (checkout / "nix/locks/debian.json").read_bytes() == before


def test_a_machine_without_debians_sources_is_told_so(checkout, tmp_path, apt, capsys):
    (tmp_path / "programs/apt-get").write_text("#!/bin/sh\necho 'Ubuntu http://mirror.test/ubuntu/'\n")

    assert main(["--upgrade"], checkout) == 1
    assert "This machine's apt has no lists of Debian and Debian-Security" in capsys.readouterr().err


def test_a_machine_without_apt_is_told_so(checkout, tmp_path, apt, capsys, monkeypatch):
    shutil.rmtree(tmp_path / "programs")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert main(["--upgrade"], checkout) == 1
    assert capsys.readouterr().err == "The Debian lock is made with apt; run `make lock` on Debian.\n"
