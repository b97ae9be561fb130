import pytest

from nix.lock.environments import Environment
from nix.lock.files import LockProblem
from nix.lock.requirements import Pin
from nix.lock.wheels import IndexFile, choose, document

PIN = Pin("numpy", "2.1", frozenset({"a", "b", "c", "d", "e"}))
IMAGE = Environment("runner")


def files(*names: str) -> list[IndexFile]:
    return [IndexFile(name, sha256) for name, sha256 in zip(names, "abcde", strict=False)]


@pytest.mark.parametrize(
    ("best", "others"),
    [
        (
            "numpy-2.1-cp313-cp313-manylinux_2_28_x86_64.whl",
            ["numpy-2.1-cp312-cp312-manylinux_2_28_x86_64.whl"],
        ),
        (
            "numpy-2.1-cp313-cp313-manylinux_2_28_x86_64.whl",
            ["numpy-2.1-cp38-abi3-manylinux_2_28_x86_64.whl"],
        ),
        (
            "numpy-2.1-cp313-cp313-manylinux_2_28_x86_64.whl",
            ["numpy-2.1-cp313-cp313-manylinux2014_x86_64.whl"],
        ),
        (
            "numpy-2.1-cp313-cp313-manylinux_2_41_x86_64.whl",
            ["numpy-2.1-cp313-cp313-manylinux_2_42_x86_64.whl"],
        ),
        ("numpy-2.1-cp38-abi3-manylinux1_x86_64.whl", ["numpy-2.1-py3-none-any.whl"]),
        ("numpy-2.1-py3-none-any.whl", ["numpy-2.1-cp313-cp313-musllinux_1_2_x86_64.whl"]),
        ("numpy-2.1-py3-none-any.whl", ["numpy-2.1-cp313-cp313t-manylinux_2_28_x86_64.whl"]),
        ("numpy-2.1-py3-none-any.whl", ["numpy-2.1-cp313-cp313-manylinux_2_28_aarch64.whl"]),
        ("numpy-2.1-py2.py3-none-any.whl", ["numpy-2.1.tar.gz"]),
    ],
)
def test_the_wheel_that_fits_the_image_best_is_chosen(best, others):
    assert choose(PIN, files(*others, best), IMAGE).name == best
    assert choose(PIN, files(best, *others), IMAGE).name == best


def test_a_file_that_the_requirement_file_does_not_list_is_never_chosen():
    replaced = IndexFile("numpy-2.1-cp313-cp313-manylinux_2_28_x86_64.whl", "not listed")
    listed = IndexFile("numpy-2.1-py3-none-any.whl", "a")

    assert choose(PIN, [replaced, listed], IMAGE) == listed


def test_a_package_without_a_fitting_wheel_is_refused():
    with pytest.raises(LockProblem, match=r"numpy 2.1 has no wheel for Python 3.13 on x86_64-linux"):
        choose(PIN, files("numpy-2.1.tar.gz", "numpy-2.1-cp312-cp312-win_amd64.whl"), IMAGE)


def test_source_is_taken_only_where_the_environment_says_so():
    allowed = Environment("engine", sources=frozenset({"numpy"}))

    assert choose(PIN, files("numpy-2.1.tar.gz"), allowed).name == "numpy-2.1.tar.gz"


REQUIREMENTS = "numpy==2.1 --hash=sha256:a\ntorch==2.9.1 --hash=sha256:b\n"
INDEXED = {
    "numpy": [IndexFile("numpy-2.1-py3-none-any.whl", "a")],
    "torch": [IndexFile("torch-2.9.1-py3-none-any.whl", "b", 7)],
}


def test_a_lock_names_the_file_of_each_package():
    made = document(IMAGE, REQUIREMENTS, INDEXED, None)

    assert (made["python"], made["platform"]) == ("3.13", "x86_64-linux")
    numpy = {"name": "numpy", "version": "2.1", "file": "numpy-2.1-py3-none-any.whl"}
    assert made["wheels"][0] == {**numpy, "sha256": "a", "size": None, "index": None}
    assert made["wheels"][1]["size"] == 7


def test_a_size_that_is_known_is_kept_while_the_file_is_the_same():
    previous = {"wheels": [{"sha256": "a", "size": 5}]}

    assert document(IMAGE, REQUIREMENTS, INDEXED, previous)["wheels"][0]["size"] == 5


def test_a_publishers_file_stands_in_place_of_the_default_indexs():
    row = {
        "name": "torch",
        "version": "2.9.1+cu130",
        "file": "torch.whl",
        "sha256": None,
        "size": None,
        "index": "i",
    }

    assert document(IMAGE, REQUIREMENTS, INDEXED, None, [row])["wheels"][1] == row
