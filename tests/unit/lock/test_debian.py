import pytest

from nix.lock.debian import closure, gone, packages, resolve
from nix.lock.files import LockProblem


def offered(*stanzas: str):
    """Packages from `name: needs; needs | needs / provides`."""
    texts = []
    for stanza in stanzas:
        name, _, rest = stanza.partition(":")
        needs, _, provides = rest.partition("/")
        texts.append(
            f"Package: {name}\nVersion: 1\nArchitecture: amd64\nSize: 3\nSHA256: {name}\n"
            f"Filename: pool/main/{name}.deb\nDepends: {needs.strip().replace(';', ',')}\nProvides: {provides.strip()}"
        )
    return packages("\n\n".join(texts))


def needed(roots, stops, *stanzas, have=()):
    return closure(roots, stops, {package.name: package for package in offered(*stanzas)}, have)


def test_needs_of_needs_are_followed_and_say_who_needs_them():
    found = needed(
        ["python"], (), "python: libc; stdlib (= 3.13)", "stdlib: libssl:any (>= 3)", "libssl: libc", "libc:"
    )

    assert found == {"python": None, "libc": "python", "stdlib": "python", "libssl": "stdlib"}


def test_packages_that_need_each_other_end():
    assert set(needed(["libc"], (), "libc: libgcc", "libgcc: libc")) == {"libc", "libgcc"}


def test_pre_depends_count_and_suggestions_do_not():
    text = "Package: bash\nPre-Depends: libc6 (>= 2.38)\nSuggests: docs\n\nPackage: libc6\nDescription: C\n and more: of it"

    assert set(closure(["bash"], (), {p.name: p for p in packages(text)})) == {"bash", "libc6"}


@pytest.mark.parametrize(
    ("stanzas", "expected"),
    [
        (["a: media-types | mime-support", "media-types:", "mime-support:"], "media-types"),
        (["a: not-there | mime-support", "mime-support:"], "mime-support"),
        (["a: awk", "mawk: / awk", "gawk: / awk (= 2)"], "gawk"),
    ],
)
def test_of_alternatives_the_first_on_offer_is_taken(stanzas, expected):
    assert list(needed(["a"], (), *stanzas)) == ["a", expected]


@pytest.mark.parametrize("need", ["wanted | other", "other | wanted", "virtual"])
def test_an_alternative_that_is_there_already_is_enough(need):
    stanzas = [f"a: {need}", "wanted: / virtual", "other: / virtual"]

    assert needed(["a", "wanted"], (), *stanzas) == {"a": None, "wanted": None}
    assert needed(["a"], (), *stanzas, have={"wanted"}) == {"a": None}


@pytest.mark.parametrize("stop", ["openssl", "awk", "gawk"])
def test_nothing_is_taken_through_a_stop(stop):
    found = needed(
        ["a"], {stop}, "a: openssl; awk", "openssl: debconf", "debconf:", "gawk: mpfr / awk", "mpfr:"
    )

    assert stop not in found
    assert ("debconf" in found, "mpfr" in found) == (stop != "openssl", stop == "openssl")


def test_a_need_that_debian_does_not_offer_is_refused():
    with pytest.raises(LockProblem, match="a needs lost or found, which Debian does not offer"):
        needed(["a"], (), "a: lost | found")


def test_a_root_that_debian_does_not_offer_is_refused():
    with pytest.raises(LockProblem, match="Debian does not offer python4"):
        needed(["python4"], ())


ROOTS = {
    "roots": [{"set": "base", "name": "bash"}, {"set": "mpi", "name": "openmpi"}],
    "stops": [{"name": "ssh"}],
}


def test_a_later_set_holds_only_what_the_sets_before_it_do_not():
    rows = resolve(ROOTS, offered("openmpi: libc; hwloc; ssh", "bash: libc", "hwloc:", "libc:", "ssh:"))

    assert [(row["name"], row["set"], row["depends_via"]) for row in rows] == [
        ("bash", "base", None),
        ("hwloc", "mpi", "openmpi"),
        ("libc", "base", "bash"),
        ("openmpi", "mpi", None),
    ]


def test_security_updates_come_from_their_own_archive():
    fields = "Package: bash\nVersion: 1\nArchitecture: all\nSize: 9\nSHA256: ab\nFilename: pool/{}main/b.deb"

    def archive(part):
        return packages(fields.format(part))[0].row(via=None, set_="base")["archive"]

    assert (archive(""), archive("updates/")) == ("debian", "debian-security")


def test_a_package_has_left_when_its_version_has():
    rows = [
        {"name": "bash", "version": "1"},
        {"name": "bash", "version": "2"},
        {"name": "zsh", "version": "1"},
    ]

    assert gone(rows, offered("bash:")) == ["bash 2", "zsh 1"]
