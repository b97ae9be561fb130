"""Which tensors a checkpoint of TensorRT-LLM has, and how those of the hub become them.

Names as in tensorrt_llm/models/{llama,gpt,qwen}/convert.py; how layers and tensors are divided among ranks
as in tensorrt_llm/mapping.py: rank = pipeline rank x tensor parallel size + tensor rank.
"""

from __future__ import annotations

from dataclasses import dataclass

LLAMA_LIKE = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"}
MODEL_MAP = {"LlamaForCausalLM", "MistralForCausalLM", "QWenForCausalLM", "GPTForCausalLM"}


@dataclass(frozen=True)
class Part:
    """One tensor of a rank: `sources`, each cut along `axis`, one below the other."""

    name: str
    sources: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the sources, as the hub has them
    axis: int | None = None  # None: every rank has all of it
    transposed: bool = False  # the hub has [in, out]
    quantized: bool = False

    def cut(self, shape: tuple[int, ...], tp: int) -> tuple[int, ...]:
        """The shape of one rank's share of a source."""
        turned = shape[::-1] if self.transposed else shape
        if self.axis is None:
            return turned
        if turned[self.axis] % tp:
            raise ValueError(f"{turned[self.axis]} is not divisible by tp_size {tp}")
        return tuple(n // tp if axis == self.axis else n for axis, n in enumerate(turned))

    def shape(self, tp: int) -> tuple[int, ...]:
        shares = [self.cut(shape, tp) for shape in self.shapes]
        return (sum(share[0] for share in shares), *shares[0][1:])


def parts(config: dict, pp_rank: int) -> list[Part]:
    """The tensors of a pipeline rank, for a pretrained config as config.json of a checkpoint has it."""
    layers, pp = config["num_hidden_layers"], config["mapping"]["pp_size"]
    if layers % pp:
        raise ValueError(f"num_hidden_layers {layers} is not divisible by pp_size {pp}")
    mine = range(pp_rank * layers // pp, (pp_rank + 1) * layers // pp)
    make = _gpt if config["architecture"] == "GPTForCausalLM" else _llama
    return make(config, mine, first=pp_rank == 0, last=pp_rank == pp - 1)


def _llama(config: dict, layers: range, *, first: bool, last: bool) -> list[Part]:
    hidden, inter, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    query = config["num_attention_heads"] * config["head_size"]
    key = config["num_key_value_heads"] * config["head_size"]
    found = []
    if first:
        embedding = ((vocab, hidden),)
        found.append(Part("transformer.vocab_embedding.weight", ("model.embed_tokens.weight",), embedding))
    for local, layer in enumerate(layers):
        ours, theirs = f"transformer.layers.{local}", f"model.layers.{layer}"
        qkv = tuple(f"{theirs}.self_attn.{letter}_proj" for letter in "qkv")
        found += [
            Part(f"{ours}.input_layernorm.weight", (f"{theirs}.input_layernorm.weight",), ((hidden,),)),
            Part(
                f"{ours}.attention.qkv.weight",
                tuple(f"{name}.weight" for name in qkv),
                ((query, hidden), (key, hidden), (key, hidden)),
                axis=0,
                quantized=True,
            ),
            _linear(f"{ours}.attention.dense", f"{theirs}.self_attn.o_proj", (hidden, query), axis=1),
            Part(
                f"{ours}.post_layernorm.weight", (f"{theirs}.post_attention_layernorm.weight",), ((hidden,),)
            ),
            _linear(f"{ours}.mlp.gate", f"{theirs}.mlp.up_proj", (inter, hidden), axis=0),
            _linear(f"{ours}.mlp.fc", f"{theirs}.mlp.gate_proj", (inter, hidden), axis=0),
            _linear(f"{ours}.mlp.proj", f"{theirs}.mlp.down_proj", (hidden, inter), axis=1),
        ]
        if config["architecture"] == "QWenForCausalLM":
            biases = tuple(f"{name}.bias" for name in qkv)
            shapes = ((query,), (key,), (key,))
            found.append(Part(f"{ours}.attention.qkv.bias", biases, shapes, axis=0))
    if last:
        head = "model.embed_tokens.weight" if config["share_embedding_table"] else "lm_head.weight"
        found.append(Part("transformer.ln_f.weight", ("model.norm.weight",), ((hidden,),)))
        found.append(Part("lm_head.weight", (head,), ((vocab, hidden),), axis=0))
    return found


def _gpt(config: dict, layers: range, *, first: bool, last: bool) -> list[Part]:
    hidden, inter, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    found = []
    if first:
        positions = ((config["max_position_embeddings"], hidden),)
        found.append(Part("transformer.vocab_embedding.weight", ("wte.weight",), ((vocab, hidden),)))
        found.append(Part("transformer.position_embedding.weight", ("wpe.weight",), positions))
    for local, layer in enumerate(layers):
        ours, theirs = f"transformer.layers.{local}", f"h.{layer}"
        for part, name, inner, outer in (
            ("attention.qkv", "attn.c_attn", hidden, 3 * hidden),
            ("attention.dense", "attn.c_proj", hidden, hidden),
            ("mlp.fc", "mlp.c_fc", hidden, inter),
            ("mlp.proj", "mlp.c_proj", inter, hidden),
        ):
            weight = ((inner, outer),)
            found.append(
                Part(
                    f"{ours}.{part}.weight",
                    (f"{theirs}.{name}.weight",),
                    weight,
                    transposed=True,
                    quantized=True,
                )
            )
            found.append(Part(f"{ours}.{part}.bias", (f"{theirs}.{name}.bias",), ((outer,),)))
        for part, name in (("input_layernorm", "ln_1"), ("post_layernorm", "ln_2")):
            found += _norm(f"{ours}.{part}", f"{theirs}.{name}", hidden)
    if last:
        found += _norm("transformer.ln_f", "ln_f", hidden)
        found.append(Part("lm_head.weight", ("wte.weight",), ((vocab, hidden),)))
    return found


def _norm(name: str, source: str, size: int) -> list[Part]:
    return [Part(f"{name}.{kind}", (f"{source}.{kind}",), ((size,),)) for kind in ("weight", "bias")]


def _linear(name: str, source: str, shape: tuple[int, int], *, axis: int) -> Part:
    return Part(f"{name}.weight", (f"{source}.weight",), (shape,), axis=axis, quantized=True)


def stored(part: Part, config: dict) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type (as safetensors names it) and shape of what a rank's file has for one tensor, by name."""
    dtype = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}[config["dtype"]]
    shape = part.shape(config["mapping"]["tp_size"])
    algorithm = config["quantization"]["quant_algo"] if part.quantized else None
    base = part.name.removesuffix(".weight")
    match algorithm:
        case None:
            return {part.name: (dtype, shape)}
        case "W8A16" | "W8A8_SQ_PER_CHANNEL":
            return {part.name: ("I8", shape), f"{base}.per_channel_scale": (dtype, shape[:1])}
        case "FP8":
            scales = {f"{base}.{kind}_scaling_factor": ("F32", (1,)) for kind in ("weights", "activation")}
            return {part.name: ("F8_E4M3", shape), **scales}
    rows, columns = shape
    packed = {part.name: ("I8", (rows, columns // 2))}
    if algorithm == "W4A16":
        return {**packed, f"{base}.per_channel_scale": (dtype, (rows,))}
    group = config["quantization"]["group_size"]
    if columns % group:
        raise ValueError(f"{part.name}: {columns} is not divisible by the group size {group}")
    return {
        **packed,
        f"{base}.weights_scaling_factor": (dtype, (rows, columns // group)),
        f"{base}.prequant_scaling_factor": (dtype, (columns,)),
    }
