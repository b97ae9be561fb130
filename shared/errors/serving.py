"""E2xxx: what goes wrong between the runner and the engine while it serves."""

from __future__ import annotations

from .base import CogTritonError, FixedBy, State


class TritonUnknownError(CogTritonError):
    code = "E2100"
    fixed_by = FixedBy.US
    message = "Triton reported an error that has no code: {reason}."
    remedy = "Report it, with what the runner's log says of this request."


class TritonTimeout(CogTritonError):
    code = "E2101"
    fixed_by = FixedBy.ENGINE
    message = "Triton sent nothing for {seconds:g} s."
    remedy = (
        "Try again. If it persists, the engine has too much to do (raise RESPONSE_TIMEOUT, or for the"
        " probe PROBE_TIMEOUT, or lower MAX_PREDICTIONS), or hangs: check the log of the engine process."
    )


class TritonTokenizerError(CogTritonError):
    code = "E2102"
    fixed_by = FixedBy.OPERATOR
    message = "The tokenizer of this engine cannot be used: {reason}."
    remedy = (
        "If the reason is about a process, time or memory, let the runner have more processes, CPU or memory;"
        " if that does not help, and for any other reason, use a model whose tokenizer and chat template are"
        " valid (an engine.tar must be built again from it)."
    )


class TritonMalformedJSON(CogTritonError):
    code = "E2103"
    state = State.RESERVED
    fixed_by = FixedBy.US
    message = "Triton sent JSON that cannot be read."
    remedy = "Report it."


class TritonMalformedEvent(CogTritonError):
    code = "E2104"
    fixed_by = FixedBy.US
    message = "Triton sent a response that violates the tensor contract: {reason}."
    remedy = (
        "Check that the runner, the bridge and the model repository have the same version; if they have,"
        " report it."
    )


class TritonUnavailable(CogTritonError):
    code = "E2105"
    fixed_by = FixedBy.ENGINE
    message = "Triton is unavailable: {reason}."
    remedy = "Try again in a few seconds; unless the runner is shutting down, it starts Triton again."


class Overloaded(CogTritonError):
    code = "E2106"
    fixed_by = FixedBy.USER
    message = "{limit} {what} already; no more are accepted."
    remedy = "Try again in a few seconds; the operator can {fix}."


class PredictionFailed(CogTritonError):
    code = "E2107"
    fixed_by = FixedBy.USER
    message = "Cog refused the prediction, or it failed: {reason}."
    remedy = "Fix that, then send it again."


class ShuttingDown(CogTritonError):
    code = "E2108"
    fixed_by = FixedBy.USER
    message = "This runner is shutting down."
    remedy = "Send the prediction again, to another runner."


class CTranslate2Error(CogTritonError):
    code = "E2300"
    fixed_by = FixedBy.ENGINE
    message = "CTranslate2 failed: {reason}."
    remedy = "Check the log of the engine process."


class EngineProcessDied(CogTritonError):
    code = "E2400"
    fixed_by = FixedBy.ENGINE
    message = "The engine process ended in the middle of this request: {reason}."
    remedy = "Try again in a few seconds; unless it has died too often, it is being restarted."


class EngineNotReady(CogTritonError):
    code = "E2401"
    fixed_by = FixedBy.ENGINE
    message = "The engine is not ready."
    remedy = "Try again in a few seconds; if it persists, check /health-check and the log."


class EngineGaveUp(CogTritonError):
    code = "E2402"
    fixed_by = FixedBy.OPERATOR
    message = "The engine process has died and will not be restarted."
    remedy = "Check the log for why it died, then restart the runner."


class MalformedRequest(CogTritonError):
    code = "E2403"
    fixed_by = FixedBy.USER
    message = "The request violates the tensor contract: {reason}."
    remedy = "Send what Triton lists at `GET /v2/models/MODEL` over HTTP; docs/triton.md says more."


class TensorNotSupported(CogTritonError):
    code = "E2404"
    fixed_by = FixedBy.USER
    message = "The input {tensor} is part of the model's contract, but is not supported here."
    remedy = "Omit it."


class EngineInternalError(CogTritonError):
    code = "E2405"
    fixed_by = FixedBy.US
    message = "The engine failed on this request: {reason}."
    remedy = "Send it again; if that fails too, report it, with the log of the engine process."


class BridgeMisconfigured(CogTritonError):
    code = "E2406"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The engine bridge cannot start: {reason}."
    remedy = (
        "Make the directory of its socket (below TMPDIR) writable, raise the limit on open files if it is"
        " reached, write the model repository again with this version of cog-triton, or use the version of"
        " Triton that its images have."
    )


class EngineStartFailed(CogTritonError):
    code = "E2407"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The engine process cannot serve: {reason}."
    remedy = (
        "If a file of the engine is at fault, build or download it again; if it was not ready in time, raise"
        " ENGINE_START_TIMEOUT; otherwise, the log of the engine process says more."
    )


class HostsMissing(CogTritonError):
    code = "E2408"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The engine does not have all of the hosts that it needs: {reason}."
    remedy = (
        "Run `cog-triton join` on more hosts, and check HOSTS_ADDRESS: this host listens there, and"
        " they must reach it."
    )


class HostLost(CogTritonError):
    code = "E2409"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The host {host}, which serves part of the engine, was lost: {reason}."
    remedy = (
        "Run `cog-triton join` there again, or on another host (with MPI_HOSTS, bring the host back); the"
        " engine restarts once there are enough GPUs."
    )
