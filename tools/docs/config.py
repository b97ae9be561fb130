"""docs/config.md and docs/config.schema.json, made from the models."""

from __future__ import annotations

import json
from typing import Any

from shared import vllm_arguments
from shared.config import ENGINES, CogTRTLLMConfig, MockConfig, OfficialConfig, VLLMConfig
from shared.config.examples import EXAMPLES
from shared.config.schema import schema
from tools.vllm_arguments.policy import PACKAGES

OLD_EXAMPLES = {
    CogTRTLLMConfig: """\
model_id: meta-llama/Llama-2-7b-chat-hf
example_name: llama
convert_to_ft:
  executable: python
  script: convert_checkpoint.py
  output_dir: ./c-model/llama
  args:
    model_dir: /src/models/meta-llama/Llama-2-7b-chat-hf
    output_dir: ./c-model/llama
    dtype: float16
    use_weight_only:
    weight_only_precision: int8
build:
  executable: trtllm-build
  output_dir: ./engine_outputs
  args:
    checkpoint_dir: ./c-model/llama
    output_dir: ./engine_outputs
    gemm_plugin: float16
    max_batch_size: 64
""",
    OfficialConfig: """\
build:
  config: models/llama-2-7b-chat/build_config.yaml
instantiate:
  base_model: registry.example/cog-triton-runner-90
  staging_dest: registry.example/llama-2-7b-chat
  weights: https://weights.example/engine.tar
  prompt_template: "[INST] {prompt} [/INST]"
""",
}
_WITH_A_PART = ("engine_args", "speculative_config")  # keys that a part of the page is about
SCHEMA_LINE = "# yaml-language-server: $schema=config.schema.json\n"

INTRO = f"""\
# The build config

Made from `shared/config` by `make docs`; do not edit.

One YAML file says which model becomes which engine. The key `engine` decides which other keys exist. An
unknown key and a value of the wrong type are errors that give the line, reported together as far as the rest
can be understood; a key that appears twice is reported first, alone. Secrets do not belong here: a token is
sent in HF_TOKEN (command line) or the input `hf_token` (API).

An editor with the YAML language server completes and checks keys when the file begins with this line
(with the path or URL of [config.schema.json](config.schema.json)):

    {SCHEMA_LINE}
A model is the name of one on the hub, the URL of a tar, or a folder. What begins with `/`, `./` or `../` is a
path; anything else is one too if there is such a folder. A relative path is relative to the config's folder,
or, in `make demo MODEL=...`, to the current folder. A config from an `http(s):` or `data:` URL is not in a
folder: its paths must be absolute.

A model needs a `tokenizer.json`, or files that one can be made from: `tekken.json` (Mistral's own form),
`tokenizer.model`, or `vocab.json` and `merges.txt`. The build makes it with transformers, and ends with E3210
unless both forms agree on a corpus of many languages and on texts from the whole vocabulary; different tokens
for a text that begins with a space are only a warning. A build runs no code that comes with a model.

A `tokenizer.json` that the model has is served as transformers reads it: the build applies
`added_tokens_decoder`, special tokens, `add_bos_token`, `add_eos_token` and `add_prefix_space` of
`tokenizer_config.json`, and in older models `special_tokens_map.json` and `added_tokens.json`. Files that
give one token two ids, or otherwise contradict each other, end the build with E3211.

Choose an engine: {", ".join(f"[{name}](#engine-{name})" for name in ENGINES)}. The older forms,
[CogTRTLLMConfig](#cogtrtllmconfig) and [OfficialConfig](#officialconfig), are read unchanged.

`cog-triton check config.yaml` reports what is wrong with a config, with the place and what to do, before
anything is fetched; of a model on the hub it reads the list of its files and, for tensorrt_llm and vllm, the
headers of its weights; for vllm its `config.json`, too. It also takes whatever `cog-triton serve` takes, such
as a folder with a model, or the name of one on the hub. A build begins with the same check of the config. The
check knows the arguments of TensorRT-LLM's tools from sources near 1.2.1: an argument that those do not have
is only a warning, and the build continues.
"""

OLD_FORM = """
Every path in a step starts at the work directory of the build; `/src` is another name for it, and
`/src/models/<model_id>` is the model; if `model_id` is an absolute path, that path in a step means the
model, too. Scripts and arguments of older releases are replaced by those of 1.2.1 or left out, with a
warning (where a whole script was replaced, arguments that merely have a new name get no warning of
their own); an argument that has to be
set in another step is an error. `convert_to_ft` and `quantize` read the model; `build` reads what one of
them wrote, and a `checkpoint_dir` that neither wrote is an error. If the config has neither step, a
conversion that makes the checkpoint is added.
"""

OF_MOCK = """
If no `model` is set, a prompt may contain these words, which say how it is answered:

| in a prompt | means, for this request |
|---|---|
| `<tokens_per_second> 50` | that many tokens a second; 0: as fast as they are read |
| `<time_to_first_token_ms> 300` | that many milliseconds to its first token |
| `<error>` | it fails after half of its tokens (E2405) |
| `<crash>` | the engine process dies after the request's first token |
| `<hang>` | no token ever comes |

The last three are tokens: 3, 2 and 4 in a prompt of token ids do the same.
"""


