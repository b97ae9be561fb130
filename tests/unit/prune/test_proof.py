"""The proof of pruning finds what it is there to find."""

from __future__ import annotations

import sys

import pytest

from nix.prune import prune_library
from tests.gpu import prove_libraries
from tests.gpu.fatbins import Image, expected
from tests.gpu.prove_libraries import Proof, check_entries, check_memory
from tests.unit.prune.libraries import CUBIN, PTX, Library, container, cubin, entry, sections_of

LIBRARY = Library(
    [
        container(*(entry(CUBIN, sm, 90_000, fill=sm) for sm in (80, 86, 90))),
        container(entry(CUBIN, 90, 80_000), entry(PTX, 80, 800)),
    ],
    wrapped=True,
    stored=[container(entry(CUBIN, 86, 900, fill=86)), container(entry(CUBIN, 90, 900, fill=90))],
    cubins=[(sm, cubin(sm)) for sm in (80, 90)],
)


def failures(tmp_path, tampered, *, cut: bool) -> list[str]:
    original, pruned = tmp_path / "original.so", tmp_path / "pruned.so"
    for path in (original, pruned):
        path.write_bytes(LIBRARY.build())
    prune_library(pruned, 86, cut=cut)
    data = bytearray(pruned.read_bytes())
    tampered(data, sections_of(bytes(data)))
    pruned.write_bytes(data)
    proof = Proof("a library", 86)
    before, after = Image(original), Image(pruned)
    wanted = {address: expected(codes, 86) for address, codes in before.containers().items()}
    check_entries(wanted, before, after, proof)
    check_memory(before, after, proof, cut=cut)
    return proof.failures


def nothing(_data, _sections) -> None:
    pass


def other_data(data, sections) -> None:
    data[sections[".data"][1] + 250] ^= 1


def other_code(data, sections) -> None:
    data[sections[".nv_fatbin"][1] + 1000] ^= 1


def other_stored_code(data, sections) -> None:
    _, offset, size = sections[".cask_resource"]
    data[data.index(bytes([86]) * 900, offset, offset + size)] ^= 1


def other_lone_cubin(data, sections) -> None:
    data[data.index(cubin(80)) + 500] ^= 1


def stored_code_left(data, sections) -> None:
    _, offset, size = sections[".cask_resource"]
    data[offset + size - 900 : offset + size] = bytes([90]) * 900


def lone_cubin_left(data, sections) -> None:
    _, offset, size = sections[".ldata"]
    data[offset + size - 100] = 90


def other_reference(data, sections) -> None:
    data[sections[".nvFatBinSegment"][1] + 8] ^= 8


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("tampered", "found"),
    [
        (nothing, []),
        (other_data, ["memory differs"]),
        (other_code, ["the device code left", "what stands at"]),
        (other_stored_code, ["memory differs"]),
        (other_lone_cubin, ["memory differs"]),
        (stored_code_left, ["code that should not be left in a store"]),
        (lone_cubin_left, ["code that should not be left in a store"]),
    ],
)
def test_proof(tmp_path, tampered, found, cut):
    failed = failures(tmp_path, tampered, cut=cut)
    assert len(failed) == len(found)
    for text, start in zip(failed, found, strict=True):
        assert text.startswith(start)


def test_a_reference_that_leads_elsewhere(tmp_path):
    [failure] = failures(tmp_path, other_reference, cut=True)
    assert failure.startswith("what stands at")


@pytest.mark.parametrize("python", ["bin/python", "python-of-the-site"])
def test_places_may_be_named_as_seen_from_the_current_folder(tmp_path, monkeypatch, capsys, python):
    """Libraries are loaded by a process that is elsewhere."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "library.so").write_bytes(Library([], cubins=LIBRARY.cubins).build())
    (site / "torch.py").write_text("open(__file__ + '.imported', 'w')")
    (tmp_path / "scratch").mkdir()
    for folder, name in (("bin", "python"), ("path", "python-of-the-site")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=":")
    (tmp_path / "cuobjdump").touch()
    monkeypatch.chdir(tmp_path)
    places = f"--site site --scratch scratch --python {python} --cuobjdump cuobjdump"
    monkeypatch.setattr(sys, "argv", ["prove", *places.split(), "--no-compression", "--sm", "86"])
    assert prove_libraries.main() == 0
    assert '"proven": 1' in capsys.readouterr().out
    assert (site / "torch.py.imported").exists()
