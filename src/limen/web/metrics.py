"""Numbers for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """All that is counted, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "limen_http_requests",
            "Requests.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "limen_http_seconds", "Time of a request.", buckets=_SECONDS, registry=self.registry
        )
        self.inputs = Counter("limen_inputs", "Inputs judged.", ["verdict"], registry=self.registry)
        self.batch = Histogram(
            "limen_batch_inputs",
            "Inputs judged together.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self.registry,
        )
        self.waiting = Gauge("limen_waiting", "Inputs waiting.", registry=self.registry)
        self.version = Gauge("limen_model_version", "Version in use.", registry=self.registry)
        self.eta = Gauge("limen_eta", "The cut in use.", registry=self.registry)
        self.classes = Gauge("limen_classes", "Classes known.", registry=self.registry)
        self.alarm = Gauge("limen_alarm", "1 while the alarm is raised.", registry=self.registry)
        self.jobs = Counter("limen_jobs", "Jobs ended.", ["state"], registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)
