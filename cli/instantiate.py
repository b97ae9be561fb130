"""A model's image from a runner image: the same layers, another config; only the config is sent.

skopeo talks to the registries, with the credentials of `docker login`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from pydantic import BaseModel, Field, ValidationError

from builder.sources.config import read_config, shown
from shared.config import load_instantiate
from shared.errors import ConfigInvalid, ModelImageFailed, OutputRefused
from shared.programs import run
from shared.server_arguments import parse_parameters
from shared.signals import in_words
from shared.source import data_url, scheme

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shared.config.models import Instantiate

_INDEXES = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
}
_SCHEMES = {"http", "https", "file"}
_MESSAGE = re.compile(r'msg="((?:[^"\\]|\\.)*)"')
_LOCAL = re.compile(r"(localhost|127\.[0-9.]+)(:|/)")
_BASE_NAME = "org.opencontainers.image.base.name"
_BASE_DIGEST = "org.opencontainers.image.base.digest"
_DIRECTORY_VERSION = "Directory Transport Version: 1.1\n"  # of containers/image's `dir:`


class _Manifest(BaseModel):
    """What is read of the manifest of an image, or of a list of images, which has no config."""

    media_type: str | None = Field(None, alias="mediaType")
    config: dict[str, Any] | None = None


class _Process(BaseModel):
    variables: list[str] | None = Field(None, alias="Env")
    labels: dict[str, str] | None = Field(None, alias="Labels")


class _ImageConfig(BaseModel):
    """What is read of the config of an image."""

    config: _Process | None = None


_Form = TypeVar("_Form", _Manifest, _ImageConfig)


def instantiate(
    source: str | None, base: str | None, dest: str | None, environment: Mapping[str, str] | None = None
) -> str:
    """Push the image that the config at `source` describes; return its digest.

    `base` and `dest` are image references (host/repository:tag); the config's `base_model` and `staging_dest`
    are their defaults. `environment` takes precedence over the config, which is not needed when `environment`
    says everything. Raises what `load_instantiate` raises and ServerParameterInvalid for the config, and
    ModelImageFailed or OutputRefused when the image cannot be made.
    """
    section = None if source is None else load_instantiate(read_config(source), shown(source))
    if section and section.server and section.server.tensorrt_llm:
        parse_parameters(section.server.tensorrt_llm.args)
    base = base or (section.base_model if section else None)
    dest = dest or (section.staging_dest if section else None)
    variables = {**(model_environment(section) if section else {}), **(environment or {})}
    named = "that the command line gives" if source is None else shown(source)
    if base is None or dest is None:
        reason = (
            "an image needs --base and --dest, or base_model and staging_dest in the section `instantiate`"
        )
        raise ConfigInvalid(source=named, reason=reason)
    if scheme(variables.get("COG_WEIGHTS", "")) not in _SCHEMES:
        reason = "instantiate.weights, or -e COG_WEIGHTS=..., must be the URL of an engine.tar"
        raise ConfigInvalid(source=named, reason=reason)
    return push_model(base, dest, variables)


def variable(text: str) -> tuple[str, str]:
    """Name and value of what `-e` gives. Raises typer.BadParameter."""
    name, equals, value = text.partition("=")
    problem = None  # without the value, which may be a secret
    if not equals:
        problem = "a variable is given as NAME=VALUE"
    elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        problem = (
            f"{name!r} cannot be the name of a variable: it has ASCII letters, digits and _, no digit first"
        )
    elif "\0" in value:
        problem = f"the value of {name} holds a null character"
    if problem is not None:
        raise typer.BadParameter(problem, param_hint="-e")
    return name, value


def model_environment(section: Instantiate) -> dict[str, str]:
    """What the runner reads from its environment: everything but where images are."""
    server = section.server and section.server.model_dump(mode="json", exclude_unset=True)
    texts = {
        "COG_WEIGHTS": section.weights,
        "SYSTEM_PROMPT": section.system_prompt,
        "PROMPT_TEMPLATE": section.prompt_template,
        "STOP_SEQUENCES": json.dumps(section.stop_sequences) if section.stop_sequences else None,
        "COG_TRITON_CONFIG": data_url(json.dumps({"instantiate": {"server": server}})) if server else None,
    }
    return {name: text for name, text in texts.items() if text is not None}


def push_model(base: str, dest: str, environment: Mapping[str, str]) -> str:
    """Push `base` with other environment variables to `dest`; return the digest. Raises ModelImageFailed
    and OutputRefused.
    """
    told = _skopeo(["inspect", "--raw"], [base], dest)
    base_digest = f"sha256:{hashlib.sha256(told.encode()).hexdigest()}"
    described_by = _read(_Manifest, told, base, dest)
    if described_by.media_type in _INDEXES:
        raise ModelImageFailed(
            dest=dest, reason=f"{base} is a list of images; select one of them by its digest"
        )
    if described_by.config is None:
        raise _no_image(base, dest)
    config_told = _skopeo(["inspect", "--config", "--raw"], [base], dest)
    _read(_ImageConfig, config_told, base, dest)
    manifest = json.loads(told)
    config = with_environment(json.loads(config_told), environment)
    labels = config["config"].get("Labels") or {}
    config["config"]["Labels"] = {**labels, _BASE_NAME: base, _BASE_DIGEST: base_digest}
    content = json.dumps(config).encode()
    digest = hashlib.sha256(content).hexdigest()
    manifest["config"].update(digest=f"sha256:{digest}", size=len(content))
    described = json.dumps(manifest).encode()
    files = {"version": _DIRECTORY_VERSION.encode(), "manifest.json": described, digest: content}
    with _directory_of(files) as directory:
        copy = ["copy", "--preserve-digests", "--retry-times", "3"]
        try:
            _skopeo(copy, [directory, dest], dest)
        except ModelImageFailed as failed:
            if "no such file" not in str(failed):
                raise
            # The layers are not in this repository yet, and not known to be in another one: they travel once.
            # The tag, which may be live, moves last.
            _skopeo(copy, [base, f"{_repository(dest)}@{base_digest}"], dest)
            _skopeo(copy, [directory, dest], dest)
    return f"sha256:{hashlib.sha256(described).hexdigest()}"


def with_environment(config: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """An OCI image config with more environment variables; those of the same name are replaced."""
    own = config["config"] = config.get("config") or {}
    kept = [line for line in own.get("Env") or [] if line.partition("=")[0] not in environment]
    own["Env"] = kept + [f"{name}={value}" for name, value in environment.items()]
    return config


def _read(form: type[_Form], text: str, base: str, dest: str) -> _Form:
    """What a registry says of `base`, which may not be an image at all. Raises ModelImageFailed."""
    try:
        return form.model_validate_json(text)
    except ValidationError:
        raise _no_image(base, dest) from None


def _no_image(base: str, dest: str) -> ModelImageFailed:
    return ModelImageFailed(dest=dest, reason=f"{base} is not the image of a runner")


@contextmanager
def _directory_of(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A temporary directory with these files. Raises OutputRefused when it cannot be made."""
    with ExitStack() as stack:
        try:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="model-image-"))
            for name, content in files.items():
                Path(scratch, name).write_bytes(content)
        except OSError as error:
            place = error.filename or "a temporary directory"
            fix = "Set TMPDIR to a writable directory with room in it"
            raise OutputRefused(path=place, reason=error.strerror, fix=fix) from None
        yield Path(scratch)


def _repository(reference: str) -> str:
    """An image reference without its tag and digest; a port is not a tag."""
    return re.sub(r":[^/:]*$", "", reference.partition("@")[0])


def _skopeo(command: Sequence[str], places: Sequence[str | Path], dest: str) -> str:
    """What skopeo prints; a place is an image reference, or the directory of an image."""
    verb, *options = command
    plain = {
        "inspect": ["--tls-verify=false"],
        "copy": ["--src-tls-verify=false", "--dest-tls-verify=false"],
    }
    if any(isinstance(place, str) and _LOCAL.match(place) for place in places):
        options += plain[verb]
    named = [f"docker://{place}" if isinstance(place, str) else f"dir:{place}" for place in places]
    try:
        done = run(["skopeo", "--insecure-policy", verb, *options, *named])
    except FileNotFoundError:
        raise ModelImageFailed(dest=dest, reason="skopeo is not installed") from None
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or f"skopeo ended with {in_words(done.returncode)}"
        message = _MESSAGE.search(last)
        raise ModelImageFailed(dest=dest, reason=message[1].replace('\\"', '"') if message else last)
    return done.stdout
