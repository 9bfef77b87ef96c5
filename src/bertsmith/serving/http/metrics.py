"""Counts and times in Prometheus' format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bertsmith.serving.dispatch.gateway import Gateway

_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The figures of a server."""

    def __init__(self, gateway: Gateway, paths: Collection[str]) -> None:
        """Count requests by these paths, which may end in a parameter; others are one."""
        self._registry = CollectorRegistry()
        self._paths = frozenset(re.sub(":[a-z]+}$", "}", path) for path in paths)
        self._beginnings = {path.partition("{")[0]: path for path in self._paths if "{" in path}
        self._requests = Counter(
            "bertsmith_requests", "Requests", ("path", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "bertsmith_request_seconds", "Seconds from headers to the end of the response",
            ("path",), registry=self._registry, buckets=_SECONDS,
        )  # fmt: skip
        self._counted = dict[tuple[str, int], tuple[Counter, Histogram]]()
        self._registry.register(_Computing(gateway))

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        known = path if path in self._paths else self._pattern(path)
        counted = self._counted.get((known, status))
        if counted is None:
            # looking labels up takes as long as counting
            requests = self._requests.labels(known, str(status))
            counted = self._counted[known, status] = (requests, self._seconds.labels(known))
        counted[0].inc()
        counted[1].observe(seconds)

    def _pattern(self, path: str) -> str:
        """Return the known path whose parameter ends a path, "other" without one."""
        found = (self._beginnings[each] for each in self._beginnings if path.startswith(each))
        return next(found, "other")

    def text(self) -> bytes:
        """Return all figures."""
        return generate_latest(self._registry)


class _Computing(Collector):
    """The figures of the queue and of the workers."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        gateway, counts = self._gateway, self._gateway.counts
        gauges: dict[str, tuple[str, float]] = {
            "queue_tokens": ("Tokens that wait", gateway.queue.tokens),
            "queue_texts": ("Texts that wait", gateway.waiting_texts),
            "ready": ("1 if requests are answered", int(gateway.ready)),
        }
        for name, (about, value) in gauges.items():
            yield GaugeMetricFamily(f"bertsmith_{name}", about, value=value)
        counters: dict[str, tuple[str, float]] = {
            "tokens": ("Tokens read", counts.tokens),
            "batches": ("Batches computed", counts.batches),
            "compute_seconds": ("Seconds of workers computing", counts.seconds),
            "expired_texts": ("Texts whose deadline passed while they waited", counts.expired),
            "lost_texts": ("Texts lost with a worker that died", counts.lost),
            "worker_restarts": ("Workers that died and were replaced", counts.restarts),
        }
        for name, (about, value) in counters.items():
            yield CounterMetricFamily(f"bertsmith_{name}", about, value=value)
