"""docs/config.md and docs/config.schema.json, made from the models.

Run `python -m shared.config.docs [--check]`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from shared import generated

from .load import ENGINES
from .models import BuildConfig

EXAMPLES = {
    "ctranslate2": """\
engine: ctranslate2
model: HuggingFaceTB/SmolLM2-135M-Instruct
revision: main
quantization: int8
parallel_requests: 4
instantiate:
  prompt_template: |
    <|im_start|>user
    {prompt}<|im_end|>
    <|im_start|>assistant
  stop_sequences: ["<|im_end|>"]
""",
    "mock": """\
engine: mock
tokens_per_second: 50
time_to_first_token: 0.2
""",
    "tensorrt_llm": """\
engine: tensorrt_llm
model: meta-llama/Llama-3.1-8B-Instruct
quantization: fp8
max_batch_size: 64
max_seq_len: 8192
""",
    "vllm": """\
engine: vllm
model: meta-llama/Llama-3.1-8B-Instruct
max_seq_len: 8192
tensor_parallel_size: 2
engine_args:
  gpu_memory_utilization: 0.9
""",
}
SCHEMA_LINE = "# yaml-language-server: $schema=config.schema.json\n"

INTRO = f"""\
# The build config

Made from `shared/config` by `python -m shared.config.docs`; do not edit.

One YAML file says which model becomes which engine. The key `engine` decides which other keys there are. An
unknown key, a key that stands twice, and a value of another type are errors that name the line; all problems
are reported at once. Secrets have no place here: send them to the builder as inputs.

An editor that knows the YAML language server completes and checks keys when the file begins with this line
(with the path or URL of [config.schema.json](config.schema.json)):

    {SCHEMA_LINE}
Choose an engine: {", ".join(f"[{name}](#engine-{name})" for name in ENGINES)}.
"""


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a build config."""
    made = TypeAdapter(Annotated[BuildConfig, Field(discriminator="engine")]).json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "cog-triton build config"}
    return head | made


def page() -> str:
    """The text of docs/config.md."""
    definitions = schema()["$defs"]
    parts = [INTRO]
    for name, kind in ENGINES.items():
        example = "".join(f"    {line}\n" for line in (SCHEMA_LINE + EXAMPLES[name]).splitlines())
        parts.append(f"## Engine {name}\n\n{_table(definitions[kind.__name__])}\n{example}")
    # Sections in the order in which the tables name them.
    sections = ("Instantiate", "Server", "ServerArguments")
    parts += [f"## {name}\n\n{_table(definitions[name])}" for name in sections]
    return "\n".join(parts)


def documents() -> dict[str, str]:
    """Both documents, by path in the checkout."""
    return {"docs/config.md": page(), "docs/config.schema.json": json.dumps(schema(), indent=2) + "\n"}


def _table(definition: dict[str, Any]) -> str:
    rows = [definition["description"], "", "| key | type | default | description |", "|---|---|---|---|"]
    for key, field in definition["properties"].items():
        default = field.get("default")
        shown = "not set" if default is None else f"`{json.dumps(default)}`"
        cells = (
            f"`{key}`",
            _type(field),
            shown if "default" in field else "*required*",
            field["description"],
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _type(field: dict[str, Any]) -> str:
    """The type of a JSON Schema node in words; null is left out, for it is the same as not set."""
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
        case {"type": "array"}:
            return f"list of {_type(field['items'])}"
        case {"type": "object"}:
            return f"mapping to {_type(field['additionalProperties'])}"
        case {"type": "string"}:
            return "text"
    return f"{field['type']}{_bounds(field)}"


def _bounds(field: dict[str, Any]) -> str:
    words = {"exclusiveMinimum": "above", "minimum": "from", "maximum": "to"}
    found = [f"{word} {field[name]:.10g}" for name, word in words.items() if name in field]
    return f", {' '.join(found)}" if found else ""


if __name__ == "__main__":
    generated.main("shared.config.docs", documents())
