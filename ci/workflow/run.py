"""The jobs of one workflow, one after another, for one event."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from ci.workflow.actions import ACTIONS, StepFailed, composite
from ci.workflow.expressions import evaluate, fill, functions, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHELLS = {
    "": ["bash", "-e"],  # outside containers, when the step has none
    "sh": ["sh", "-e"],
    "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"],
}
_TAIL = 4000  # characters of a failed step's output that are shown
# A runner has nothing more of this machine's environment.
_KEPT = ("PATH", "HOME", "LANG", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
_KEPT_PREFIXES = ("PIP_", "UV_", "NIX_", "npm_config_", "NODE_")


class WorkflowProblem(Exception):
    """A workflow that cannot be run as written."""


@dataclass
class Run:
    """One run of a workflow, and what its jobs share."""

    workflow: dict[str, Any]
    folder: Path  # of this run: workspaces, artifacts, programs
    repository: Path  # the bare repository that is cloned
    commit: str
    environments: Path  # the checkout whose .venv and .build are used
    github: dict[str, Any]
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    only: dict[str, list[Any]] = field(default_factory=dict)  # of a matrix: the values that are run
    instead: dict[str, str] = field(default_factory=dict)  # commands that something else replaces
    executed: set[tuple[str, str]] = field(default_factory=set)  # (shell, text) of steps
    results: dict[str, Any] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.artifacts.mkdir(parents=True)
        self.programs.mkdir()

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        # BaseLoader: `on` is a word, as on GitHub; numbers become text, which is what steps get.
        document: dict[str, Any] = yaml.load(path.read_text(), yaml.BaseLoader)  # noqa: S506
        return document

    def all(self) -> dict[str, Any]:
        """Run every job when its time comes; `results` by job: result and outputs."""
        waiting = dict(self.workflow["jobs"])
        while waiting:
            ready = [
                name for name, job in waiting.items() if not set(_words(job.get("needs"))) & waiting.keys()
            ]
            if not ready:
                raise WorkflowProblem(f"jobs wait for each other: {', '.join(waiting)}")
            for name in ready:
                self.results[name] = self._job(name, waiting.pop(name))
                print(f"job {name}: {self.results[name]['result']}", file=sys.stderr)
        return self.results

    def _job(self, name: str, definition: dict[str, Any]) -> dict[str, Any]:
        needs = {need: self.results[need] for need in _words(definition.get("needs"))}
        bad = {result["result"] for result in needs.values()} - {"success"}
        status = _status("failure" if bad & {"failure"} else "skipped" if bad else "success")
        contexts = {"github": self.github, "vars": self.variables, "needs": needs}
        known = {**functions(self.repository), **status}
        if not _holds(definition.get("if"), contexts, known):
            return {"result": "skipped", "outputs": {}}
        outputs: dict[str, Any] = {}
        result = "success"
        for index, matrix in enumerate(self._matrix(definition, contexts, known)):
            job = Job(
                self, name, definition, {**contexts, "matrix": matrix, "strategy": {"job-index": index}}
            )
            try:
                outputs |= job.steps()
            except StepFailed as failed:
                print(f"{name} {matrix or ''}: {failed}", file=sys.stderr)
                result = "failure"
        return {"result": result, "outputs": outputs}

    def _matrix(
        self, definition: dict[str, Any], contexts: dict[str, Any], known: dict[str, Any]
    ) -> Iterator[Any]:
        matrix = {**definition.get("strategy", {}).get("matrix", {})}
        included = matrix.pop("include", [])
        lists = {
            key: fill(values, contexts, known) if isinstance(values, str) else values
            for key, values in matrix.items()
        }
        made = [dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())]
        rows = [*(made if lists else []), *included] or [{}]
        chosen = [row for row in rows if all(row[key] in self.only.get(key, [row[key]]) for key in row)]
        if len(chosen) < len(rows):
            print(f"rows of the matrix that are run: {len(chosen)} of {len(rows)}", file=sys.stderr)
        yield from chosen


class Job:
    """One row of a job's matrix, in a workspace of its own."""

    def __init__(self, run: Run, name: str, definition: dict[str, Any], contexts: dict[str, Any]) -> None:
        self.run = run
        self.name = name
        self.definition = definition
        self.permissions = definition.get("permissions", run.workflow.get("permissions", {}))
        self.contexts = {**contexts, "vars": run.variables, "secrets": run.secrets, "steps": {}, "env": {}}
        self.workspace = run.folder / f"{name}-{contexts['strategy']['job-index']}"
        self.failed = False
        self._exported: dict[str, str] = {}  # by the steps so far, for later ones
        self._fill_environment(definition.get("env", {}))

    def steps(self) -> dict[str, Any]:
        """Run all steps; return the job's outputs. Raises StepFailed with the first that failed."""
        problem: StepFailed | None = None
        for step in self.definition["steps"]:
            try:
                self._step(step)
            except StepFailed as failed:
                problem, self.failed = problem or failed, True
        if problem:
            raise problem
        return {name: self._filled(value) for name, value in self.definition.get("outputs", {}).items()}

    def _step(self, step: dict[str, Any], inputs: dict[str, Any] | None = None) -> None:
        if inputs is not None:
            self.contexts["inputs"] = inputs
        outcome = {"outcome": "skipped", "outputs": {}}
        self.contexts["steps"][step.get("id", "")] = outcome
        if not _holds(step.get("if"), self.contexts, self._functions()):
            return
        outcome["outcome"] = "success"
        kept = dict(self.contexts["env"])
        try:
            self._fill_environment(step.get("env", {}))
            if "run" in step:
                outcome["outputs"] = self._execute(step)
            else:
                self._use(step)
        except StepFailed:
            outcome["outcome"] = "failure"
            if step.get("continue-on-error") != "true":
                raise
        finally:
            self.contexts["env"] = {**kept, **self._exported}

    def _use(self, step: dict[str, Any]) -> None:
        name, options = (
            step["uses"],
            {key: self._filled(value) for key, value in step.get("with", {}).items()},
        )
        if name.startswith("./"):
            definition = composite(self, name)
            defaults = {key: value.get("default", "") for key, value in definition.get("inputs", {}).items()}
            for inner in definition["runs"]["steps"]:
                if "run" in inner and "shell" not in inner:
                    raise WorkflowProblem(f"{name}: GitHub requires a shell in every step of an action")
                self._step(inner, {**defaults, **options})
            return
        action = name.partition("@")[0]
        if action not in ACTIONS:
            raise WorkflowProblem(f"{name} has no stand-in: add one to ci/workflow/actions.py")
        ACTIONS[action](self, options)

    def _execute(self, step: dict[str, Any]) -> dict[str, str]:
        """Run the text of a step; return its outputs."""
        shell = step.get("shell", "sh" if "container" in self.definition else "")
        text = shown(self._filled(step["run"]))
        self.run.executed.add((shell, step["run"]))
        script, output, exported = (self.run.folder / name for name in ("step", "output", "exported"))
        script.write_text(self.run.instead.get(text.strip(), text))
        output.write_text("")
        exported.write_text("")
        environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if name in _KEPT or name.startswith(_KEPT_PREFIXES)
            },
            **self.run.environment,
            **{name: shown(value) for name, value in self.contexts["env"].items()},
            **{f"GITHUB_{name.upper()}": shown(value) for name, value in self.run.github.items()},
            "GITHUB_ACTIONS": "true",
            "CI": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_ENV": str(exported),
            "GITHUB_STEP_SUMMARY": str(self.run.folder / "summary"),
            "RUNNER_TEMP": str(self.run.folder),
        }
        environment["PATH"] = f"{self.run.programs}:{environment['PATH']}"
        self.workspace.mkdir(exist_ok=True)
        done = subprocess.run(
            [*SHELLS[shell], str(script)],
            cwd=self.workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        told = [line for line in done.stdout.splitlines() if line.startswith("::")]
        print(
            "\n".join([f"  {self.name}: {step.get('name', text.strip().splitlines()[0])}", *told]),
            file=sys.stderr,
        )
        if done.returncode:
            where = shlex.join(SHELLS[shell])
            raise StepFailed(
                f"{text.strip()}\n({where}) ended with {done.returncode}:\n{done.stdout[-_TAIL:]}"
            )
        self._exported |= _assigned(exported)
        return _assigned(output)

    def _fill_environment(self, added: dict[str, str]) -> None:
        self.contexts["env"] = {
            **self.contexts["env"],
            **{name: shown(self._filled(value)) for name, value in added.items()},
        }

    def _filled(self, text: str) -> Any:
        return fill(text, self.contexts, self._functions())

    def _functions(self) -> dict[str, Callable[..., Any]]:
        return {**functions(self.workspace), **_status("failure" if self.failed else "success")}


def _assigned(file: Path) -> dict[str, str]:
    """NAME=VALUE, one per line."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def _holds(condition: str | None, contexts: dict[str, Any], known: dict[str, Callable[..., Any]]) -> bool:
    """Whether a job or step is run; if it does not mention failures, only when there was none."""
    text = (condition or "true").strip().removeprefix("${{").removesuffix("}}")
    if not any(f"{name}(" in text for name in ("always", "success", "failure", "cancelled")):
        text = f"success() && ({text})"
    return bool(evaluate(text, contexts, known))


def _status(status: str) -> dict[str, Callable[..., Any]]:
    return {
        "always": lambda: True,
        "cancelled": lambda: False,
        "success": lambda: status == "success",
        "failure": lambda: status == "failure",
    }


def _words(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else value or []
