"""The OpenAPI document that Cog's server reads from `.cog/openapi_schema.json`.

`cog build` makes it with its Go program; our images are not made by `cog build`, so it is made here from the
signature of `run`. Without it, the server refuses event streams and drops unknown inputs. The form is that of
Cog 0.23 (OpenAPI 3.0.2 with `x-order` and `x-cog-*` keys; architecture/02-schema.md in Cog's repository).
"""

from __future__ import annotations

import importlib
import inspect
import json
import types
import typing
from typing import TYPE_CHECKING, Any

import cog

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA_FILE = ".cog/openapi_schema.json"
_PREDICTORS = {"builder": "Builder", "runner": "Runner"}
_JSON_TYPES: dict[object, dict[str, object]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    cog.Path: {"type": "string", "format": "uri"},
    cog.Secret: {"type": "string", "format": "password", "writeOnly": True, "x-cog-secret": True},
}
_OUTPUTS: dict[object, dict[str, object]] = {
    cog.Path: {"title": "Output", "type": "string", "format": "uri"},
    cog.ConcatenateIterator[str]: {
        "title": "Output",
        "type": "array",
        "items": {"type": "string"},
        "x-cog-array-type": "iterator",
        "x-cog-array-display": "concatenate",
    },
}

# Of `Input`: what the schema does not have, and the servers therefore do not check.
_IGNORED = ("min_length", "max_length", "regex", "choices", "accept")


def openapi_schema(run: Callable[..., Any], *, streaming: bool) -> dict[str, object]:
    """The document for one `run` method: its inputs, its output, and Cog's fixed envelope."""
    output = typing.get_type_hints(run)["return"]
    schemas = {
        "Input": _input_schema(run),
        "Output": _OUTPUTS[output],
        "PredictionRequest": _object(
            "PredictionRequest", {"id": {"type": "string"}, "input": _reference("Input")}
        ),
        "PredictionResponse": _object(
            "PredictionResponse",
            {
                "input": _reference("Input"),
                "output": _reference("Output"),
                "id": {"type": "string"},
                "version": {"type": "string"},
                "created_at": {"type": "string", "format": "date-time"},
                "started_at": {"type": "string", "format": "date-time"},
                "completed_at": {"type": "string", "format": "date-time"},
                "status": _reference("Status"),
                "error": {"type": "string"},
                "logs": {"type": "string"},
                "metrics": {"type": "object"},
            },
        ),
        "Status": {
            "title": "Status",
            "type": "string",
            "enum": ["starting", "processing", "succeeded", "canceled", "failed"],
        },
    }
    predict: dict[str, object] = {
        "summary": "Predict",
        "operationId": "predict_predictions_post",
        "requestBody": {"content": _json_content(_reference("PredictionRequest"))},
        "responses": {"200": _answer(_reference("PredictionResponse"))},
    }
    if streaming:
        predict["x-cog-streaming"] = True
    prediction_id = {
        "name": "prediction_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "title": "Prediction ID"},
    }
    return {
        "openapi": "3.0.2",
        "info": {"title": "Cog", "version": cog.__version__},
        "paths": {
            "/": {"get": {"summary": "Root", "responses": {"200": _answer({})}}},
            "/health-check": {"get": {"summary": "Healthcheck", "responses": {"200": _answer({})}}},
            "/predictions": {"post": predict},
            "/predictions/{prediction_id}/cancel": {
                "post": {
                    "summary": "Cancel",
                    "parameters": [prediction_id],
                    "responses": {"200": _answer({})},
                }
            },
        },
        "components": {"schemas": schemas},
    }


def _input_schema(run: Callable[..., Any]) -> dict[str, object]:
    types_of = typing.get_type_hints(run)
    properties: dict[str, object] = {}
    required: list[str] = []
    parameters = [p for name, p in inspect.signature(run).parameters.items() if name != "self"]
    for order, parameter in enumerate(parameters):
        name, field = parameter.name, parameter.default
        kind, nullable = _without_none(types_of[name])
        for argument in _IGNORED:
            if getattr(field, argument) is not None:
                raise TypeError(f"{name}: no server checks `{argument}`; `Inputs.ask` of the runner can")
        entry: dict[str, object] = {"x-order": order, "title": name.replace("_", " ").title()}
        entry |= _JSON_TYPES[kind]
        if nullable:
            entry["nullable"] = True
        if field.default is None and not nullable:
            required.append(name)
        elif field.default is not None:
            entry["default"] = field.default
        for key, value in (
            ("description", field.description),
            ("minimum", field.ge),
            ("maximum", field.le),
            ("deprecated", field.deprecated),
        ):
            if value is not None:
                entry[key] = value
        properties[name] = entry
    return _object("Input", properties) | ({"required": required} if required else {})


def _without_none(kind: object) -> tuple[object, bool]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (inner,) = (one for one in typing.get_args(kind) if one is not types.NoneType)
        return inner, True
    return kind, False


def _object(title: str, properties: dict[str, object]) -> dict[str, object]:
    return {"title": title, "type": "object", "properties": properties}


def _reference(name: str) -> dict[str, object]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json_content(schema: dict[str, object]) -> dict[str, object]:
    return {"application/json": {"schema": schema}}


def _answer(schema: dict[str, object]) -> dict[str, object]:
    return {"description": "Successful Response", "content": _json_content(schema)}


def rendered(package: str) -> str:
    """The text of the schema file of the predictor in `package`/run.py."""
    predictor = getattr(importlib.import_module(f"{package}.run"), _PREDICTORS[package])
    document = openapi_schema(predictor.run, streaming=predictor.streams)
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def documents() -> dict[str, str]:
    """The schema file of each predictor, by its path in the checkout."""
    return {f"{package}/{SCHEMA_FILE}": rendered(package) for package in _PREDICTORS}
