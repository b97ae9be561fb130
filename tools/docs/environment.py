"""docs/environment.md, made from the runner's settings."""

from __future__ import annotations

from runner.settings import Settings
from tools.docs.environment_values import EXAMPLES, allowed_values

INTRO = """\
# Environment

Made from `runner/settings.py` by `make docs`; the other variables are listed in
`tools/docs/environment.py`. An empty variable counts as unset. An invalid value is E4002, which ends the
runner at its start; where only the set-up reads the value, the set-up fails instead.

For what a prediction can also send, the order is: the prediction's input, the environment, the `instantiate`
section of the file in COG_TRITON_CONFIG, that of the config in engine.tar, the default.

## The runner
"""

# Variables that other programs of ours, or libraries below them, read.
OTHERS = {
    "The builder": [
        ("BUILDER_OUTPUT_DIR", "/src", "directory that engine.tar is written to"),
    ],
    "Without effect": [
        ("PAD_ID", "", "from the original cog-triton; there is no beam search here, so nothing is padded"),
        (
            "TRITONSERVER_BACKEND_DIR",
            "",
            "from the original cog-triton; the only backend here is the engine bridge, below COG_TRITON_HOME",
        ),
    ],
    "The runner and the builder": [
        ("LOG_LEVEL", "info", "debug, info, warning, error or critical"),
        ("NO_COLOR", "", "set to anything: no colours at a terminal"),
        ("COG_TRITON_HOME", ".build", "where Triton, the engine bridge and the engines' environments are"),
        ("PORT", "5000", "port of the HTTP API; `cog-triton serve` has `--port` instead"),
        ("TMPDIR", "/tmp", "where a runner has its sockets, and a build its files until it is done"),  # noqa: S108 - a default, told to readers
        (
            "SSL_CERT_FILE",
            "the system's",
            "certificates of the authorities that are trusted, in one PEM file",
        ),
        (
            "HTTPS_PROXY",
            "",
            "proxy for what is fetched; HTTP_PROXY, ALL_PROXY and NO_PROXY apply too; webhooks use none",
        ),
        ("HF_TOKEN", "", "token for private and gated models; the builder's `hf_token` input wins"),
        ("HF_ENDPOINT", "the hub", "another hub, or a mirror of it"),
        (
            "HF_HOME",
            "~/.cache/huggingface",
            "where downloaded models are kept, in `hub`, unless HF_HUB_CACHE names another folder",
        ),
        (
            "HF_HUB_DOWNLOAD_TIMEOUT",
            "10",
            "seconds, at most 30, that the hub may take for the next bytes of a small file (large ones: 30)",
        ),
        ("HF_HUB_ETAG_TIMEOUT", "10", "seconds, at most 30, that the hub may take to describe a file"),
        ("HF_HUB_OFFLINE", "", "1: use only what has been downloaded already"),
    ],
}

# Those of the runner that the builder's server and its check of configs read too.
OF_THE_BUILDER_TOO = (
    "ALLOWED_HOSTS",
    "ALLOW_MODEL_CODE",
    "CORS_ORIGINS",
    "IGNORE_UNKNOWN_INPUTS",
    "KEEP_PREDICTIONS",
    "KEEP_PREDICTIONS_SECONDS",
    "MAX_BODY_BYTES",
    "EVENT_KEEP_ALIVE",
    "MAX_CONNECTIONS",
    "WEBHOOK_ALLOW",
    "WEBHOOK_AUTH_TOKEN",
)

HEADER = "| variable | meaning | values | default | example |\n|---|---|---|---|---|\n"
_OF_BOTH = (
    f"\nIt also reads these of the runner's: {', '.join(f'`{name}`' for name in OF_THE_BUILDER_TOO)}.\n"
)
OTHERS_HEADER = "| variable | default | meaning |\n|---|---|---|\n"


def page() -> str:
    """The text of docs/environment.md."""
    rows = [
        _row(
            f"`{field.alias}`",
            str(field.description),
            allowed_values(field),
            _shown(field.default),
            f"`{EXAMPLES[str(field.alias)]}`",
        )
        for field in Settings.model_fields.values()
    ]
    sections = [INTRO + "\n" + HEADER + "".join(rows)]
    sections += [
        f"## {title}\n\n{OTHERS_HEADER}"
        + "".join(_row(f"`{name}`", default, meaning) for name, default, meaning in others)
        + (_OF_BOTH if title == "The builder" else "")
        for title, others in OTHERS.items()
    ]
    return "\n".join(sections)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _shown(default: object) -> str:
    if default is None or default == "":
        return ""
    home = str(Settings.model_fields["weights_cache"].default.home())
    return f"`{str(default).lower() if isinstance(default, bool) else str(default).replace(home, '~')}`"
