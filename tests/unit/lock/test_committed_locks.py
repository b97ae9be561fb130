"""What is committed agrees with itself; nothing here asks a network."""

import re

import pytest
from packaging.utils import canonicalize_name, parse_wheel_filename

from nix.lock import publishers
from nix.lock.debian import Package
from nix.lock.environments import ENVIRONMENTS, markers, tags
from nix.lock.files import LOCKS, ROOT, read, text
from nix.lock.requirements import pins

PUBLISHERS = read(LOCKS / "publishers.json")
ROOTS = read(LOCKS / "debian-roots.json")
DEBIAN = read(LOCKS / "debian.json")


def locked(environment):
    return read(LOCKS / f"wheels/{environment.name}.json")


def required(environment):
    requirements = (ROOT / f"requirements/{environment.name}.txt").read_text()
    return {pin.name: pin for pin in pins(requirements, markers(environment.python))}


# An optional one exists while it has a file of requirements.
EXISTING = [
    one for one in ENVIRONMENTS if not one.optional or (ROOT / f"requirements/{one.name}.txt").exists()
]
every_environment = pytest.mark.parametrize("environment", EXISTING, ids=lambda environment: environment.name)


@every_environment
def test_a_lock_holds_what_its_requirement_file_does(environment):
    rows = {row["name"]: row for row in locked(environment)["wheels"]}
    published = {row["name"] for row in publishers.wheel_rows(PUBLISHERS, environment.name)}

    assert rows.keys() == required(environment).keys() | published
    for name, pin in required(environment).items():
        if name not in published:
            assert (rows[name]["version"], rows[name]["index"]) == (pin.version, None)
            assert rows[name]["sha256"] in pin.sha256


@every_environment
def test_every_wheel_fits_the_image(environment):
    for row in locked(environment)["wheels"]:
        if row["name"] in environment.sources:
            continue
        name, version, _, fits = parse_wheel_filename(row["file"])
        assert (name, str(version)) == (canonicalize_name(row["name"]), row["version"])
        assert fits & set(tags(environment.python))


@every_environment
def test_publishers_wheels_are_those_of_their_own_file(environment):
    rows = [row for row in locked(environment)["wheels"] if row["index"]]

    assert rows == sorted(publishers.wheel_rows(PUBLISHERS, environment.name), key=lambda row: row["name"])


def test_every_lock_belongs_to_an_environment():
    assert {path.stem for path in LOCKS.glob("wheels/*")} == {environment.name for environment in EXISTING}


@pytest.mark.parametrize("path", ["publishers.json", "debian.json", "debian-roots.json", "stand-ins.json"])
def test_locks_are_written_one_package_a_line(path):
    assert (LOCKS / path).read_text() == text(read(LOCKS / path))


def test_every_hash_is_a_sha256_or_said_to_be_unknown():
    wheels = [row for environment in EXISTING for row in locked(environment)["wheels"]]
    for row in [*wheels, *DEBIAN["packages"], *PUBLISHERS["artifacts"]]:
        assert re.fullmatch(r"[0-9a-f]{64}", row["sha256"] or "0" * 64)
    for row in PUBLISHERS["artifacts"]:
        assert (row["sha256"] is None) == ("hash unknown" in row["sure"])


def test_every_source_is_named_by_a_commit():
    for row in PUBLISHERS["sources"]:
        assert re.fullmatch(r"[0-9a-f]{40}", row["commit"])


def test_the_debian_lock_was_made_from_the_roots_as_they_are():
    roots = {(row["name"], row["set"]) for row in ROOTS["roots"]}

    assert {(row["name"], row["set"]) for row in DEBIAN["packages"] if not row["depends_via"]} == roots
    assert not {row["name"] for row in ROOTS["stops"]} & {row["name"] for row in DEBIAN["packages"]}
    assert DEBIAN["suite"] == ROOTS["suite"]


def test_every_root_and_stop_has_a_reason():
    assert all(row["reason"] for row in [*ROOTS["roots"], *ROOTS["stops"]])


def test_every_debian_package_is_needed_by_another_of_its_set_or_an_earlier_one():
    sets = list(dict.fromkeys(row["set"] for row in ROOTS["roots"]))
    where = {row["name"]: sets.index(row["set"]) for row in DEBIAN["packages"]}
    for row in DEBIAN["packages"]:
        assert row["depends_via"] is None or where[row["depends_via"]] == where[row["name"]]


def test_the_locked_python_of_debian_is_the_one_that_the_wheels_are_for():
    assert f"python{locked(ENVIRONMENTS[0])['python']}" in {row["name"] for row in DEBIAN["packages"]}


def test_a_row_holds_what_its_package_states():
    fields = {
        "Package": "a",
        "Version": "1",
        "Architecture": "all",
        "Filename": "f",
        "SHA256": "s",
        "Size": "5",
    }
    row = Package(fields).row(via="b", set_="base")

    assert list(row) == list(DEBIAN["packages"][0])
    assert row["size"] == 5


def test_no_address_of_a_public_mirror_stands_in_the_locks():
    texts = [path.read_text() for path in [*LOCKS.rglob("*.json"), *(ROOT / "requirements").glob("*.txt")]]
    hosts = {host for text_ in texts for host in re.findall(r"https?://([^/\"]+)", text_)}

    assert hosts == {"github.com", "pypi.nvidia.com", "download.pytorch.org", "snapshot.debian.org"}
