"""Inputs, what predictions fail with, bodies, ids, paths and methods."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.conformance.conversation import EVENTS, FAILS, REFUSED, SHORT, add, asks, predicts
from tools.docs import cog_schema

if TYPE_CHECKING:
    from tests.support.conformance.conversation import Server
    from tests.support.conformance.transcript import Transcript

INPUTS = json.loads(cog_schema.rendered("runner"))["components"]["schemas"]["Input"]["properties"]

# --- every input: sent, left out, at its bounds, beyond them, of another type

_SAMPLE: dict[str, object] = {"string": "a", "integer": 3, "number": 0.5, "boolean": True}
_OTHERS: list[object] = ["a", 0.5, 3.0, True, None, [], 10**30]
_ALONE = {"messages"}


def _add_inputs() -> None:
    for input_name, declared in INPUTS.items():
        beside = {} if input_name in _ALONE else SHORT if input_name != "max_new_tokens" else {"prompt": "x"}
        values = [_SAMPLE[declared["type"]], *_OTHERS]
        for bound in ("minimum", "maximum"):
            if bound in declared:
                values += [declared[bound], declared[bound] + (-1 if bound == "minimum" else 1)]
        shown = dict.fromkeys(json.dumps(value) for value in values)
        for text in shown:
            is_absent = text == "null" and "default" not in declared
            inputs = {**beside, input_name: json.loads(text)}
            # Without a bound a prediction is as long as the engine can make it.
            inputs |= {"max_tokens": 3} if "max_tokens" not in inputs else {}
            add(
                f"{input_name} = {text}",
                "an input",
                *(["null for an input that has no default"] if is_absent else []),
                FAILS,
                REFUSED,
                speak=predicts(inputs),
            )


_add_inputs()

# --- predictions, and what they fail with

_FAILING: dict[str, dict[str, Any]] = {
    "no prompt": {},
    "a blank prompt": {"prompt": " "},
    "a prompt that is too long": {"prompt": "x " * 4097},
    "a template with another field": {"prompt": "x", "prompt_template": "{prompt.__class__}"},
    "a template without the prompt": {"prompt": "x", "prompt_template": "no place"},
    "a system prompt without a place": {"prompt": "x", "system_prompt": "y", "prompt_template": "{prompt}"},
    "no messages": {"messages": "[]"},
    "messages that are no JSON": {"messages": "x"},
    "messages without a template": {"messages": '[{"role": "user", "content": "x"}]'},
    "messages beside a prompt": {"prompt": "x", "messages": '[{"role": "user", "content": "x"}]'},
    "both names of min_tokens": {"prompt": "x", "min_tokens": 1, "min_new_tokens": 1},
    "both names of max_tokens": {"prompt": "x", "max_tokens": 1, "max_new_tokens": 2},
    "min_tokens above max_tokens": {"prompt": "x", "max_tokens": 1, "min_tokens": 2},
    "a seed below 0": {"prompt": "x", "seed": -1},
    "an engine that fails half-way": {"prompt": "<error>", "max_tokens": 10},
    "an engine that hangs": {"prompt": "<hang>"},
    "an engine that dies": {"prompt": "<crash>", "max_tokens": 60},
}
_SUCCEEDING: dict[str, dict[str, Any]] = {
    "a prediction": SHORT,
    "a stop sequence": {"prompt": "x", "max_tokens": 50, "stop_sequences": " 9,zzz"},
    "old names": {"prompt": "x", "max_new_tokens": 3, "min_new_tokens": 1, "top_k": -1},
    "a seed": {**SHORT, "seed": 7},
    "no text at all": {"prompt": "x", "max_tokens": 3, "stop_sequences": "0"},
}


def _add_predictions() -> None:
    for name, inputs in {**_SUCCEEDING, **_FAILING}.items():
        for form, headers in (("as JSON", None), ("as events", EVENTS)):
            group = FAILS if name in _FAILING else "a prediction that succeeds"

            def speak(
                server: Server, inputs: dict[str, Any] = inputs, headers: dict[str, str] | None = headers
            ) -> Transcript:
                found = server.predict(inputs, headers)
                server.wait_idle()
                return found

            add(f"{name} {form}", group, f"{group}, {form}", speak=speak)


_add_predictions()

# --- bodies

_BODIES: dict[str, Any] = {
    "no input": {},
    "inputs beside input": dict(SHORT),
    "another key": {"input": SHORT, "nonsense": 1},
    "input that is null": {"input": None},
    "input that is a number": {"input": 5},
    "input that is a list": {"input": [1]},
    "several wrong inputs": {"input": {"prompt": 1, "max_tokens": 0, "temperature": 9}},
    "a body that is a list": [],
    "an id that is a number": {"id": 5, "input": SHORT},
    "a webhook that is a number": {"webhook": 5, "input": SHORT},
    "a filter that is a text": {"webhook_events_filter": "start", "input": SHORT},
    "a filter of an unknown event": {"webhook_events_filter": ["nonsense"], "input": SHORT},
    "an empty filter": {"webhook_events_filter": [], "input": SHORT},
    "a filter that is null": {"webhook_events_filter": None, "input": SHORT},
    "a prefix for files": {"output_file_prefix": "http://127.0.0.1/x", "input": SHORT},
    "a prefix that is a number": {"output_file_prefix": 5, "input": SHORT},
    "fields of replicate": {"created_at": "2026-01-01", "logs": "", "status": "starting", "input": SHORT},
}
_RAW: dict[str, tuple[bytes, dict[str, str]]] = {
    "a body that is no JSON": (b"nonsense", {"content-type": "application/json"}),
    "a body that is cut": (b'{"input": {', {"content-type": "application/json"}),
    "a body that is null": (b"null", {"content-type": "application/json"}),
    "an empty body": (b"", {"content-type": "application/json"}),
    "a body of bytes": (b"\xff\xfe{}", {"content-type": "application/json"}),
    "a body that is said to be a text": (b'{"input": {"prompt": "x"}}', {"content-type": "text/plain"}),
    "a body without a Content-Type": (b'{"input": {"prompt": "x"}}', {}),
    "a kind with a charset": (
        json.dumps({"input": SHORT}).encode(),
        {"content-type": "application/json; charset=utf-8"},
    ),
    "a kind in capitals": (json.dumps({"input": SHORT}).encode(), {"content-type": "Application/JSON"}),
    "a kind of JSON": (json.dumps({"input": SHORT}).encode(), {"content-type": "application/x+json"}),
}


def _add_bodies() -> None:
    for name, body in _BODIES.items():
        for form, headers in (("", None), (" as events", EVENTS)):
            add(
                f"{name}{form}",
                name,
                REFUSED,
                FAILS,
                speak=asks("POST", "/predictions", json=body, headers=headers),
            )
    for name, (content, headers) in _RAW.items():
        add(
            name,
            REFUSED,
            speak=asks("POST", "/predictions", content=content, headers=headers),
        )
    for value in ("nonsense", 1, None, {"a": [1]}):
        add(
            f"an input that does not exist: {json.dumps(value)}",
            "an input that does not exist",
            speak=predicts({**SHORT, "max_tokenz": value}),
        )


_add_bodies()

# --- ids


def _add_ids() -> None:
    for name in ("../x", "a/b", "a\0b", "", "a" * 300, "ä", "a b", "a.b", ".."):
        add(
            f"the id {name[:20]!r}",
            "an invalid id",
            speak=predicts(SHORT, id=name),
        )
    for name in ("%2e%2e%2fx", "a%00b", "a" * 300, "%C3%A4", "a.b"):
        add(
            f"the id {name[:20]!r} in the path",
            "an invalid id",
            speak=asks("PUT", f"/predictions/{name}", json={"input": SHORT}),
        )


_add_ids()

# --- paths and methods


def _add_paths() -> None:
    paths = {
        "/predictions": ("GET", "DELETE", "PATCH", "OPTIONS", "HEAD", "PUT"),
        "/predictions/x": ("DELETE", "PATCH", "POST", "OPTIONS"),
        "/predictions/x/cancel": ("GET", "HEAD", "DELETE", "PUT", "OPTIONS"),
        "/predictions/": ("GET", "POST", "PUT"),
        "/predictions//cancel": ("POST",),
        "/predictions/x/y": ("GET", "POST"),
        "/": ("GET", "HEAD", "POST", "OPTIONS", "DELETE"),
        "/openapi.json": ("GET", "HEAD", "POST"),
        "/health-check": ("GET", "HEAD", "POST", "PUT"),
        "/health-check/": ("GET",),
        "/nowhere": ("GET", "POST", "OPTIONS"),
        "/docs": ("GET",),
        "/Predictions": ("POST",),
        "/trainings": ("GET", "POST"),
        "/trainings/x": ("GET", "PUT"),
        "/trainings/x/cancel": ("POST",),
        "/shutdown": ("GET",),
        "/health": ("GET",),
        "/health/live": ("GET",),
        "/health/ready": ("GET",),
        "/metrics": ("HEAD",),
        "/v1/models": ("GET",),
        "/version": ("GET",),
    }
    for path, methods in paths.items():
        for method in methods:
            body = {"json": {"input": SHORT}} if method in {"POST", "PUT"} else {}
            add(
                f"{method} {path}",
                path if not path.startswith("/trainings") else "/trainings",
                speak=asks(method, path, **body),
            )


_add_paths()
