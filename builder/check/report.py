"""The check of a config: what is wrong with it, before a byte of the model is fetched."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from builder.check.model import check_folder, models_in
from builder.check.server import check_server, chunks_prompts
from builder.check.vllm import check_vllm
from builder.engines.tensorrt_llm.planning import calls
from builder.findings import Finding, Findings, Severity
from shared.config import CogTRTLLMConfig, OfficialConfig, TensorRTLLMConfig, VLLMConfig
from shared.config.document import Document, Position, parse
from shared.config.load import is_for_an_image, validate, validate_for_an_image
from shared.config.problems import dotted
from shared.errors import (
    CogTritonError,
    ConfigCheckFailed,
    ConfigDuplicateKey,
    ConfigInvalid,
    ConfigNotYaml,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.engines.tensorrt_llm.call import Call
    from shared.config import AnyConfig, BuildConfig, Instantiate
    from shared.config.document import Place

_MAX_NAMED = 20
_NOTHING = Document({}, {(): Position(1, 1)})


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding, as shown; line and column count from 1."""

    file: str
    line: int
    column: int
    severity: Severity
    code: str
    name: str
    key: str  # build.args.max_batch_size
    what: str
    fix: str

    def __str__(self) -> str:
        """The form that editors and compilers share."""
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}: {self.severity}: {self.code} {self.name}: {self.what} {self.fix}"


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, in the order of the text; `config` is None if it could not be read."""

    source: str
    diagnostics: tuple[Diagnostic, ...]
    config: AnyConfig | None = None
    calls: tuple[Call, ...] = ()  # of a TensorRT-LLM build
    unreadable: CogTritonError | None = None  # why nothing but that was checked
    folder: Path | None = None  # where the paths in the config start
    document: Document = _NOTHING  # where findings have their places

    @property
    def errors(self) -> list[Diagnostic]:
        """The findings that make a build impossible."""
        return [one for one in self.diagnostics if one.severity is Severity.ERROR]

    def build_config(self) -> BuildConfig | CogTRTLLMConfig:
        """The config to build. Raises ConfigUnreachable, ConfigTooLarge, ConfigNotYaml and
        ConfigDuplicateKey, ConfigInvalid for its form, and ConfigCheckFailed for what it asks.
        """
        if self.unreadable:
            raise self.unreadable
        if self.errors:
            source = self.errors[0].file  # an official model has two
            reasons = [
                f"{'' if one.file == source else one.file + ', '}line {one.line}:"
                f" {one.code} {one.what.rstrip('.')}"
                for one in self.errors
            ]
            more = [f"and {len(reasons) - _MAX_NAMED} more"] if len(reasons) > _MAX_NAMED else []
            kind = ConfigInvalid if self.config is None else ConfigCheckFailed
            raise kind(source=source, reason="; ".join(reasons[:_MAX_NAMED] + more))
        if self.config is None:
            reason = "it only has the section `instantiate`: there is nothing to build"
            raise ConfigInvalid(source=self.source, reason=reason)
        assert not isinstance(self.config, OfficialConfig)
        return self.config

    def with_findings(self, findings: Findings) -> Report:
        """The same report, with findings that do not come from the text, but from what it names."""
        more = [_placed(one, self.document, self.source) for one in findings.found]
        return replace(self, diagnostics=_sorted([*self.diagnostics, *more]))

    def as_json(self) -> dict[str, Any]:
        """For programs: `{"source", "diagnostics": [...]}`."""
        return {"source": self.source, "diagnostics": [asdict(one) for one in self.diagnostics]}


def check(
    text: str,
    source: str,
    gpus: int | None = None,
    folder: Path | None = None,
    served: Instantiate | None = None,
) -> Report:
    """Check the config `text`; `source` is how diagnostics name it, `folder` where its paths start.

    `served` is how the engine is served if another file says that. Raises nothing that `text` can cause.
    """
    try:
        document = parse(text, source)
    except (ConfigNotYaml, ConfigDuplicateKey) as error:
        return unreadable(error, source)
    findings = Findings()
    if is_for_an_image(document):
        return _check_for_an_image(document, source, findings)
    config, problems = validate(document)
    for problem in problems:
        findings.error(problem.place, problem.error)
    wrong = [problem.place for problem in problems]
    looked_at = _without(document, wrong) if config is None else config
    found: Sequence[Call] = ()
    if isinstance(looked_at, CogTRTLLMConfig | TensorRTLLMConfig):
        chunked = chunks_prompts(served or looked_at.instantiate)
        found = calls(looked_at, findings, gpus, chunked=chunked, wrong=wrong)
    if isinstance(looked_at, VLLMConfig):
        check_vllm(looked_at, findings)
    if looked_at is not None:
        others = not isinstance(looked_at, CogTRTLLMConfig | OfficialConfig | TensorRTLLMConfig)
        check_server(looked_at.instantiate, findings, only_decoupled=others)
    if looked_at is not None and not isinstance(looked_at, OfficialConfig):
        for place, model in models_in(looked_at, folder):
            check_folder(place, model, findings)
    diagnostics = [_placed(one, document, source) for one in findings.found]
    return Report(source, _sorted(diagnostics), config, tuple(found), folder=folder, document=document)


def _check_for_an_image(document: Document, source: str, findings: Findings) -> Report:
    config, problems = validate_for_an_image(document)
    for problem in problems:
        findings.error(problem.place, problem.error)
    if config is not None:
        check_server(config.instantiate, findings, only_decoupled=False)
    return Report(source, _sorted([_placed(one, document, source) for one in findings.found]))


def unreadable(error: CogTritonError, source: str) -> Report:
    """The report on a config that cannot be read, or is not YAML."""
    found_at = error.details.get("position")
    position = found_at if isinstance(found_at, Position) else Position(1, 1)
    finding = Finding(Severity.ERROR, (), error)
    return Report(source, (_diagnostic(finding, source, *position),), unreadable=error)


def _without(document: Document, places: Sequence[Place]) -> AnyConfig | None:
    """The config without what is wrong at `places`, so that the rest is checked in the same run; None if it
    cannot be understood without that.
    """
    data = _pruned(document.data, set(places))
    return validate(Document(data, {(): document.positions[()]}))[0]


def _pruned(value: Any, places: set[Place], here: Place = ()) -> Any:
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if (*here, key) not in places}
        return {key: _pruned(one, places, (*here, key)) for key, one in kept.items()}
    if isinstance(value, list):
        items = [(one, (*here, index)) for index, one in enumerate(value)]
        return [_pruned(one, places, place) for one, place in items if place not in places]
    return value


def _placed(finding: Finding, document: Document, source: str) -> Diagnostic:
    return _diagnostic(finding, source, *document.position(finding.place))


def _diagnostic(finding: Finding, source: str, line: int, column: int) -> Diagnostic:
    error: CogTritonError = finding.error
    what, fix = (
        " ".join(template.format(**error.details).split()) for template in (error.message, error.remedy)
    )
    return Diagnostic(
        source, line, column, finding.severity, error.code, error.name(), dotted(finding.place), what, fix
    )


def _sorted(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(
        sorted(set(diagnostics), key=lambda one: (one.line, one.column, one.code, one.key, one.what))
    )
