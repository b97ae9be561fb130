"""E43xx: what keeps `perf` from measuring a server, or `plan` from using a measurement."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class ServerNotMeasured(CogTritonError):
    code = "E4300"
    fixed_by = FixedBy.OPERATOR
    message = "{url} cannot be measured: {reason}."
    remedy = "Check the address, --target, --model and the key; docs/measuring.md says what each kind needs."


class MeasurementInvalid(CogTritonError):
    code = "E4301"
    fixed_by = FixedBy.OPERATOR
    message = "{measurement} cannot be used for planning: {reason}."
    remedy = (
        "Measure one runner: `cog-triton perf http://HOST:5000 --concurrency 1,4,16,64 --json > one.json`."
    )
