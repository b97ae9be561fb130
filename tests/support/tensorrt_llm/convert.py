"""`convert_checkpoint.py` and `quantize.py`: a checkpoint of the hub becomes one of TensorRT-LLM."""

from __future__ import annotations

import json
from pathlib import Path

from . import arguments
from .faults import seeded
from .layout import LLAMA_LIKE, parts
from .tool import log, start
from .weights import HubWeights, write_rank

QUANT_ALGO = {
    "fp8": "FP8",
    "fp8_pc_pt": "FP8_PER_CHANNEL_PER_TOKEN",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
    "int4_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "int8_wo": "W8A16",
    "int4_wo": "W4A16",
    "nvfp4": "NVFP4",
    "full_prec": None,
}
FAMILIES = {
    "llama": (arguments.convert_llama, {"LlamaForCausalLM", "MistralForCausalLM"}),
    "qwen": (arguments.convert_qwen, {"Qwen2ForCausalLM"}),
    "gpt": (arguments.convert_gpt, {"GPT2LMHeadModel"}),
}


def convert(family: str) -> None:
    parser, known = FAMILIES[family]
    options = parser().parse_args()
    start("convert_checkpoint.py")
    if options.model_dir is None:
        raise NotImplementedError("No source model path specified!")
    hub = _read(options.model_dir)
    architecture = hub["architectures"][0]
    if architecture not in known:
        raise ValueError(f"Unsupported model architecture: {architecture}")
    algorithm = None
    if options.use_weight_only:
        algorithm = {"int8": "W8A16", "int4": "W4A16"}[options.weight_only_precision]
    quantization = {"quant_algo": algorithm, "kv_cache_quant_algo": "INT8" if options.int8_kv_cache else None}
    _write(options, hub, quantization, getattr(options, "cp_size", 1))


def quantize() -> None:
    options = arguments.quantize().parse_args()
    start("quantize.py")
    if options.model_dir is None:
        raise ValueError("One of source checkpoint (model_dir, nemo_ckpt_path) must be specified")
    hub = _read(options.model_dir)
    quantization = {
        "quant_algo": None if seeded("nothing quantized") else QUANT_ALGO[options.qformat],
        "kv_cache_quant_algo": options.kv_cache_dtype and options.kv_cache_dtype.upper(),
    }
    if "awq" in options.qformat:
        quantization |= {
            "group_size": options.awq_block_size,
            "has_zero_point": False,
            "pre_quant_scale": True,
        }
        quantization["exclude_modules"] = ["lm_head"]
    architecture = hub["architectures"][0]
    if not any(architecture in known for _, known in FAMILIES.values()):
        # modelopt 0.37, torch/export/tensorrt_llm_utils.py: neither TensorRT-LLM nor it has this config.
        raise NotImplementedError(
            f"Cannot export tensorrt_llm checkpoint for model {hub['model_type']}: {architecture}. It's not "
            "supported by TensorRT-LLM yet. Please try exporting the model to unified HF checkpoint with "
            "ModelOpt and deploy the checkpoint with TensorRT-LLM pytorch backend."
        )
    print("Inserted 675 quantizers\nCalibrating batch 0", flush=True)
    _write(options, hub, quantization, options.cp_size)


def _read(model_dir: str) -> dict:
    path = Path(model_dir, "config.json")
    if not path.is_file():
        raise OSError(f"{model_dir} does not appear to have a file named config.json.")
    return json.loads(path.read_text())


def _write(options, hub: dict, quantization: dict, cp: int) -> None:
    tp, pp = options.tp_size, options.pp_size
    dtype = hub.get("torch_dtype", "float16") if options.dtype == "auto" else options.dtype
    config = _pretrained(hub) | {
        "dtype": "float16" if dtype == "float32" and options.dtype == "auto" else dtype,
        "quantization": quantization,
        # What the executor's stand-in computes with.
        "stand_in_model": str(Path(options.model_dir, "config.json").resolve().parent),
        "mapping": {
            "world_size": tp * pp * cp,
            "tp_size": tp,
            "pp_size": pp,
            "cp_size": cp,
            "gpus_per_node": 8,
        },
    }
    weights = HubWeights(Path(options.model_dir))
    output = Path(options.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    (output / "config.json").write_text(json.dumps(config, indent=4))
    for rank in range(tp * pp):
        path = output / f"rank{rank}.safetensors"
        write_rank(path, weights, parts(config, rank // tp), config, rank % tp)
        log("I", f"Rank {rank}: {path.stat().st_size / 1e9:.2f} GB")
    print("Total time of converting checkpoints: 00:00:01", flush=True)


def _pretrained(hub: dict) -> dict:
    """The fields of config.json that are mandatory, and those that the tensors' shapes come from."""
    if hub["architectures"][0] not in LLAMA_LIKE:
        return {
            "architecture": "GPTForCausalLM",
            "logits_dtype": "float32",
            "vocab_size": hub["vocab_size"],
            "hidden_size": hub["n_embd"],
            "intermediate_size": hub.get("n_inner") or 4 * hub["n_embd"],
            "num_hidden_layers": hub["n_layer"],
            "num_attention_heads": hub["n_head"],
            "num_key_value_heads": hub["n_head"],
            "max_position_embeddings": hub["n_positions"],
            "hidden_act": "gelu",
            "position_embedding_type": "learned_absolute",
        }
    qwen = hub["architectures"][0] == "Qwen2ForCausalLM"
    heads = hub["num_attention_heads"]
    return {
        "architecture": "QWenForCausalLM" if qwen else hub["architectures"][0],
        "logits_dtype": "float32",
        "vocab_size": hub["vocab_size"],
        "hidden_size": hub["hidden_size"],
        "intermediate_size": hub["intermediate_size"],
        "num_hidden_layers": hub["num_hidden_layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": hub.get("num_key_value_heads", heads),
        "head_size": hub.get("head_dim") or hub["hidden_size"] // heads,
        "max_position_embeddings": hub["max_position_embeddings"],
        "hidden_act": hub["hidden_act"],
        "norm_epsilon": hub["rms_norm_eps"],
        "position_embedding_type": "rope_gpt_neox",
        "rotary_base": hub.get("rope_theta", 10000.0),
        "rotary_scaling": hub.get("rope_scaling"),
        "share_embedding_table": hub.get("tie_word_embeddings", False),
    }
