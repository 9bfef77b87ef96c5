"""A server of tests on which clients may hang up."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class QuietServer(ThreadingHTTPServer):
    """Answers in threads, and says nothing of clients that hang up.

    A thread may notice only while another test looks at what standard error says.
    """

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Tell of anything else."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
