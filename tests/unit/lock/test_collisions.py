import zipfile

import pytest

from nix.lock.collisions import collisions


@pytest.fixture
def wheel(tmp_path):
    """`wheel(name, files, commands)`: a wheel whose RECORD gives each file the hash that is named here."""

    def make(name, files, commands=""):
        path = tmp_path / f"{name}-1-py3-none-any.whl"
        info = f"{name}-1.dist-info"
        record = "".join(f'"{file}",{digest},1\n' for file, digest in files.items())
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
            if commands:
                archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{commands}\n[other]\nx = y")
        return path

    return make


def test_wheels_with_files_of_their_own_do_not_collide(wheel):
    assert collisions([wheel("a", {"a/x.py": "1"}), wheel("b", {"b/x.py": "2"})]) == []


def test_a_namespace_may_be_shared(wheel):
    assert (
        collisions([wheel("cublas", {"nvidia/cublas/l.so": "1"}), wheel("nccl", {"nvidia/nccl/l.so": "2"})])
        == []
    )


def test_one_file_with_the_same_bytes_is_no_collision(wheel):
    assert (
        collisions([wheel("a", {"nvidia/__init__.py": "1"}), wheel("b", {"nvidia/__init__.py": "1"})]) == []
    )


def test_different_files_of_one_path_are_named_with_their_wheels(wheel):
    found = collisions([wheel("a", {"tests/__init__.py": "1"}), wheel("b", {"tests/__init__.py": "2"})])

    assert found == [
        "tests/__init__.py is written by a-1-py3-none-any.whl and b-1-py3-none-any.whl, with different contents."
    ]


def test_files_without_a_stated_hash_count_as_different(wheel):
    assert len(collisions([wheel("a", {"x": ""}), wheel("b", {"x": ""})])) == 1


@pytest.mark.parametrize("path", ["a-1.data/purelib/x.py", "a-1.data/platlib/x.py"])
def test_data_folders_are_compared_where_they_are_installed(wheel, path):
    assert len(collisions([wheel("a", {path: "1"}), wheel("b", {"x.py": "2"})])) == 1


def test_commands_of_one_name_collide(wheel):
    script = wheel("a", {"a-1.data/scripts/run": "1"})

    assert len(collisions([script, wheel("b", {}, "run = b:main")])) == 1
    assert (
        collisions([wheel("c", {}, "run = m:main"), wheel("d", {}, "run = m:main\nRun = other:main")]) == []
    )
