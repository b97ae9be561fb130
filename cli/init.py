"""`cog-triton init`: a config to start from, which has every key of an engine and what it means."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from shared.artifact.partial import partial_of
from shared.config import ENGINES
from shared.config.examples import EXAMPLES
from shared.config.schema import rendered_schema
from shared.errors import ConfigValueInvalid, OutputRefused
from shared.validation import wanted

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic.fields import FieldInfo

SCHEMA_FILE = ".cog-triton.schema.json"
_WIDTH = 100


def init(path: Path, engine: str, model: str | None) -> None:
    """Write the config to `path`, and beside it the schema that its first line refers to.

    Both or neither. Raises OutputRefused when a file exists already, or cannot be written, and
    ConfigValueInvalid for a model that no config may have.
    """
    try:
        if not path.name or path.is_dir():
            raise OutputRefused(
                path=path, reason="it is a directory", fix=f"Choose a file, such as {path / 'config.yaml'}"
            )
        schema = path.with_name(SCHEMA_FILE)
        part = partial_of(schema)  # another one may be at work in the same folder
        text = config_of(engine, model)
        path.touch(exist_ok=False)
        try:
            path.write_text(text, encoding="utf-8")
            part.write_text(rendered_schema(), encoding="utf-8")
            part.replace(schema)
        except BaseException:
            path.unlink()
            part.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise OutputRefused(
            path=path, reason="the file exists already", fix="Choose another file, or remove that one"
        ) from None
    except FileNotFoundError:
        raise OutputRefused(
            path=path,
            reason=f"there is no directory {path.parent}",
            fix="Create it, or choose another file",
        ) from None
    except OSError as error:
        raise OutputRefused(path=path, reason=error.strerror, fix="Choose another file") from None


def config_of(engine: str, model: str | None = None) -> str:
    """The text of a config for `engine`: what most people set is set, every other key is commented out.

    Raises ConfigValueInvalid for a `model` that no config may have.
    """
    kind = ENGINES[engine]
    chosen: dict[str, Any] = yaml.safe_load(EXAMPLES[engine])
    if model is not None:
        chosen["model"] = model
        chosen.pop("revision", None)
        try:
            kind.model_validate(chosen)
        except ValidationError as error:
            raise ConfigValueInvalid(key="--model", problem=wanted(error.errors()[0])) from None
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        *_comment(str(kind.__doc__)),
        *_comment("A key after a # is not set, and shows its default. `cog-triton check` finds mistakes."),
    ]
    sections = {name: section for name, field in kind.model_fields.items() if (section := _section(field))}
    for name, field in kind.model_fields.items():
        if name not in sections:
            mark, value = ("", chosen[name]) if name in chosen else ("#", field.get_default())
            lines += ["", *_comment(str(field.description)), f"{mark}{_line(name, value)}"]
    for name, section in sections.items():
        lines += ["", *_comment(str(kind.model_fields[name].description)), f"#{name}:"]
        for key, field in section.model_fields.items():
            lines.append(f"#  {_line(key, field.get_default())}  # {field.description}")
    return "\n".join(lines) + "\n"


def _line(name: str, value: object) -> str:
    """JSON is YAML; text that needs no quotes gets none."""
    if value is None:
        return f"{name}:"
    if isinstance(value, str):
        return yaml.safe_dump({name: value}, width=1000).rstrip("\n")
    return f"{name}: {json.dumps(value)}"


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")
