"""From the text of a config to its model, and back to what engine.tar keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, get_args

from pydantic import ValidationError

from shared.errors import ConfigInvalid

from . import problems
from .document import parse
from .models import BuildConfig, Instantiate, ModelImageConfig, Section
from .old import CogTRTLLMConfig, OfficialConfig

if TYPE_CHECKING:
    from pydantic import JsonValue

    from .document import Document, Place
    from .problems import Problem

ENGINES: dict[str, type[BuildConfig]] = {
    get_args(kind.model_fields["engine"].annotation)[0]: kind for kind in get_args(BuildConfig)
}
"""The model of each engine's config, by the value of the key `engine`."""

AnyConfig = BuildConfig | CogTRTLLMConfig | OfficialConfig

_Config = TypeVar("_Config", bound=Section)

MAX_PROBLEMS = 20
"""The most problems that one error names."""


def load_config(text: str, source: str) -> AnyConfig:
    """Read and check a build config; `source` is how errors name it. The caller limits the size of `text`.

    Raises `ConfigNotYaml`, `ConfigDuplicateKey`, and `ConfigInvalid`, which names all problems together.
    """
    document = parse(text, source)
    config, found = validate(document)
    if config is None or found:
        raise _invalid(document, source, found)
    return config


def load_instantiate(text: str, source: str) -> Instantiate | None:
    """The section `instantiate` of a build config, or of a file that holds nothing else.

    Raises as `load_config` does.
    """
    document = parse(text, source)
    if not is_for_an_image(document):
        return load_config(text, source).instantiate
    config, found = validate_for_an_image(document)
    if config is None or found:
        raise _invalid(document, source, found)
    return config.instantiate


def is_for_an_image(document: Document) -> bool:
    """Whether it holds the section `instantiate` and nothing else: there is nothing to build."""
    return document.data.keys() == {"instantiate"}


def validate_for_an_image(document: Document) -> tuple[ModelImageConfig | None, list[Problem]]:
    """As `validate`, for such a file."""
    return _validated(document, ModelImageConfig)


def validate(document: Document) -> tuple[AnyConfig | None, list[Problem]]:
    """The config, None when it has problems; and those problems."""
    kind = _kind(document)
    if kind is None:
        return None, [*problems.in_keys(document, frozenset()), problems.in_engine(document, list(ENGINES))]
    return _validated(document, kind)


def _validated(document: Document, kind: type[_Config]) -> tuple[_Config | None, list[Problem]]:
    found = list(problems.in_keys(document, _IGNORED if kind is CogTRTLLMConfig else frozenset()))
    try:
        config = kind.model_validate(document.data)
    except ValidationError as error:
        return None, [*found, *problems.in_values(error, kind, document)]
    return (None if found else config), found


def dump_config(config: AnyConfig) -> dict[str, JsonValue]:
    """The effective config, defaults filled in and without secrets, as JSON data that `load_config` reads."""
    return config.model_dump(mode="json")


# The old builder took the token from here. It is neither used nor written anywhere.
_IGNORED: frozenset[Place] = frozenset({("hf_token",)})


def _kind(document: Document) -> type[AnyConfig] | None:
    data = document.data
    match data.get("build"):
        case {"config": _}:
            return OfficialConfig
    if "model_id" in data or ("engine" not in data and {"build", "example_name"} & data.keys()):
        return CogTRTLLMConfig
    return ENGINES.get(str(data.get("engine")))


def _invalid(document: Document, source: str, found: list[Problem]) -> ConfigInvalid:
    reasons = [_with_line(one, document) for one in found]
    more = [f"and {len(reasons) - MAX_PROBLEMS} more"] if len(reasons) > MAX_PROBLEMS else []
    return ConfigInvalid(source=source, reason="; ".join(reasons[:MAX_PROBLEMS] + more))


def _with_line(problem: Problem, document: Document) -> str:
    position = document.positions.get(problem.place)
    return f"line {position.line}: {problem.what()}" if position else problem.what()
