"""Train the small model of `demo/model`: about ten minutes on one CPU core.

    pip install 'torch>=2.9' numpy safetensors tokenizers
    python -m demo.train

Writes the files that Hugging Face's transformers would: config.json, generation_config.json, tokenizer.json,
tokenizer_config.json, model.safetensors (bfloat16, under 2 MB). The seed fixes the texts and the first
weights; floating point still differs between machines: the committed files, not this script, are the truth.
After a new training, write the texts of the prompts anew:

    python -m tests.reference.llama demo/model demo/prompts.json
"""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import functional

from demo.corpus import any_text, document

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL_DIR = Path(__file__).parent / "model"
SEED = 20240501
STEPS = 1200
TOKENS_PER_STEP = 4096
# Mostly short rows, so that most texts are learned near position 0, and some long ones for long prompts.
ROW_LENGTHS = {128: 0.45, 256: 0.35, 512: 0.15, 1024: 0.05}
PEAK_LEARNING_RATES = {"matrices": 0.02, "others": 4e-3}
NOT_LEARNED = -100  # the label that `cross_entropy` leaves out

BOS, EOS = 0, 1
VOCAB, POSITIONS = 1024, 2048
HIDDEN, MLP, LAYERS = 128, 352, 4
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
ROPE_THETA, NORM_EPS, INITIAL_STD = 10000.0, 1e-5, 0.02
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": INITIAL_STD,
    "intermediate_size": MLP,
    "max_position_embeddings": POSITIONS,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "pretraining_tp": 1,
    "rms_norm_eps": NORM_EPS,
    "rope_scaling": None,
    "rope_theta": ROPE_THETA,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": VOCAB,
}


def train_tokenizer(rng: random.Random) -> Tokenizer:
    """A byte-level BPE, learned from ASCII alone: any other letter is several tokens, as a test of UTF-8."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[AddedToken("<s>", special=True), AddedToken("</s>", special=True)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (any_text(rng).encode("ascii", "ignore").decode() for _ in range(20_000))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return tokenizer


def labelled_tokens(tokenizer: Tokenizer, rng: random.Random) -> Iterator[tuple[int, int]]:
    """The tokens of one document with their labels: NOT_LEARNED in the context, else the token itself."""

    def encode(part: str) -> list[int]:
        return tokenizer.encode(part, add_special_tokens=False).ids

    context, text = document(rng)
    yield BOS, NOT_LEARNED
    yield from ((token, NOT_LEARNED) for token in encode(context))
    # A prompt may end within a word, where its tokens are not those of the whole text.
    cut = rng.randrange(len(text)) if rng.random() < 0.1 else 0
    yield from ((token, token) for token in [*encode(text[:cut]), *encode(text[cut:]), EOS])


def batch(tokenizer: Tokenizer, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels, both [rows, length]; each row starts with a document and is packed with more."""
    [length] = rng.choices(list(ROW_LENGTHS), list(ROW_LENGTHS.values()))
    rows = []
    for _ in range(TOKENS_PER_STEP // length):
        row: list[tuple[int, int]] = []
        while len(row) <= length:
            row.extend(labelled_tokens(tokenizer, rng))
        rows.append(row[: length + 1])
    pairs = torch.tensor(rows)
    return pairs[:, :-1, 0], pairs[:, 1:, 1]


def initial_weights() -> dict[str, torch.Tensor]:
    """The tensors of a LlamaForCausalLM by their names, in float32."""

    def matrix(outputs: int, inputs: int, std: float = INITIAL_STD) -> torch.Tensor:
        return torch.randn(outputs, inputs) * std

    weights = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN)}
    into_residual = INITIAL_STD / math.sqrt(2 * LAYERS)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": torch.ones(HIDDEN),
            prefix + "self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            prefix + "self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            prefix + "self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            prefix + "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM, into_residual),
            prefix + "post_attention_layernorm.weight": torch.ones(HIDDEN),
            prefix + "mlp.gate_proj.weight": matrix(MLP, HIDDEN),
            prefix + "mlp.up_proj.weight": matrix(MLP, HIDDEN),
            prefix + "mlp.down_proj.weight": matrix(HIDDEN, MLP, into_residual),
        }
    return weights | {"model.norm.weight": torch.ones(HIDDEN)}


def forward(weights: dict[str, torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    """Logits [rows, length, vocab_size] of inputs [rows, length]."""
    rows, length = inputs.shape
    frequencies = ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.arange(length)[:, None] * frequencies.repeat(2)
    cos, sin = angles.cos(), angles.sin()

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.rms_norm(x, (HIDDEN,), weights[name], NORM_EPS)

    def heads(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, weights[name]).view(rows, length, -1, HEAD_DIM).transpose(1, 2)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    x = functional.embedding(inputs, weights["model.embed_tokens.weight"])
    for layer in range(LAYERS):
        attention, mlp = f"model.layers.{layer}.self_attn.", f"model.layers.{layer}.mlp."
        normed = norm(x, f"model.layers.{layer}.input_layernorm.weight")
        attended = functional.scaled_dot_product_attention(
            rotate(heads(normed, attention + "q_proj.weight")),
            rotate(heads(normed, attention + "k_proj.weight")),
            heads(normed, attention + "v_proj.weight"),
            is_causal=True,
            enable_gqa=True,
        )
        x = x + functional.linear(
            attended.transpose(1, 2).reshape(rows, length, -1), weights[attention + "o_proj.weight"]
        )
        normed = norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        gate, up = (
            functional.linear(normed, weights[mlp + name]) for name in ("gate_proj.weight", "up_proj.weight")
        )
        x = x + functional.linear(functional.silu(gate) * up, weights[mlp + "down_proj.weight"])
    return functional.linear(norm(x, "model.norm.weight"), weights["model.embed_tokens.weight"])


def train_weights(tokenizer: Tokenizer, rng: random.Random) -> dict[str, torch.Tensor]:
    weights = {name: tensor.requires_grad_() for name, tensor in initial_weights().items()}
    matrices = [tensor for name, tensor in weights.items() if "_proj" in name]
    others = [tensor for name, tensor in weights.items() if "_proj" not in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=PEAK_LEARNING_RATES["matrices"], weight_decay=0.0),
        torch.optim.AdamW(others, lr=PEAK_LEARNING_RATES["others"], betas=(0.9, 0.98), weight_decay=0.0),
    ]

    def warm_up_then_fall(step: int) -> float:
        return min(1.0, (step + 1) / 50) * (1 - step / STEPS)

    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_then_fall) for optimizer in optimizers]
    started = time.monotonic()
    for step in range(STEPS):
        inputs, labels = batch(tokenizer, rng)
        logits = forward(weights, inputs)
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOT_LEARNED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}  loss {loss.item():.3f}  {time.monotonic() - started:.0f} s", flush=True)
    return {name: tensor.detach().bfloat16() for name, tensor in weights.items()}


def write_json(name: str, content: dict[str, object]) -> None:
    (MODEL_DIR / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    rng = random.Random(SEED)  # noqa: S311 (texts, not secrets)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    MODEL_DIR.mkdir(exist_ok=True)
    tokenizer = train_tokenizer(rng)
    tokenizer.save(str(MODEL_DIR / "tokenizer.json"))
    write_json(
        "tokenizer_config.json",
        {
            "add_bos_token": True,
            "bos_token": "<s>",
            "clean_up_tokenization_spaces": False,
            "eos_token": "</s>",
            "model_max_length": POSITIONS,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    write_json("config.json", CONFIG)
    write_json("generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS})
    save_file(train_weights(tokenizer, rng), MODEL_DIR / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
