"""The runner's settings: environment variables, read once at set-up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from runner.engines.hosts.settings import LEAST_SECRET
from runner.setting_files import section_of, text_of
from runner.triton.address import Address
from shared.artifact import CONFIG
from shared.errors import EngineArchiveMalformed, SettingInvalid
from shared.home import home
from shared.prompt_template import checked
from shared.validation import wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

_Seconds = Annotated[float, Field(le=10**9, allow_inf_nan=False)]  # no thread can wait ten times that
_Address = Annotated[Address | None, BeforeValidator(Address.parse)]
_MAX_PREDICTIONS = 2048  # engines queue what they cannot run yet
COG_SLOTS = 80
"""The value of COG_MAX_CONCURRENCY with SERVER=cog, unless it is set."""


class Settings(BaseModel):
    """One field per environment variable (its alias); an empty variable counts as unset."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    weights: str | None = Field(
        None,
        alias="COG_WEIGHTS",
        description="URL or path of an engine.tar, or a directory that holds an unpacked one; for vLLM also"
        " the name of a model on the hub (`owner/name@revision`), a folder with a model, a config, or a model"
        " repository of Triton's vLLM backend",
    )
    engine_dir: Path | None = Field(
        None,
        alias="ENGINE_DIR",
        description="directory of an unpacked engine; used when neither COG_WEIGHTS nor `instantiate.weights`"
        " in COG_TRITON_CONFIG is set",
    )
    config_source: str | None = Field(
        None,
        alias="COG_TRITON_CONFIG",
        description="YAML file, or data: URL of one, whose section `instantiate` takes precedence over that"
        " of the config in engine.tar; images of `cog-triton instantiate` have the server's"
        " arguments there",
    )
    image_sm: int | None = Field(
        None,
        alias="COG_TRITON_SM",
        description="SM whose device code is in the image; no other GPU can run it; set by the image",
    )
    weights_cache: Path = Field(
        home() / ".cache/cog-triton/weights",
        alias="WEIGHTS_CACHE",
        description="where downloaded engines are kept for the next start",
    )
    compile_cache: Path = Field(
        home() / ".cache/cog-triton/compiled",
        alias="COMPILE_CACHE",
        description="where what vLLM compiles is kept for the next start",
    )
    max_engine_bytes: int = Field(
        1 << 40, gt=0, alias="MAX_ENGINE_BYTES", description="an archive that unpacks to more is refused"
    )
    system_prompt: str | None = Field(
        None,
        alias="SYSTEM_PROMPT",
        description="system prompt of conversations that begin with none, and of predictions that send a"
        " prompt without one, if their template has a place for it",
    )
    prompt_template: Annotated[str, AfterValidator(checked)] | None = Field(
        None,
        alias="PROMPT_TEMPLATE",
        description="prompt template of predictions of Cog's API that send a prompt without one",
    )
    stop_sequences: str | None = Field(
        None, alias="STOP_SEQUENCES", description="stop sequences of predictions that send none"
    )
    end_id: int | None = Field(
        None,
        ge=-1,
        alias="END_ID",
        description="the token that ends a text, instead of the model's own; -1: none",
    )
    max_sequence_length: int | None = Field(
        None,
        ge=2,
        alias="MAX_SEQUENCE_LENGTH",
        description="the most tokens of prompt and answer together, where the engine itself accepts more",
    )
    world_size: int | None = Field(
        None,
        ge=1,
        alias="WORLD_SIZE",
        description="processes that serve the engine together; must agree with what the engine says",
    )
    cog_slots: int = Field(
        1,
        ge=1,
        alias="COG_MAX_CONCURRENCY",
        description=f"predictions that Cog's own server accepts at the same time; not set: {COG_SLOTS} with"
        " SERVER=cog, and 1 with Cog alone",
    )
    max_predictions: int | None = Field(
        None,
        ge=1,
        alias="MAX_PREDICTIONS",
        description="predictions that may run or wait at the same time; more are refused with E2106, or"
        " wait if their API key has less than an equal share, and one request that alone has more with E1308;"
        " not set: 2048, or with SERVER=cog four fifths"
        " of COG_MAX_CONCURRENCY, beyond which Cog answers 409",
    )
    ignore_unknown_inputs: bool = Field(
        False,
        alias="IGNORE_UNKNOWN_INPUTS",
        description="drop inputs that do not exist, as Cog does, instead of refusing them",
    )
    max_body_bytes: int = Field(
        16 << 20, ge=1, alias="MAX_BODY_BYTES", description="a request with a larger body is refused (E1320)"
    )
    event_keep_alive: _Seconds = Field(
        15,
        ge=0,
        alias="EVENT_KEEP_ALIVE",
        description="seconds without an event after which an event stream gets a comment, which clients"
        " ignore, so that no proxy gives it up; 0: none",
    )
    max_connections: int = Field(
        8192,
        ge=1,
        alias="MAX_CONNECTIONS",
        description="open connections; more are refused (E1327), as are those beyond the limit on open files",
    )
    webhook_allow: str = Field(
        "",
        alias="WEBHOOK_ALLOW",
        description="origins, separated by commas, that webhooks and outputs may go to, wherever they are,"
        " such as http://127.0.0.1:8000; others must have public addresses",
    )
    webhook_auth_token: SecretStr | None = Field(
        None,
        alias="WEBHOOK_AUTH_TOKEN",
        description="sent as a bearer token with what goes to WEBHOOK_ALLOW",
    )
    allowed_hosts: str = Field(
        "",
        alias="ALLOWED_HOSTS",
        description="names besides localhost by which clients may reach the runner, separated by commas;"
        " `.example.com` also allows the names below it, `*` all names. Others get 421 and E1346, except"
        " at /health/. Only without API keys. Not set: localhost alone if the runner listens on loopback,"
        " otherwise all names",
    )
    cors_origins: str = Field(
        "",
        alias="CORS_ORIGINS",
        description="origins, separated by commas, whose web pages may call the runner from a browser; not"
        " set: only the runner's own page may",
    )
    keep_predictions: int = Field(
        1000,
        ge=0,
        alias="KEEP_PREDICTIONS",
        description="how many ended predictions of `Prefer: respond-async` can be looked up",
    )
    keep_seconds: _Seconds = Field(
        3600,
        ge=0,
        alias="KEEP_PREDICTIONS_SECONDS",
        description="seconds for which ended predictions of `Prefer: respond-async` can be looked up",
    )
    allow_shutdown: bool = Field(
        False, alias="ALLOW_SHUTDOWN", description="let any client end the runner with POST /shutdown"
    )
    web_page: bool = Field(
        True,
        alias="WEB_PAGE",
        description="answer browsers at / with a page to try prompts and watch the runner; false: with"
        " Cog's JSON, like everybody else",
    )
    log_performance_metrics: bool = Field(
        False, alias="LOG_PERFORMANCE_METRICS", description="log the speed of every prediction that succeeds"
    )
    log_prompts: bool = Field(
        False,
        alias="LOG_PROMPTS",
        description="log the formatted prompt of every prediction that is sent as text",
    )
    server: Literal["front", "cog"] = Field(
        "front", alias="SERVER", description="what answers HTTP: front, or cog for Cog's own server"
    )
    setup_timeout: _Seconds = Field(
        3600,
        gt=0,
        alias="SETUP_TIMEOUT",
        description="seconds that the whole set-up may take, including fetching the engine; after that the"
        " runner ends",
    )
    engine_start_timeout: _Seconds = Field(
        600, gt=0, alias="ENGINE_START_TIMEOUT", description="seconds that an engine may take to load"
    )
    triton_http_address: _Address = Field(
        None,
        alias="TRITON_HTTP_ADDRESS",
        description="`host:port` of Triton's own HTTP protocol, for curl and perf tools; not set: closed."
        " Clients need no key there",
    )
    triton_grpc_address: _Address = Field(
        None,
        alias="TRITON_GRPC_ADDRESS",
        description="`host:port` of Triton's gRPC protocol, for tritonclient and perf tools; not set: closed."
        " Clients need no key there",
    )
    triton_metrics_address: _Address = Field(
        None,
        alias="TRITON_METRICS_ADDRESS",
        description="`host:port` of Triton's own metrics, which /metrics also has; not set: closed",
    )
    engine_environment: str = Field(
        "",
        alias="ENGINE_ENVIRONMENT",
        description="names of variables, separated by commas, that Triton and the engine get in addition to"
        " those of CUDA, MPI and the engines themselves",
    )
    allow_model_code: bool = Field(
        False,
        alias="ALLOW_MODEL_CODE",
        description="let vLLM's engine arguments name code to run: `trust_remote_code`, `worker_cls`, ...;"
        " also read by the builder. It also permits loading from engine.tar what vLLM has compiled",
    )
    response_timeout: _Seconds = Field(
        120,
        gt=0,
        alias="RESPONSE_TIMEOUT",
        description="seconds without a token, including those spent waiting in the engine, after which a"
        " prediction fails (E2101)",
    )
    probe_timeout: _Seconds = Field(
        5,
        gt=0,
        alias="PROBE_TIMEOUT",
        description="seconds without any token after which the engine counts as hung (UNHEALTHY)",
    )
    served_model_name: str | None = Field(
        None,
        alias="SERVED_MODEL_NAME",
        description="name of the model in OpenAI's API; not set: the name in the engine's manifest",
    )
    accept_any_model: bool = Field(
        False,
        alias="ACCEPT_ANY_MODEL",
        description="accept requests of OpenAI's API whatever model they name",
    )
    api_keys: SecretStr | None = Field(
        None,
        alias="API_KEYS",
        description="keys of OpenAI's API, separated by commas, each `KEY` or `NAME KEY`, without comments;"
        " if neither this nor API_KEYS_FILE is set, no key is needed",
    )
    api_keys_file: Path | None = Field(
        None,
        alias="API_KEYS_FILE",
        description="file with keys, or comments (`#`), one per line; it is read again when it changes",
    )
    cog_api_needs_key: bool = Field(
        False, alias="COG_API_NEEDS_KEY", description="predictions of Cog's API need one of the keys too"
    )
    metrics_need_key: bool = Field(
        False, alias="METRICS_NEED_KEY", description="/metrics needs one of the keys too"
    )
    key_max_requests: int | None = Field(
        None,
        ge=1,
        alias="KEY_MAX_REQUESTS",
        description="predictions of one key that may run or wait at the same time; more are refused with"
        " E1305, one request that alone has more with E1308",
    )
    key_max_tokens: int | None = Field(
        None,
        ge=1,
        alias="KEY_MAX_TOKENS",
        description="tokens of one key's predictions at the same time, prompts and the most that was asked"
        " for; more are refused with E1305, one request that alone has more with E1308",
    )
    tls_certificate: Path | None = Field(
        None,
        alias="TLS_CERTIFICATE",
        description="PEM file of the certificate and its chain; with TLS_KEY: HTTPS instead of HTTP",
    )
    tls_key: Path | None = Field(
        None, alias="TLS_KEY", description="PEM file of the private key of TLS_CERTIFICATE"
    )
    lora_folder: Path | None = Field(
        None,
        alias="LORA_FOLDER",
        description="folder of LoRA adapters, each in a folder of its own: those directly in it are served"
        " from the start, each by its folder's name; only vLLM with `enable_lora`",
    )
    operator_key: SecretStr | None = Field(
        None,
        alias="OPERATOR_KEY",
        description="key of /v1/load_lora_adapter and /v1/unload_lora_adapter, as `KEY` or `NAME KEY`; not"
        " set: they do not exist",
    )
    share_prefix_cache: bool = Field(
        False,
        alias="SHARE_PREFIX_CACHE",
        description="let all API keys use what the engine has kept of others' prompts, if it keeps them"
        " apart (vLLM): timing can then reveal what others have sent",
    )
    hosts_address: _Address = Field(
        None,
        alias="HOSTS_ADDRESS",
        description="for an engine on several hosts: `host:port` of the first, one of its own addresses, at"
        " which the others join it (`cog-triton join`); not set: one host",
    )
    hosts_secret: SecretStr | None = Field(
        None,
        alias="HOSTS_SECRET",
        description="secret with which the hosts of an engine recognise each other, the same on all: at least"
        f" {LEAST_SECRET} characters",
    )
    hosts_secret_file: Path | None = Field(
        None, alias="HOSTS_SECRET_FILE", description="file with HOSTS_SECRET, instead of the variable"
    )
    hosts_timeout: _Seconds = Field(
        300,
        gt=0,
        alias="HOSTS_TIMEOUT",
        description="seconds that the first host waits for the others; part of ENGINE_START_TIMEOUT",
    )
    mpi_hosts: str | None = Field(
        None,
        alias="MPI_HOSTS",
        description="TensorRT-LLM, instead of hosts that join: path of mpirun's host file, or `cluster` if"
        " mpirun finds its hosts itself, as in a Slurm allocation",
    )
    drain_seconds: _Seconds = Field(
        25,
        ge=0,
        alias="DRAIN_SECONDS",
        description="seconds that predictions may continue after SIGTERM; new ones get E2108 meanwhile. A"
        " container's grace period must be at least 20 s longer",
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read the variables. Raises SettingInvalid for the first invalid one."""
        for field in cls.model_fields.values():
            name = str(field.alias)
            try:
                environment.get(name, "").encode()
            except UnicodeEncodeError:  # Triton, clients and logs are told paths and names
                shown = "***" if field.annotation == SecretStr | None else environment[name]
                raise SettingInvalid(setting=name, value=shown, reason="it is not UTF-8") from None
        try:
            return cls.model_validate({name: value for name, value in environment.items() if value})
        except ValidationError as invalid:
            first = invalid.errors()[0]
            raise SettingInvalid(
                setting=first["loc"][0],
                value=first["input"],
                reason=f"it {wanted(first)}",
            ) from None

    @property
    def admitted_at_once(self) -> int:
        """Predictions that the front lets run or wait at the same time."""
        return self.max_predictions or _MAX_PREDICTIONS

    @property
    def admitted(self) -> int:
        """Predictions that may run or wait at the same time."""
        return self.max_predictions or max(1, self.cog_slots * 4 // 5)

    @property
    def triton_addresses(self) -> dict[str, Address]:
        """The addresses at which settings open Triton's own protocols, by the setting."""
        names = ("triton_http_address", "triton_grpc_address", "triton_metrics_address")
        addresses = {name.upper(): getattr(self, name) for name in names}
        return {name: address for name, address in addresses.items() if address is not None}

    @property
    def engine_variables(self) -> list[str]:
        """The names in `engine_environment`."""
        return [name.strip() for name in self.engine_environment.split(",")]

    @property
    def several_hosts(self) -> bool:
        """Whether other hosts may serve part of the engine."""
        return self.hosts_address is not None

    def secret_of_hosts(self) -> bytes:
        """The secret with which the hosts of an engine recognise each other.

        Raises SettingInvalid when it is short or missing.
        """
        setting, what = "HOSTS_SECRET", "it"
        secret = self.hosts_secret.get_secret_value() if self.hosts_secret else ""
        shown = "***" if secret else None
        if self.hosts_secret_file is not None:
            setting, shown = "HOSTS_SECRET_FILE", str(self.hosts_secret_file)
            secret, what = text_of(self.hosts_secret_file, setting).strip(), "the secret in it"
        if len(secret) < LEAST_SECRET:
            reason = f"{what} must have at least {LEAST_SECRET} characters"
            raise SettingInvalid(setting=setting, value=shown, reason=reason)
        return secret.encode()

    def instantiate(self, engine_config: Mapping[str, Any]) -> dict[str, Any]:
        """The section `instantiate`: what the file of COG_TRITON_CONFIG sets, else what engine.tar does.

        Raises SettingInvalid for a file that cannot be read or is not valid, ConfigNotYaml and
        ConfigDuplicateKey for one that is not YAML, EngineArchiveMalformed for an engine's section that is
        not an object.
        """
        return _object(engine_config, "instantiate") | section_of(self.config_source)

    def server_arguments(self, engine_config: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of the model `tensorrt_llm`, from that section. Raises as `instantiate` does."""
        section: Any = self.instantiate(engine_config)
        for key in ("server", "tensorrt_llm", "args"):
            section = _object(section, key)
        return dict(section)


def _object(section: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What is there under that key. Raises EngineArchiveMalformed; other sources are checked before."""
    found = section.get(key) or {}
    if not isinstance(found, dict):
        raise EngineArchiveMalformed(reason=f"{key} in its {CONFIG} must be an object")
    return found


PATHS = tuple(
    str(one.alias) for one in Settings.model_fields.values() if one.annotation in (Path, Path | None)
)
"""The variables whose values are paths, and nothing else."""
