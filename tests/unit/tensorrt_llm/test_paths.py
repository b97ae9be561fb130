import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.engines.tensorrt_llm.paths import clash, in_work_dir


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("./c-model/gpt2/", "c-model/gpt2"),
        ("/src/c-model/gpt2", "c-model/gpt2"),
        ("a//b/./c/../d", "a/b/d"),
        ("/src/models/org/name", "model"),
        ("./models/org/name/original", "model/original"),
        ("/src/models/org/other", "models/org/other"),
        ("/src", "."),
        (".", "."),
        ("..", None),
        ("a/../../b", None),
        ("/", None),
        ("/src/..", None),
        ("/srcs", None),
        ("/etc/passwd", None),
        ("a\0b", None),
    ],
)
def test_paths_of_the_work_directory(path, local):
    assert in_work_dir(path, "org/name") == local


@given(st.text(alphabet="a./ ~", max_size=30))
def test_no_path_leads_out(path):
    local = in_work_dir(path, "org/name")
    assert local is None or not (local.startswith("/") or local.split("/")[0] == "..")


@pytest.mark.parametrize(
    ("path", "other"),
    [("a", "a"), ("a/b", "a"), ("a", "a/b"), (".", "a/b"), ("ab", None), ("b", None)],
)
def test_clashes(path, other):
    assert clash(path, ["a", "a/b"] if other != "a/b" else ["a/b"]) == other
