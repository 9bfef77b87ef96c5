"""Refusals of requests; each dialect says them in its own words.

Refusal
├── InvalidRequest        the request is not as it should be
│   └── EmptyList         a list of inputs has none
├── ContextTooLong        a text has more tokens than the model reads
├── PayloadTooLarge       the body is too large, or has too many inputs
├── ModelNotFound         there is no such model, or it does no such thing
├── Overloaded            too much waits already
├── DeadlineExceeded      the deadline has passed
├── Unavailable           no model is open, or the worker has died
├── InternalError         the answer cannot be computed
├── RequestTimeout        the body does not arrive
├── Unauthorized          there is no valid key
├── MisdirectedRequest    the request is addressed to another host
├── UnsupportedMediaType  the body is in a form that is not read
├── NotFound              there is no such page
└── MethodNotAllowed      the path takes another HTTP method
"""

from __future__ import annotations


class Refusal(Exception):
    """A request that is not answered, with the status of HTTP and a word for programs."""

    status = 500
    code = "internal_error"

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.message, self.parameter = message, parameter


class InvalidRequest(Refusal):
    """The request is not as it should be."""

    status, code = 400, "invalid_request"


class EmptyList(InvalidRequest):
    """A list of inputs has none."""

    code = "empty_list"


class ContextTooLong(Refusal):
    """A text has more tokens than the model reads."""

    status, code = 400, "context_length_exceeded"


class PayloadTooLarge(Refusal):
    """The body is too large, or has too many inputs."""

    status, code = 413, "request_too_large"


class ModelNotFound(Refusal):
    """There is no such model, or it does no such thing."""

    status, code = 404, "model_not_found"


class Overloaded(Refusal):
    """Too much waits already; `retry_after` is when it may be tried again, in seconds."""

    status, code = 429, "overloaded"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineExceeded(Refusal):
    """The deadline has passed."""

    status, code = 504, "deadline_exceeded"


class Unavailable(Refusal):
    """No model is open, or the worker that computed the answer has died."""

    status, code = 503, "unavailable"


class InternalError(Refusal):
    """The answer cannot be computed."""

    status, code = 500, "internal_error"


class RequestTimeout(Refusal):
    """The body does not arrive."""

    status, code = 408, "request_timeout"


class Unauthorized(Refusal):
    """There is no valid key."""

    status, code = 401, "invalid_api_key"


class MisdirectedRequest(Refusal):
    """The request is addressed to another host."""

    status, code = 421, "misdirected_request"


class UnsupportedMediaType(Refusal):
    """The body is in a form that is not read."""

    status, code = 415, "unsupported_media_type"


class NotFound(Refusal):
    """There is no such page."""

    status, code = 404, "not_found"


class MethodNotAllowed(Refusal):
    """The path takes another HTTP method."""

    status, code = 405, "method_not_allowed"
