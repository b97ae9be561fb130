"""Which device code stays for an architecture."""

from __future__ import annotations

import pytest

from nix.prune import prune_library
from tests.unit.prune.libraries import CUBIN, LTO, PTX, A, F, Library, container, device_code_of, entry


def kept(tmp_path, sm, *entries):
    path = tmp_path / "library.so"
    path.write_bytes(
        Library([container(*(entry(kind, arch, flags=flags) for kind, arch, flags in entries))]).build()
    )
    report = prune_library(path, sm)
    assert report.reason == ""
    return [(kind, arch) for kind, arch, _ in device_code_of(path.read_bytes())[0]]


CUBINS = [(CUBIN, arch, 0) for arch in (75, 80, 86, 90, 100, 120)]


@pytest.mark.parametrize("sm", [80, 86, 90])
def test_exact(tmp_path, sm):
    assert kept(tmp_path, sm, *CUBINS, (PTX, 75, 0)) == [(CUBIN, sm)]


def test_lower_minor_of_the_same_major(tmp_path):
    assert kept(tmp_path, 89, *CUBINS) == [(CUBIN, 86)]


def test_exact_with_its_specific_variant(tmp_path):
    assert kept(tmp_path, 90, *CUBINS, (CUBIN, 90, A), (CUBIN, 100, A)) == [(CUBIN, 90), (CUBIN, 90)]


def test_a_specific_variant_runs_on_no_other(tmp_path):
    assert kept(tmp_path, 103, (CUBIN, 100, A), (CUBIN, 100, F)) == [(CUBIN, 100)]


def test_ptx_when_no_cubin_runs(tmp_path):
    assert kept(tmp_path, 90, (CUBIN, 80, 0), (PTX, 75, 0), (PTX, 80, 0), (PTX, 100, 0)) == [(PTX, 80)]


def test_ptx_of_a_family_stays_in_it(tmp_path):
    assert kept(tmp_path, 120, (PTX, 100, F), (PTX, 90, A), (PTX, 75, 0)) == [(PTX, 75)]


def test_nothing_that_runs(tmp_path):
    assert kept(tmp_path, 80, (CUBIN, 90, 0), (PTX, 90, 0)) == []


def test_a_container_that_is_not_understood_stays_whole(tmp_path):
    entries = [(CUBIN, 80, 0), (CUBIN, 90, 0), (LTO, 80, 0)]
    assert kept(tmp_path, 90, *entries) == [(kind, arch) for kind, arch, _ in entries]


def test_an_unknown_flag_leaves_the_container_whole(tmp_path):
    assert kept(tmp_path, 90, (CUBIN, 80, 0x400000), (CUBIN, 90, 0)) == [(CUBIN, 80), (CUBIN, 90)]
