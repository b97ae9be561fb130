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


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/data/llama", "model"),
        ("/data/llama/original/", "model/original"),
        ("/src/models/data/llama", "model"),
        ("/src/models//data/llama", "model"),
        ("/data/llama/../other", None),
        ("/data", None),
        ("data/llama", "data/llama"),
    ],
)
def test_the_model_may_be_a_folder_of_this_machine(path, local):
    assert in_work_dir(path, "/data/llama") == local


@pytest.mark.parametrize("model", ["llama", "./llama", "../data/llama", "../../../llama", "/data/llama"])
def test_the_model_is_found_below_models_however_it_is_named(model):
    assert in_work_dir(f"/src/models/{model}", model) == "model"
    assert in_work_dir(f"./models/{model}/original", model) == "model/original"
    assert in_work_dir("engine", model) == "engine"


@pytest.mark.parametrize("model", [".", "..", "/", "/src", "../.."])
def test_a_model_that_holds_the_work_directory_is_not_all_of_it(model):
    assert in_work_dir("engine", model) == "engine"


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
