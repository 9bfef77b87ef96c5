"""The library huggingface_hub: imported lazily, silenced, its errors reported in one line."""

from __future__ import annotations

import logging
import re
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bertsmith.core import VERSION
from bertsmith.core.errors import HubError, MissingExtra, UserError
from bertsmith.core.files import disk_error, refused_by_disk

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_QUERY = re.compile(r"(?<=\w)\?\S*[=&]\S*")
SIGN_IN = "set HF_TOKEN or run: hf auth login"

# the HTTP libraries of the client: before 1.0, since 1.0, since 2.0
_TRANSPORTS = frozenset(("requests", "httpx", "httpx2"))
# messages for their errors, by class name
_NO_ANSWER = {
    "ChunkedEncodingError": "the connection was lost",
    "ConnectError": "no connection",
    "ConnectionError": "no connection",
    "ConnectionResetError": "the connection was lost",
    "ProxyError": "the proxy refused the connection",
    "ReadError": "the connection was lost",
    "RemoteProtocolError": "the connection was lost",
    "SSLError": "its certificate is not trusted",
    "ConnectTimeout": "no answer in time",
    "Timeout": "no answer in time",
    "TimeoutError": "no answer in time",
    "TimeoutException": "no answer in time",
    "WriteError": "the connection was lost",
}


class HubUnreachable(HubError):
    """An unreachable or overloaded hub; the cache may be used instead."""


def hub_api() -> HfApi:
    """Return the client. Raises `MissingExtra`."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingExtra("huggingface_hub", "hub", "a model of the hub") from error
    return HfApi(library_name="bertsmith", library_version=VERSION)


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids the network."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


@contextmanager
def client_errors(subject: str) -> Iterator[None]:
    """Turn every error of the client into a `HubError` about `subject`.

    The client's own progress bars, warnings and log are off meanwhile. Raises `HubUnreachable` if
    the hub does not answer.
    """
    from huggingface_hub.utils import logging as client_log
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    level, bars_shown = client_log.get_verbosity(), not are_progress_bars_disabled()
    client_log.set_verbosity(logging.CRITICAL)
    if bars_shown:
        disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except UserError:
        raise
    except Exception as error:
        known = OSError | ValueError | TypeError | KeyError | AttributeError | RuntimeError
        if not isinstance(error, known) and not _is_of_transport(error):
            raise
        raise _hub_error(_first_cause(error), subject) from error
    finally:
        client_log.set_verbosity(level)
        if bars_shown:
            enable_progress_bars()


def _first_cause(error: BaseException) -> BaseException:
    """Return the error that the client wrapped: the response of the hub, or why there is none."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    while error.__cause__ is not None and (
        isinstance(error, LocalEntryNotFoundError)
        or not (isinstance(error, HfHubHTTPError | OSError) or _is_of_transport(error))
    ):
        error = error.__cause__
    return error


def _is_of_transport(error: BaseException) -> bool:
    """Return whether an error comes from the library that sends the requests."""
    return any(kind.__module__.partition(".")[0] in _TRANSPORTS for kind in type(error).__mro__)


def _unreachable_reason(error: BaseException) -> str | None:
    """Return why there is no answer; None for any other error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return _NO_ANSWER["SSLError"]
        cause = cause.__cause__
    for kind in type(error).__mro__:
        if kind.__name__ in _NO_ANSWER:
            return _NO_ANSWER[kind.__name__]
    if isinstance(error, ValueError):
        # an answer that is not JSON, which the HTTP libraries count among their own errors
        return None
    other = isinstance(error, OSError)
    return _reason(error) if other or _is_of_transport(error) else None


def _hub_error(error: BaseException, subject: str) -> UserError:
    from huggingface_hub.errors import HfHubHTTPError

    answered = isinstance(error, HfHubHTTPError) or _is_of_transport(error)
    if answered and getattr(error, "response", None) is not None:
        return _response_error(error, subject)
    if isinstance(error, OSError) and refused_by_disk(error):
        return disk_error(error, error.filename)
    why = _unreachable_reason(error)
    if why is not None:
        return HubUnreachable(
            f"the hub cannot be reached: {why}",
            where=subject,
            remedy="check the network and give the same command again, or name a folder",
        )
    return HubError(f"unexpected answer from the hub: {_reason(error)}", where=subject)


def _response_error(error: Any, subject: str) -> HubError:  # noqa: ANN401
    """Return the error for a response with an error status."""
    from huggingface_hub import errors

    answer, code = error.response, type(error)
    status, is_read = answer.status_code, answer.request.method in ("GET", "HEAD")
    bad_token = "Invalid" in answer.headers.get("X-Error-Message", "")
    if status == 401 and is_read and not bad_token and code is errors.HfHubHTTPError:
        # without a token the hub answers so whether or not the model exists
        code = errors.RepositoryNotFoundError
    if status == 429:
        pause = answer.headers.get("Retry-After", "")
        until = f" for {pause} s" if pause.isdigit() else ""
        return HubUnreachable(
            f"the hub limits the rate of requests{until}: too many requests",
            where=subject,
            remedy=f"wait, then give the same command again; to raise the limit, {SIGN_IN}",
        )
    if status >= 500:
        return HubUnreachable(f"the hub reports an internal error ({status})", where=subject)
    message = {
        errors.GatedRepoError: (
            "access requires accepting the owner's terms",
            f"accept them on the model's page, then {SIGN_IN}",
        ),
        errors.RepositoryNotFoundError: (
            "the hub has no such model, or it is private",
            f"check the name; for a private one {SIGN_IN}",
        ),
        errors.RevisionNotFoundError: (
            "the model has no such branch, tag or commit",
            "look for it on the model's page",
        ),
    }.get(code)
    if message is None:
        words = {401: "the token is not accepted", 403: "the token does not permit this"}
        reason = _reason(getattr(error, "server_message", None) or error)
        # an error of the HTTP library begins with the status
        numbered = reason if reason.startswith(str(status)) else f"{status} {reason}"
        cause = words.get(status) or numbered
        message = (f"the hub refused the request: {cause}", SIGN_IN if status in words else "")
    return HubError(message[0], where=subject, remedy=message[1])


def _reason(error: object) -> str:
    """Return an error's message, shortened, or its class name."""
    # the query of an address of a file signs it: whoever reads it may download the file
    message = _QUERY.sub("", " ".join(str(error).split()))
    return message[:300] or type(error).__name__
