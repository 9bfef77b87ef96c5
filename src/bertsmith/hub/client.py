"""The library huggingface_hub: imported where it is used, kept quiet, its errors told in a line."""

from __future__ import annotations

import logging
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bertsmith import __version__
from bertsmith.core.errors import HubError, MissingExtra, UserError
from bertsmith.core.files import disk_error, refused_by_disk

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SIGN_IN = "set HF_TOKEN or run: hf auth login"


# the libraries the client sends requests with: before 1.0, since 1.0, since 2.0
_TRANSPORTS = frozenset(("requests", "httpx", "httpx2"))
# names of their errors, in words
_NO_ANSWER = {
    "ChunkedEncodingError": "the connection broke off",
    "ConnectError": "no connection",
    "ConnectionError": "no connection",
    "ConnectionResetError": "the connection broke off",
    "ProxyError": "the proxy refuses",
    "ReadError": "the connection broke off",
    "RemoteProtocolError": "the connection broke off",
    "SSLError": "its certificate is not trusted",
    "ConnectTimeout": "no answer in time",
    "Timeout": "no answer in time",
    "TimeoutError": "no answer in time",
    "TimeoutException": "no answer in time",
    "WriteError": "the connection broke off",
}


class HubUnreachable(HubError):
    """A hub that does not answer, or not now: what is in the cache will have to do."""


def hub_api() -> HfApi:
    """The client; raises `MissingExtra`."""
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingExtra("huggingface_hub", "hub", "a model of the hub") from error
    return HfApi(library_name="bertsmith", library_version=__version__)


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids the network."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


@contextmanager
def talking(what: str) -> Iterator[None]:
    """Turn whatever goes wrong between us and the hub into a `HubError` about `what`.

    Raises `HubUnreachable` where the hub does not answer. The client's own bars, warnings and log
    are off meanwhile.
    """
    from huggingface_hub.utils import logging as client_log
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    level, drawn = client_log.get_verbosity(), not are_progress_bars_disabled()
    client_log.set_verbosity(logging.CRITICAL)
    if drawn:
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
        raise _told(_first_cause(error), what) from error
    finally:
        client_log.set_verbosity(level)
        if drawn:
            enable_progress_bars()


def _first_cause(error: BaseException) -> BaseException:
    """What the client wraps into others of its own: the answer of the hub, or why there is none."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    while error.__cause__ is not None and (
        isinstance(error, LocalEntryNotFoundError)
        or not (isinstance(error, HfHubHTTPError | OSError) or _is_of_transport(error))
    ):
        error = error.__cause__
    return error


def _is_of_transport(error: BaseException) -> bool:
    """Return whether an error comes from the library that sends the requests."""
    return any(each.__module__.partition(".")[0] in _TRANSPORTS for each in type(error).__mro__)


def _no_answer(error: BaseException) -> str | None:
    """Return why there is no answer, in words; None where there is another reason."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return _NO_ANSWER["SSLError"]
        cause = cause.__cause__
    for kind in type(error).__mro__:
        if kind.__name__ in _NO_ANSWER:
            return _NO_ANSWER[kind.__name__]
    if isinstance(error, ValueError):
        # an answer that is no JSON, which the transports count among their own errors
        return None
    other = isinstance(error, OSError)
    return _reason(error) if other or _is_of_transport(error) else None


def _told(error: BaseException, what: str) -> UserError:
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError) and error.response is not None:
        return _answered(error, what)
    if isinstance(error, OSError) and refused_by_disk(error):
        return disk_error(error, error.filename)
    why = _no_answer(error)
    if why is not None:
        return HubUnreachable(
            f"the hub cannot be reached: {why}",
            where=what,
            remedy="check the network and give the same command again, or name a folder",
        )
    return HubError(f"the hub and we do not understand each other: {_reason(error)}", where=what)


def _answered(error: Any, what: str) -> HubError:  # noqa: ANN401
    """The hub said no."""
    from huggingface_hub import errors

    answer, code = error.response, type(error)
    status, asked = answer.status_code, answer.request.method in ("GET", "HEAD")
    bad_token = "Invalid" in answer.headers.get("X-Error-Message", "")
    if status == 401 and asked and not bad_token and code is errors.HfHubHTTPError:
        # so it answers who is not signed in, whether there is such a model or not
        code = errors.RepositoryNotFoundError
    if status == 429:
        pause = answer.headers.get("Retry-After", "")
        until = f" for {pause} s" if pause.isdigit() else ""
        return HubUnreachable(
            f"the hub asks to be left alone{until}: too many requests",
            where=what,
            remedy=f"wait, then give the same command again; who signs in may ask more: {SIGN_IN}",
        )
    if status >= 500:
        return HubUnreachable(f"the hub has trouble of its own ({status})", where=what)
    said = {
        errors.GatedRepoError: (
            "its owner asks for terms to be accepted",
            f"accept them on its page, then {SIGN_IN}",
        ),
        errors.RepositoryNotFoundError: (
            "the hub has no such model, or it is private",
            f"check the name; for a private one {SIGN_IN}",
        ),
        errors.RevisionNotFoundError: (
            "the hub has no such branch, tag or commit of it",
            "look for it on its page",
        ),
    }.get(code)
    if said is None:
        words = {401: "the token is not accepted", 403: "the token gives no right to that"}
        cause = words.get(status) or f"{status} {_reason(error.server_message or error)}"
        said = (f"the hub refuses: {cause}", SIGN_IN if status in words else "")
    return HubError(said[0], where=what, remedy=said[1])


def _reason(error: object) -> str:
    """What an error says, not too long, or its kind."""
    return " ".join(str(error).split())[:300] or type(error).__name__
