"""How packages become the files of a layer, and those a tar; tests/images makes whole images."""

import io
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from nix import prune
from nix.oci import debian, steps, wheel
from nix.oci.problem import Problem
from nix.oci.tar import write_tar
from nix.oci.tree import Tree
from tests.unit.prune.libraries import CUBIN, Library, container, entry

PLACE = "opt/env"
SITE = "opt/env/lib/python3.13/site-packages"


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    return Tree(root.resolve())


def make_wheel(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tar_bytes(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def make_deb(path, files, control="Package: some\nVersion: 1~2\nDescription: a\n b: c\n"):
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tar_bytes({"control": control.encode()}),
        "data.tar.xz": tar_bytes(files),
    }
    with path.open("wb") as archive:
        archive.write(b"!<arch>\n")
        for name, content in members.items():
            archive.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
            archive.write(content + b"\n" * (len(content) % 2))
    return path


def whole_tar(root, attributes=None):
    parts = []
    write_tar(root, attributes or {}, parts.append)
    return b"".join(parts)


def test_a_wheel_is_installed_with_its_commands_and_scripts(tree, tmp_path):
    archive = make_wheel(
        tmp_path / "a.whl",
        **{
            "a/__init__.py": "",
            "a-1.dist-info/entry_points.txt": "[console_scripts]\nRun = a.b:c.d [extra]\n",
            "a-1.data/scripts/tool": "#!python\nprint()\n",
            "a-1.data/data/share/x": "x",
        },
    )
    wheel.install(tree, archive, PLACE, "3.13", [])
    assert (tree.root / SITE / "a/__init__.py").exists()
    assert (tree.root / PLACE / "share/x").read_text() == "x"
    assert (tree.root / PLACE / "bin/tool").read_text() == "#!/opt/env/bin/python\nprint()\n"
    command = tree.root / PLACE / "bin/Run"
    assert command.read_text().endswith("from a.b import c\nsys.exit(c.d())\n")
    assert command.stat().st_mode & 0o111


def test_two_wheels_may_not_write_one_path_differently(tree, tmp_path):
    for name in "ab":
        make_wheel(tmp_path / f"{name}.whl", same="1", other=name)
    wheel.install(tree, tmp_path / "a.whl", PLACE, "3.13", [])
    with pytest.raises(Problem, match=f"Two packages have /{SITE}/other"):
        wheel.install(tree, tmp_path / "b.whl", PLACE, "3.13", [])


def test_what_is_left_out_is_not_there(tree, tmp_path):
    wheel.install(tree, make_wheel(tmp_path / "a.whl", a="", b=""), PLACE, "3.13", ["b"])
    assert [path.name for path in (tree.root / SITE).iterdir()] == ["a"]


def test_only_the_wanted_folders_of_a_wheel_are_extracted(tree, tmp_path):
    archive = make_wheel(tmp_path / "a.whl", **{"a/x": "", "ab/x": "", "a-1.data/platlib/a/y": ""})
    wheel.extract(tree, archive, "opt", ["a"])
    assert sorted(path.name for path in tree.root.rglob("*") if path.is_file()) == ["x", "y"]


def test_a_source_distribution_without_anything_to_compile_is_installed(tree, tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name, content in {
            "PKG-INFO": b"Name: a-b\nVersion: 1\n",
            "a/__init__.py": b"",
            "setup.py": b"",
        }.items():
            entry = tarfile.TarInfo(f"a-1/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    wheel.install(tree, tmp_path / "a.tar.gz", PLACE, "3.13", [])
    found = sorted(
        path.relative_to(tree.root / SITE).as_posix() for path in tree.root.rglob("*") if path.is_file()
    )
    assert found == ["a/__init__.py", "a_b-1.dist-info/METADATA"]


def test_a_debian_package_is_unpacked_without_docs_and_noted_for_scanners(tree, tmp_path):
    files = {"usr/bin/x": b"x", "usr/share/doc/some/copyright": b"c", "usr/share/doc/some/README": b"r"}
    debian.unpack(make_deb(tmp_path / "some.deb", files), tree)
    found = sorted(path.relative_to(tree.root).as_posix() for path in tree.root.rglob("*") if path.is_file())
    assert found == ["usr/bin/x", "usr/share/doc/some/copyright", "var/lib/dpkg/status.d/some"]


def test_what_is_no_debian_package_is_refused(tree, tmp_path):
    (tmp_path / "some.deb").write_bytes(b"hello")
    with pytest.raises(Problem, match="is not a Debian package"):
        debian.unpack(tmp_path / "some.deb", tree)


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x"])
def test_paths_that_leave_the_image_are_refused(tree, path):
    with pytest.raises(Problem, match="not inside the image"):
        tree.file(path, b"")


def test_a_link_that_leaves_the_image_is_not_followed(tree, tmp_path):
    tree.link("out", str(tmp_path))
    for path in ("out/x", "out/folder/x"):
        with pytest.raises(Problem, match="behind a link"):
            tree.file(path, b"")
    assert not (tmp_path / "folder").exists()


def test_the_tar_depends_on_names_contents_and_executable_bits_alone(tmp_path):
    for number, name in enumerate(("one", "two")):
        tree = Tree(tmp_path / name)
        tree.root.mkdir()
        for path in ("b", "a/x", "a-b") if number else ("a-b", "a/x", "b"):
            tree.file(path, b"x", executable=path == "b")
        (tree.root / "b").chmod(0o700 if number else 0o755)
    assert whole_tar(tmp_path / "one") == whole_tar(tmp_path / "two")


def test_the_tar_holds_what_attributes_say(tree):
    tree.directory("tmp")
    with tarfile.open(
        fileobj=io.BytesIO(whole_tar(tree.root, {"tmp": {"mode": 0o1777, "uid": 7, "gid": 8}}))
    ) as archive:
        entry = archive.getmember("tmp")
    assert (entry.mode, entry.uid, entry.gid, entry.mtime) == (0o1777, 7, 8, 1)


def test_a_pruner_that_fails_fails_the_layer_and_its_report_stays_out_of_the_archive(tree, tmp_path, capfd):
    (tmp_path / "prune").mkdir()
    (tmp_path / "prune/__main__.py").write_text("import sys\nprint('report')\nsys.exit('reason')\n")
    step = {
        "do": "prune",
        "program": str(tmp_path),
        "options": ["--sm", "86"],
        "place": PLACE,
        "version": "3.13",
    }
    with pytest.raises(Problem, match=r"could not be pruned \(--sm 86\)"):
        steps.take(step, tree)
    assert capfd.readouterr() == ("", "reason\n")


def test_a_pruned_layer_knows_what_was_pruned_left_out_and_refused(tree):
    files = {
        "some/resource.so": Library([container(entry(CUBIN, 80), entry(CUBIN, 86))]).build(),
        "some/odd.so": b"\x7fELF, of another machine" + bytes(64),
        "tensorrt_libs/libnvinfer_builder_resource_sm90.so.10.14.1": b"any",
    }
    for name, content in files.items():
        tree.file(f"{SITE}/{name}", content)
    program = Path(prune.__file__).parent.parent
    step = {
        "do": "prune",
        "program": str(program),
        "options": ["--sm", "86"],
        "place": PLACE,
        "version": "3.13",
    }
    rows = {row.pop("path"): row for row in steps.take(step, tree)}
    pruned = rows.pop("some/resource.so")
    assert pruned["device"][0] == 2 * pruned["device"][1] > 0
    assert rows == {
        "some/odd.so": {"size": [88, 88], "device": [0, 0], "reason": "not an ELF file for x86-64"},
        "tensorrt_libs/libnvinfer_builder_resource_sm90.so.10.14.1": {
            "size": [3, 0],
            "device": [0, 0],
            "reason": "left out",
        },
    }


def test_a_copy_that_has_become_a_link_is_not_told_as_left_out(tree, tmp_path, monkeypatch, capsys):
    report = {"removed": {"a/gone.h": 1}, "linked": {"b/copy.so": 2_000_000}, "libraries": []}
    (tmp_path / "prune").mkdir()
    (tmp_path / "prune/__main__.py").write_text(f"import json\nprint(json.dumps([{report}]))\n")
    step = {"do": "prune", "program": str(tmp_path), "options": [], "place": PLACE, "version": "3.13"}
    rows = steps.take(step, tree)
    monkeypatch.setitem(sys.modules, "deflate", ModuleType("deflate"))
    import_module("nix.oci.verbs")._inspect_pruned(rows)
    told = capsys.readouterr().out
    assert "a/gone.h: left out (0.0 MB)" in told
    assert "b/copy.so: a copy, now a link (2.0 MB)" in told
