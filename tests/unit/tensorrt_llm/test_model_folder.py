"""What TensorRT-LLM's tools see of a model: all but code."""

import json

from builder.engines.tensorrt_llm.model_folder import lay_out

CODE = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "someone/else--modeling_x.X"}


def test_the_tools_see_no_code(tmp_path):
    model = tmp_path / "published"
    (model / "custom_generate").mkdir(parents=True)
    (model / "original").mkdir()
    config = {"model_type": "llama", "text_config": {"hidden_size": 8}}
    with_code = {**config, "auto_map": CODE, "text_config": {"hidden_size": 8, "auto_map": CODE}}
    (model / "config.json").write_text(json.dumps(with_code))
    (model / "tokenizer_config.json").write_text(json.dumps({"auto_map": CODE, "eos_token": "</s>"}))
    (model / "generation_config.json").write_text('{"eos_token_id":2}')
    for name in ("modeling_x.py", "custom_generate/generate.py", "original/params.json", "model.safetensors"):
        (model / name).write_bytes(b"x")
    place = tmp_path / "model"
    lay_out(model, place)
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()) == [
        *("config.json", "generation_config.json", "model.safetensors", "original/params.json"),
        "tokenizer_config.json",
    ]
    assert json.loads((place / "config.json").read_text()) == config
    assert json.loads((place / "tokenizer_config.json").read_text()) == {"eos_token": "</s>"}
    for name in ("generation_config.json", "model.safetensors"):
        assert (place / name).resolve() == model / name
    assert json.loads((model / "config.json").read_text()) == with_code
