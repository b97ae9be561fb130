"""A model of Mistral's whose tokenizer is a tekken.json: vLLM reads what the build made of that, for its structures."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from builder.pipeline import build
from runner.protocol.engine import StructuredOutput
from runner.text.tokenizer import Tokenizer
from shared.artifact import extract_archive
from tests.support.tokenizers import tekken, tekken_model
from tests.vllm.conftest import serving
from tests.vllm.model import ARGUMENTS, MAX_SEQ_LEN, MODEL
from tests.vllm.test_structured_output import held_to, texts_of

LISTED = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]


@pytest.fixture(scope="module")
def engine_of_mistral(tmp_path_factory):
    """Weights of chance. Beside them is Mistral's own form of the checkpoint, whose weights are damaged."""
    scratch = tmp_path_factory.mktemp("mistral")
    content = tekken(special=LISTED)
    model = tekken_model(scratch / "model", content)
    described = json.loads((MODEL / "config.json").read_bytes()) | {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": None,
        "vocab_size": content["config"]["default_vocab_size"],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (model / "config.json").write_text(json.dumps(described))
    shutil.copy(MODEL / "model.safetensors", model)  # of which a dummy has only the header looked at
    for name in ("params.json", "consolidated.safetensors"):
        (model / name).write_text("{")
    arguments = {name: value for name, value in ARGUMENTS.items() if "lora" not in name}
    config = {"engine": "vllm", "model": str(model), "max_model_len": MAX_SEQ_LEN}
    text = json.dumps(config | {"engine_args": arguments | {"load_format": "dummy"}})
    build(f"data:,{text}", scratch / "engine.tar")
    with (scratch / "engine.tar").open("rb") as archive:
        extract_archive(archive, scratch / "engine", check=lambda _: None, max_bytes=1 << 30)
    return scratch / "engine"


def test_texts_are_held_to_structures(engine_of_mistral, tmp_path):
    tokenizer = Tokenizer.load(engine_of_mistral / "tokenizer")
    choices = ["a fox", "東京 🦊"]
    asked = [StructuredOutput("choice", json.dumps(choices)), StructuredOutput("regex", "[a-f]{3,9}!")]
    requests = [held_to(one, seed) for seed in range(4) for one in asked]
    with serving(engine_of_mistral, tmp_path / "log") as (_, driver):
        texts = texts_of(driver, tokenizer, requests)
    assert set(texts[::2]) <= set(choices)
    assert all(re.fullmatch("[a-f]{3,9}!", text) for text in texts[1::2])
