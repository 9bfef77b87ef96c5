"""The page at `/`, on which a person tries the served models in a browser.

Plain files without a framework, which load nothing from elsewhere: index.html holds the form,
page.js sends it, tasks.js says what each task asks for, answers.js draws the answers. They are
read once, when the routes are made. The policy sent with them forbids inline scripts and styles,
other origins, frames and the making of elements from strings, so text of users, labels of models
and messages of the server can only ever be text.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page/page.css": ("page.css", "text/css; charset=utf-8"),
    "page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "page/tasks.js": ("tasks.js", "text/javascript; charset=utf-8"),
    "page/answers.js": ("answers.js", "text/javascript; charset=utf-8"),
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # revalidated each time, and sent again only after an update of the package
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    """Return the routes of the page's files, for GET and HEAD; none of them asks for a key."""
    from starlette.routing import Route

    return [Route(f"/{path}", _Page(*FILES[path]).send, methods=["GET"]) for path in FILES]


class _Page:
    """One file of the page, with its headers."""

    def __init__(self, name: str, kind: str) -> None:
        self._body = resources.files(__name__).joinpath(name).read_bytes()
        tag = hashlib.sha256(self._body).hexdigest()[:32]
        self._headers = HEADERS | {"Content-Type": kind, "ETag": f'"{tag}"'}

    async def send(self, request: Request) -> Response:
        """Return the file, or 304 where the browser has it."""
        from starlette.responses import Response

        known = request.headers.get("if-none-match", "")
        if self._headers["ETag"] in (part.strip().removeprefix("W/") for part in known.split(",")):
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers)
