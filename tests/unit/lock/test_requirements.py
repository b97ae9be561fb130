import pytest

from nix.lock.environments import markers
from nix.lock.files import LockProblem
from nix.lock.requirements import pins

ONE, TWO = "1" * 64, "2" * 64
FILE = f"""\
Typing_Extensions==4.16.0 ; python_version < '3.12' \\
    --hash=sha256:{ONE}
    # via somebody
anyio==4.16.0 ; sys_platform != 'emscripten' \\
    --hash=sha256:{ONE} \\
    --hash=sha256:{TWO}
# a remark
uvicorn[standard]==0.30 --hash=sha256:{TWO}
"""


def test_names_versions_and_hashes_are_read():
    read = pins(FILE, markers("3.11"))

    assert [(pin.name, pin.version) for pin in read] == [
        ("anyio", "4.16.0"),
        ("typing-extensions", "4.16.0"),
        ("uvicorn", "0.30"),
    ]
    assert read[0].sha256 == {ONE, TWO}


def test_markers_are_those_of_the_image_not_of_this_machine():
    assert [pin.name for pin in pins(FILE, markers("3.13"))] == ["anyio", "uvicorn"]


@pytest.mark.parametrize("line", ["numpy>=2", "numpy==2.0", "numpy", f"-r other.txt --hash=sha256:{ONE}"])
def test_what_is_not_one_version_with_hashes_is_refused(line):
    with pytest.raises(LockProblem, match="run ci/lock"):
        pins(line, markers("3.13"))