ARGUMENTS = """\
### engine_args

The engine arguments of vLLM {version} that may be set, taken from its own sources by `make vllm-arguments`.
The runner decides most of the others. Those that would run code which the config names can be set only if the
operator of builder and runner has set `ALLOW_MODEL_CODE=1`: {code}.
"""

LEFT_OUT = "Left out with a warning, because they change nothing here:"

REMOVED = "Of earlier versions, and left out with a warning (in parentheses, what replaces them):"

PACKAGED = "Refused, because vLLM needs a package for them that the images lack (in parentheses):"

SPECULATIVE = """\
### speculative_config

With `model` and its `revision`, the draft model is fetched like the model itself.
"""


def page() -> str:
    """The text of docs/config.md."""
    definitions = schema()["$defs"]
    parts = [INTRO]
    for name, kind in ENGINES.items():
        more = OF_MOCK if kind is MockConfig else ""
        table = _table(definitions[kind.__name__])
        parts.append(f"## Engine {name}\n\n{table}{more}\n{_indented(EXAMPLES[name])}")
        if kind is VLLMConfig:
            parts.append(_of_vllm())
    for old, example in OLD_EXAMPLES.items():
        more = OLD_FORM if old is CogTRTLLMConfig else ""
        table = _table(definitions[old.__name__])
        parts.append(f"## {old.__name__}\n\n{table}{more}\n{_indented(example)}")
    # Sections in the order in which the tables list them.
    sections = ("ToolSection", "BuiltConfig", "Instantiate", "Server", "ServerArguments")
    parts += [f"## {name}\n\n{_table(definitions[name])}" for name in sections]
    return "\n".join(parts)


def _of_vllm() -> str:
    known = vllm_arguments.table()
    removed = [
        f"`{name}`" + (f" (`{instead}`)" if instead else "") for name, instead in known["removed"].items()
    ]
    packaged = [
        f"`{argument}: {value}` ({package})"
        for package, values in PACKAGES.items()
        for argument, refused in values.items()
        if "." not in argument or argument.startswith(vllm_arguments.SPECULATIVE)
        for value in sorted(refused)
    ]
    return "\n".join(
        [
            ARGUMENTS.format(version=known["version"], code=", ".join(f"`{name}`" for name in known["code"])),
            _arguments(known["arguments"]),
            f"{LEFT_OUT} {', '.join(f'`{name}`' for name in known['left_out'])}.\n",
            f"{REMOVED} {', '.join(removed)}.\n",
            f"{PACKAGED} {', '.join(packaged)}.\n",
            SPECULATIVE,
            _arguments(known["own"][vllm_arguments.SPECULATIVE]["members"]),
        ]
    )


def _arguments(specs: dict[str, Any]) -> str:
    rows = ["| argument | values |", "|---|---|"]
    for name, spec in specs.items():
        rows.append(f"| `{name}` | {vllm_arguments.wanted(spec)} |")
        for member, one in spec.get("members", {}).items():
            rows.append(f"| `{name}.{member}` | {vllm_arguments.wanted(one)} |")
    return "\n".join(rows) + "\n"


def _indented(example: str) -> str:
    return "".join(f"    {line}\n" for line in (SCHEMA_LINE + example).splitlines())


def _table(definition: dict[str, Any]) -> str:
    rows = [definition["description"], "", "| key | type | default | description |", "|---|---|---|---|"]
    for key, field in definition["properties"].items():
        default = field.get("default")
        shown = "not set" if default is None else f"`{json.dumps(default)}`"
        cells = (
            f"[`{key}`](#{key})" if key in _WITH_A_PART else f"`{key}`",
            _type(field),
            shown if "default" in field else "*required*",
            field["description"],
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _type(field: dict[str, Any]) -> str:
    """The type of a JSON Schema node in words; null is omitted, since it is the same as not set."""
    match field:
        case {"anyOf": nodes}:
            return " or ".join(_type(node) for node in nodes if node != {"type": "null"})
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return "any value" if name == "JsonValue" else f"section [{name}](#{name.lower()})"
        case {"const": value}:
            return f"`{value}`"
        case {"enum": values}:
            return " or ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": _}:
            return f"list of {_type(field['items'])}"
        case {"type": "object", "properties": _}:
            return "mapping"
        case {"type": "object"} if not field.get("additionalProperties"):
            return "mapping"
        case {"type": "array"} if "items" not in field:
            return "list"
        case {"type": "object"}:
            return f"mapping to {_type(field['additionalProperties'])}"
        case {"type": "string"}:
            return "text"
    return f"{field['type']}{_bounds(field)}"


def _bounds(field: dict[str, Any]) -> str:
    words = {"exclusiveMinimum": "above", "minimum": "from", "maximum": "to"}
    found = [f"{word} {field[name]:.10g}" for name, word in words.items() if name in field]
    return f", {' '.join(found)}" if found else ""
