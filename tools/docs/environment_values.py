"""What a variable of the runner may hold, told from its type, and an example of each."""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import SecretStr

from runner.triton.address import Address

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_NUMBERS = {int: "whole number", float: "number"}
_KINDS = {
    bool: "true or false",
    str: "text",
    Path: "path",
    SecretStr: "text, a secret",
    Address: "`host:port`",
}
_LIMITS = ((Gt, "gt", "above"), (Ge, "ge", "at least"), (Le, "le", "at most"))

EXAMPLES = {
    "COG_WEIGHTS": "https://models.example.com/engine.tar",
    "ENGINE_DIR": "/models/llama",
    "COG_TRITON_CONFIG": "/etc/cog-triton.yaml",
    "COG_TRITON_SM": "90",
    "WEIGHTS_CACHE": "/var/cache/cog-triton",
    "COMPILE_CACHE": "/var/cache/cog-triton/compiled",
    "MAX_ENGINE_BYTES": "200000000000",
    "SYSTEM_PROMPT": "Be brief.",
    "PROMPT_TEMPLATE": "[INST] {system_prompt} {prompt} [/INST]",
    "STOP_SEQUENCES": "</s>,User:",
    "END_ID": "2",
    "MAX_SEQUENCE_LENGTH": "4096",
    "WORLD_SIZE": "4",
    "COG_MAX_CONCURRENCY": "100",
    "MAX_PREDICTIONS": "512",
    "IGNORE_UNKNOWN_INPUTS": "true",
    "MAX_BODY_BYTES": "1048576",
    "EVENT_KEEP_ALIVE": "60",
    "MAX_CONNECTIONS": "20000",
    "ALLOWED_HOSTS": "chat.example.com,.internal",
    "CORS_ORIGINS": "https://app.example.com,http://localhost:3000",
    "WEBHOOK_ALLOW": "http://127.0.0.1:8000,https://hooks.internal",
    "WEBHOOK_AUTH_TOKEN": "s3cret",
    "KEEP_PREDICTIONS": "100",
    "KEEP_PREDICTIONS_SECONDS": "600",
    "ALLOW_SHUTDOWN": "true",
    "WEB_PAGE": "false",
    "LOG_PERFORMANCE_METRICS": "true",
    "LOG_PROMPTS": "true",
    "SERVER": "cog",
    "SETUP_TIMEOUT": "1800",
    "ENGINE_START_TIMEOUT": "1200",
    "TRITON_HTTP_ADDRESS": "127.0.0.1:8000",
    "TRITON_GRPC_ADDRESS": "0.0.0.0:8001",
    "TRITON_METRICS_ADDRESS": "0.0.0.0:8002",
    "ENGINE_ENVIRONMENT": "MY_PLUGIN_PATH,MY_PLUGIN_LEVEL",
    "ALLOW_MODEL_CODE": "true",
    "RESPONSE_TIMEOUT": "300",
    "PROBE_TIMEOUT": "10",
    "SERVED_MODEL_NAME": "llama-3.1-8b",
    "ACCEPT_ANY_MODEL": "true",
    "API_KEYS": "alice s3cret,bob pa55word",
    "API_KEYS_FILE": "/run/secrets/keys",
    "COG_API_NEEDS_KEY": "true",
    "METRICS_NEED_KEY": "true",
    "KEY_MAX_REQUESTS": "32",
    "KEY_MAX_TOKENS": "100000",
    "TLS_CERTIFICATE": "/run/secrets/tls.crt",
    "TLS_KEY": "/run/secrets/tls.key",
    "LORA_FOLDER": "/models/adapters",
    "OPERATOR_KEY": "s3cret",
    "SHARE_PREFIX_CACHE": "true",
    "HOSTS_ADDRESS": "10.0.0.1:5700",
    "HOSTS_SECRET": "0123456789abcdef",
    "HOSTS_SECRET_FILE": "/run/secrets/hosts",
    "HOSTS_TIMEOUT": "600",
    "MPI_HOSTS": "cluster",
    "DRAIN_SECONDS": "60",
}
"""Of every variable of the runner: a value that somebody may want, and not its default."""


def allowed_values(field: FieldInfo) -> str:
    """What it may hold, in words."""
    annotation: Any = field.annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    kind = kinds[0] if kinds and get_origin(annotation) is not Literal else annotation
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return " or ".join(f"`{name}`" for name in get_args(kind))
    if kind not in _NUMBERS:
        return _KINDS[kind]
    limits = [
        f"{words} {getattr(one, name)}"
        for one in field.metadata
        for limit, name, words in _LIMITS
        if isinstance(one, limit)
    ]
    return ", ".join([_NUMBERS[kind], *limits])
