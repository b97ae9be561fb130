"""Models that also see or hear: only their language model is loaded, for there is only text here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.vllm.conftest import serving, write_engine
from tests.vllm.model import ARGUMENTS, GREEDY_TOKENS, PROMPTS
from tests.vllm.test_engine import ask, outputs

if TYPE_CHECKING:
    from pathlib import Path

# Of an encoder whose weights are not there.
AUDIO = {
    "d_model": 64,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "num_mel_bins": 16,
}


def make_it_hear(model: Path) -> None:
    """Make a Qwen2-Audio of the demo's Llama. Its language model differs from that in biases, which are 0."""
    text = json.loads((model / "config.json").read_bytes())
    text |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    config = {
        "architectures": ["Qwen2AudioForConditionalGeneration"], "model_type": "qwen2_audio", "torch_dtype": "bfloat16",
        "text_config": text, "audio_config": AUDIO, "audio_token_index": 3, "tie_word_embeddings": True,
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(config))
    weights = model / "model.safetensors"
    content = weights.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8:begin])
    tensors.pop("__metadata__", None)
    end = len(content) - begin
    for layer in range(text["num_hidden_layers"]):
        for name in ("q_proj", "k_proj", "v_proj"):
            place = f"model.layers.{layer}.self_attn.{name}"
            width = tensors[f"{place}.weight"]["shape"][0]
            offsets = [end, end + 2 * width]
            tensors[f"{place}.bias"] = {"dtype": "BF16", "shape": [width], "data_offsets": offsets}
            end += 2 * width
    header = json.dumps({f"language_model.{name}": tensor for name, tensor in tensors.items()}).encode()
    zeros = bytes(end - len(content) + begin)
    weights.write_bytes(len(header).to_bytes(8, "little") + header + content[begin:] + zeros)


@pytest.fixture(scope="module")
def hearing(tmp_path_factory):
    without_lora = {name: value for name, value in ARGUMENTS.items() if "lora" not in name}
    directory = write_engine(tmp_path_factory.mktemp("hearing") / "engine", engine_args=without_lora)
    make_it_hear(directory / "engine")
    with serving(directory, directory.with_name("log")) as (_, driver):
        yield driver


def test_the_language_model_writes_as_it_does_alone(hearing, greedy_reference):
    requests = [ask(prompt, GREEDY_TOKENS) for prompt in PROMPTS]
    got = outputs(hearing, *requests)
    tokens = [[token for output in got[one.request_id] for token in output.tokens] for one in requests]
    assert tokens == greedy_reference
