"""`trtllm-build`: a checkpoint of TensorRT-LLM becomes an engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from . import VERSION, arguments
from .faults import seeded
from .layout import MODEL_MAP, parts, stored
from .tool import log, start

_BUILD_CONFIG = (
    "max_input_len", "max_seq_len", "max_batch_size", "max_beam_width", "max_num_tokens", "opt_num_tokens",
    "max_prompt_embedding_table_size", "gather_context_logits", "gather_generation_logits",
    "profiling_verbosity", "enable_debug_output", "max_draft_len", "speculative_decoding_mode",
    "input_timing_cache", "output_timing_cache", "weight_sparsity", "weight_streaming",
    "max_encoder_input_len", "monitor_memory",
)  # fmt: skip

# As mmha_supported() has them in the one source of another version that could be had; not known of 1.2.1.
_HEAD_SIZES = {32, 48, 64, 80, 96, 104, 112, 128, 144, 160, 192, 224, 256}


def main() -> None:
    parser = arguments.trtllm_build()
    if seeded("another argument"):
        parser.add_argument("--brand_new", help="of a later release")
    options = parser.parse_args()
    start("trtllm-build")
    config = _checkpoint(options)
    _refuse(options, config)
    output = Path(options.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    for rank in range(config["mapping"]["world_size"]):
        log("I", "Build TensorRT engine Unnamed Network 0")
        if not options.dry_run:
            _build(Path(options.checkpoint_dir), output, config, rank)
    text = {"version": VERSION, "pretrained_config": config, "build_config": _build_config(options, config)}
    (output / "config.json").write_text(json.dumps(text, indent=4))
    log("I", "Total time of building all engines: 00:00:01")


def _checkpoint(options) -> dict:
    path = Path(
        options.model_config or Path(options.checkpoint_dir.lower() and options.checkpoint_dir, "config.json")
    )
    return json.loads(path.read_text())


def _refuse(options, config: dict) -> None:
    if config["architecture"] not in MODEL_MAP:
        raise RuntimeError(f"Unsupported model architecture: {config['architecture']}")
    head_size = config.get("head_size") or config["hidden_size"] // config["num_attention_heads"]
    if options.gpt_attention_plugin != "disable" and head_size not in _HEAD_SIZES:
        raise RuntimeError(f"Head size {head_size} is not supported by MMHA.")
    if options.streamingllm == "enable":
        raise AssertionError("StreamingLLM is no longer supported")
    gathers = options.gather_context_logits or options.gather_all_token_logits
    if gathers and options.max_draft_len > 0:
        raise RuntimeError("Gather context logits is not support with draft len > 0. ")
    if options.multiple_profiles == "enable" and options.opt_num_tokens is not None:
        raise RuntimeError("multiple_profiles is enabled, while opt_num_tokens is set. ")
    if options.gemm_swiglu_plugin == "fp8" and options.use_fused_mlp == "disable":
        raise RuntimeError("GemmSwiGLU plugin requires --use_fused_mlp flag")
    for name in ("gpt_attention_plugin", "gemm_plugin", "nccl_plugin"):
        log("I", f"Set {name} to {getattr(options, name)}.")
    if options.context_fmha == options.remove_input_padding == "enable" and options.max_input_len != 1024:
        log(
            "W",
            "padding removal and fMHA are both enabled, max_input_len is not required and will be ignored",
        )


def _build(checkpoint: Path, output: Path, config: dict, rank: int) -> None:
    """rankN.engine: a line of JSON, then the weights as rankN.safetensors has them."""
    tp = config["mapping"]["tp_size"]
    expected = {}
    for part in parts(config, rank // tp):
        expected |= stored(part, config)
    with (checkpoint / f"rank{rank}.safetensors").open("rb") as weights:
        header = json.loads(weights.read(int.from_bytes(weights.read(8), "little")))
        if missing := expected.keys() - header.keys():
            raise RuntimeError(f"Expected but not provided tensors: {sorted(missing)}")
        for name, (_, original) in expected.items():
            if (updated := tuple(header[name]["shape"])) != original:
                raise AssertionError(
                    "The value updated is not the same shape as the original. "
                    f"Updated: {updated}, original: {original}"
                )
        with (output / f"rank{rank}.engine").open("wb") as engine:
            engine.write(json.dumps({"rank": rank, "weights": header}).encode() + b"\n")
            shutil.copyfileobj(weights, engine, 1 << 20)


def _build_config(options, config: dict) -> dict:
    """As BuildConfig.to_dict writes it: what was not given is filled in."""
    made = {name: getattr(options, name) for name in _BUILD_CONFIG}
    if made["max_seq_len"] is None:
        scaling = config.get("rotary_scaling") or {}
        kind = scaling.get("type", scaling.get("rope_type"))
        factor = 1 if kind in {None, "su", "longrope", "llama3"} else scaling.get("factor", 1)
        made["max_seq_len"] = int(config["max_position_embeddings"] * factor)
    made["max_input_len"] = min(made["max_input_len"], made["max_seq_len"])
    made["opt_num_tokens"] = made["opt_num_tokens"] or made["max_batch_size"] * made["max_beam_width"]
    made["kv_cache_type"] = getattr(options, "kv_cache_type", "paged").upper()
    plugins = {key: value for key, value in vars(options).items() if key.endswith("_plugin")}
    switches = (
        "context_fmha",
        "remove_input_padding",
        "tokens_per_block",
        "use_paged_context_fmha",
        "multiple_profiles",
    )
    made["plugin_config"] = plugins | {name: getattr(options, name) for name in switches}
    if seeded("no max_num_tokens"):
        del made["max_num_tokens"]
    return made
