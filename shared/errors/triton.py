"""E1340 to E1343: what is wrong with a request to Triton's own protocols, before Triton gets it."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class BrowserRefused(CogTritonError):
    code = "E1340"
    fixed_by = FixedBy.USER
    message = "Web pages may not call Triton, and this request has the header {header}."
    remedy = "Call Triton from a program; web pages can use /v1 of the runner's main port."


class TritonPathUnknown(CogTritonError):
    code = "E1341"
    fixed_by = FixedBy.USER
    message = "There is nothing at {path} that clients of Triton may use."
    remedy = "Use a path that the page about Triton lists, such as /v2/models/ensemble/generate."


class TritonBodyInvalid(CogTritonError):
    code = "E1342"
    fixed_by = FixedBy.USER
    message = "The body cannot be passed on to Triton: {reason}."
    remedy = "Correct it and send it again."


class TritonCallUnknown(CogTritonError):
    code = "E1343"
    fixed_by = FixedBy.USER
    message = "There is no call {call} that clients of Triton may use."
    remedy = "Use a call that the page about Triton lists, such as ModelStreamInfer."
