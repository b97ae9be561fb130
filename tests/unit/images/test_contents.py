"""What packages say of themselves, and what the list of an image's contents makes of it."""

import io
import json
import tarfile

import pytest

from nix.oci import facts, licences
from nix.oci.image import Image
from nix.oci.sbom import spdx
from tests.unit.images.test_layers import make_deb, make_wheel

METADATA = """\
Metadata-Version: 2.4
Name: some
Version: 1
Author-email: Zoë Example <zoe@example.com>
License-Expression: MIT OR LicenseRef-own
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("License: Expat", "MIT"),
        ("License: GPL-2+ and ISC\nLicense: ISC", "GPL-2.0-or-later AND ISC"),
        ("License: BSD-3-clause or GPL-2", "(BSD-3-Clause OR GPL-2.0-only)"),
        ("License: public-domain", "LicenseRef-public-domain"),
        ("see /usr/share/common-licenses/LGPL-2.1.", "LGPL-2.1-only AND LicenseRef-debian-some"),
        ("", "NOASSERTION"),
    ],
)
def test_licences_of_debian(text, expected):
    assert licences.of_debian("some", text) == expected


@pytest.mark.parametrize(
    ("declared", "field", "classifiers", "expected"),
    [
        ("Apache-2.0 WITH LLVM-exception", "", [], "Apache-2.0 WITH LLVM-exception"),
        ("", "Apache 2.0", [], "Apache-2.0"),
        ("", "the whole\ntext", ["License :: OSI Approved :: MIT License"], "MIT"),
        ("", "NVIDIA Proprietary", [], "LicenseRef-NVIDIA-Proprietary"),
        ("", "", ["Topic :: Text"], "NOASSERTION"),
    ],
)
def test_licences_of_wheels(declared, field, classifiers, expected):
    assert licences.of_wheel(declared, field, classifiers) == expected


def wheel(tmp_path):
    path = make_wheel(tmp_path / "some.whl", **{"some-1.dist-info/METADATA": METADATA})
    return {
        "type": "wheel",
        "name": "some",
        "version": "1",
        "file": "some.whl",
        "sha256": "0" * 64,
        "path": str(path),
    }


def debian(tmp_path):
    control = "Package: libsome1\nSource: some (1~2)\nVersion: 1~2+b1\nArchitecture: amd64\nMaintainer: Some Team <a@b>\n"
    path = make_deb(tmp_path / "some.deb", {"usr/share/doc/libsome1/copyright": b"License: Expat\n"}, control)
    described = {"type": "debian", "name": "libsome1", "version": "1~2+b1", "file": "pool/some.deb"}
    return {**described, "sha256": "1" * 64, "path": str(path), "distro": "debian-13"}


def commit(tmp_path):
    described = {"type": "commit", "name": "examples", "version": "2", "commit": "c" * 40}
    return {**described, "path": str(tmp_path), "repository": "https://example.com/owner/all"}


def test_a_source_is_supplied_by_who_keeps_it(tmp_path):
    package = {
        "type": "source",
        "name": "a",
        "path": str(tmp_path),
        "address": "https://example.com/owner/a/x.tar",
    }
    assert facts.described(package)["supplier"] == "Organization: example.com/owner"


def test_a_source_distribution_says_as_much_as_a_wheel(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("a-1/PKG-INFO")
        content = b"Name: a\nVersion: 1\nAuthor: NVIDIA Corporation\nLicense: MIT\n"
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    described = facts.described({"type": "wheel", "name": "a", "path": str(tmp_path / "a.tar.gz")})
    assert (described["supplier"], described["licence"]) == ("Organization: NVIDIA Corporation", "MIT")


def test_the_list_names_all_with_supplier_licence_and_package_url(tmp_path):
    packages = [facts.described(package(tmp_path)) for package in (wheel, debian, commit)]
    layer = {"name": "a", "digest": "sha256:1", "diff_id": "sha256:2", "size": 1, "packages": packages}
    record = tmp_path / "layer.json"
    record.write_text(json.dumps({**layer, "own": {"name": "ours", "version": "3"}}))
    spec = {"name": "image", "created": "", "layers": [record], "config": {}, "skopeo": ""}
    document = json.loads(spdx(Image.of(spec), "1970-01-01T00:00:01Z"))
    rows = {
        package["name"]: (
            package["supplier"],
            package["licenseDeclared"],
            package["externalRefs"][0]["referenceLocator"],
        )
        for package in document["packages"][1:]
    }
    assert rows == {
        "ours": ("Organization: cog-triton", "Apache-2.0", "pkg:generic/ours@3"),
        "some": ("Person: Zoë Example", "MIT OR LicenseRef-own", "pkg:pypi/some@1"),
        "libsome1": (
            "Organization: Debian",
            "MIT",
            "pkg:deb/debian/libsome1@1~2%2Bb1?arch=amd64&distro=debian-13&upstream=some%401~2",
        ),
        "examples": ("Organization: example.com/owner", "NOASSERTION", "pkg:generic/examples@2"),
    }
    (sources,) = [package for package in document["packages"] if package["name"] == "examples"]
    assert sources["sourceInfo"] == f"the commit {'c' * 40} of its repository"
    [licence] = document["hasExtractedLicensingInfos"]
    assert licence["licenseId"] == "LicenseRef-own"
    assert "NAME-VERSION.dist-info" in licence["extractedText"]  # as wheels name it: a_b-1.dist-info
