"""E1320 to E1349: what is wrong with a request over HTTP, before its prediction is examined."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class BodyTooLarge(CogTritonError):
    code = "E1320"
    fixed_by = FixedBy.USER
    message = "The body has more than {limit} bytes."
    remedy = "Send less; the operator can raise MAX_BODY_BYTES."


class BodyNotRead(CogTritonError):
    code = "E1321"
    fixed_by = FixedBy.USER
    message = "The body cannot be read: {reason}."
    remedy = "Send a JSON object, with `Content-Type: application/json`."


class InputInvalid(CogTritonError):
    code = "E1322"
    fixed_by = FixedBy.USER
    message = "{where}: {reason}."
    remedy = "See /openapi.json for the inputs."


class PredictionIdInvalid(CogTritonError):
    code = "E1323"
    fixed_by = FixedBy.USER
    message = "The id of a prediction has 1 to 128 letters, digits, hyphens and underscores."
    remedy = "Send another one, or none."


class PredictionNotFound(CogTritonError):
    code = "E1324"
    fixed_by = FixedBy.USER
    message = "There is no such prediction."
    remedy = "Look it up while it runs, or soon afterwards if it was sent with `Prefer: respond-async`."


class PredictionIdTaken(CogTritonError):
    code = "E1325"
    fixed_by = FixedBy.USER
    message = "A prediction with that id is already running."
    remedy = "Send another id, or use PUT to follow that one."


class AddressRefused(CogTritonError):
    code = "E1326"
    fixed_by = FixedBy.USER
    message = "Nothing is sent to {address}: {reason}."
    remedy = "Use a public http or https address; the operator can allow others in {setting}."


class TooManyConnections(CogTritonError):
    code = "E1327"
    fixed_by = FixedBy.USER
    message = "The limit on open connections, {limit}, is reached."
    remedy = (
        "Try again in a few seconds; the operator can raise MAX_CONNECTIONS, or the limit on open files"
        " (ulimit -n) if that is lower."
    )


class RequestTooSlow(CogTritonError):
    code = "E1328"
    fixed_by = FixedBy.USER
    message = "The {part} of the request did not arrive within {seconds:g} s."
    remedy = "Send it faster."


class HeadersTooLarge(CogTritonError):
    code = "E1329"
    fixed_by = FixedBy.USER
    message = "The address and the headers have more than {limit} bytes."
    remedy = "Send less."


class UploadFailed(CogTritonError):
    code = "E1330"
    fixed_by = FixedBy.USER
    message = "The output cannot be sent to {address}: {reason}."
    remedy = "Use an address that accepts PUT, and that this server can reach."


class RequestMalformed(CogTritonError):
    code = "E1331"
    fixed_by = FixedBy.USER
    message = "What was sent is not an HTTP request for this server."
    remedy = "Send HTTP/1.1, without TLS unless the address begins with https; this server is not a proxy."


class OutputNotFound(CogTritonError):
    code = "E1332"
    fixed_by = FixedBy.USER
    message = "There is no engine.tar of this prediction."
    remedy = "Fetch it after the build has succeeded, and before the next one replaces it."


class HostHeaderInvalid(CogTritonError):
    code = "E1333"
    fixed_by = FixedBy.USER
    message = "A request of HTTP/1.1 has one `Host` header; this one has {count}."
    remedy = "Send one `Host` header with the name or address of this server."


class BodyLengthInvalid(CogTritonError):
    code = "E1334"
    fixed_by = FixedBy.USER
    message = "The length of the body is not clear."
    remedy = (
        "Send one `Content-Length` with the number of bytes, or `Transfer-Encoding: chunked` without a"
        " `Content-Length`."
    )


class TooManyValues(CogTritonError):
    code = "E1335"
    fixed_by = FixedBy.USER
    message = (
        "The body has more than {limit} brackets, braces, commas and colons, those in its texts included."
    )
    remedy = "Send less in one request, and long prompts as text instead of token ids."


class ContentTypeWrong(CogTritonError):
    code = "E1336"
    fixed_by = FixedBy.USER
    message = "The body must be sent as JSON, but its Content-Type is {sent}."
    remedy = "Send `Content-Type: application/json`; with curl, add -H 'Content-Type: application/json'."


class ContentEncodingNotSupported(CogTritonError):
    code = "E1337"
    fixed_by = FixedBy.USER
    message = "The body has the Content-Encoding {encoding}, which is not supported."
    remedy = "Send the body uncompressed, without the header Content-Encoding."


class BodiesTooLarge(CogTritonError):
    code = "E1338"
    fixed_by = FixedBy.USER
    message = (
        "The large bodies that are being received may have {limit} bytes together,"
        " and your share of them is taken."
    )
    remedy = "Try again in a few seconds, or send fewer of them at once."


class BodyNotParsed(CogTritonError):
    code = "E1339"
    fixed_by = FixedBy.USER
    message = "The body could not be parsed: {reason}."
    remedy = "Try again in a few seconds, or send a smaller one."


class HostNotAllowed(CogTritonError):
    code = "E1346"
    fixed_by = FixedBy.USER
    message = "This server does not answer requests for the host {host}."
    remedy = "If clients may use that name, add it to ALLOWED_HOSTS; otherwise use localhost or 127.0.0.1."


class CrossSiteRequest(CogTritonError):
    code = "E1347"
    fixed_by = FixedBy.USER
    message = "A web page of another origin, {origin}, sent this request."
    remedy = (
        "If that page may use this server, add its origin to CORS_ORIGINS. If this server's own page sent it,"
        " have the proxy pass on the `Host` header."
    )


class WebhooksWaiting(CogTritonError):
    code = "E1348"
    fixed_by = FixedBy.USER
    message = "More than {limit} MiB of your webhooks are not delivered yet."
    remedy = "Check that their addresses answer, then try again; or send no webhook."
