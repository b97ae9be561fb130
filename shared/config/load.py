"""From the text of a config to its model, and back to what engine.tar keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from pydantic import ValidationError

from shared.errors import ConfigInvalid

from . import problems
from .document import parse
from .models import BuildConfig

if TYPE_CHECKING:
    from pydantic import JsonValue

ENGINES: dict[str, type[BuildConfig]] = {
    get_args(kind.model_fields["engine"].annotation)[0]: kind for kind in get_args(BuildConfig)
}
"""The model of each engine's config, by the value of the key `engine`."""

MAX_PROBLEMS = 20
"""Most problems that one error names."""


def load_config(text: str, source: str) -> BuildConfig:
    """Read and check a build config; `source` is how errors name it. The caller limits the size of `text`.

    Raises `ConfigNotYaml`, `ConfigDuplicateKey`, and `ConfigInvalid`, which names all problems at once.
    """
    document = parse(text, source)
    found = list(problems.in_keys(document))
    kind = ENGINES.get(str(document.data.get("engine")))
    if kind is None:
        found.append(problems.in_engine(document, list(ENGINES)))
    else:
        try:
            config = kind.model_validate(document.data)
        except ValidationError as error:
            found += problems.in_values(error, kind, document)
    if found:
        more = [f"and {len(found) - MAX_PROBLEMS} more"] if len(found) > MAX_PROBLEMS else []
        raise ConfigInvalid(source=source, reason="; ".join(found[:MAX_PROBLEMS] + more))
    return config


def dump_config(config: BuildConfig) -> dict[str, JsonValue]:
    """The effective config, defaults filled in and without secrets, as JSON data that `load_config` reads."""
    return config.model_dump(mode="json")
