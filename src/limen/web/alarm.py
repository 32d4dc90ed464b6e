"""Is there something new in what came lately? Asked again with every batch of inputs."""

from __future__ import annotations

import collections
import json
import logging
import threading
import urllib.request
from typing import Any

from limen.alarm import NoveltyAlarm
from limen.web.serving import Served

_log = logging.getLogger("limen.web")
_PATIENCE = 5.0  # seconds for the webhook
_TRIES = 3
_LEAST = 10  # inputs before which nothing is said


class AlarmWindow:
    """The batch alarm over the latest inputs that the version in use has judged."""

    def __init__(self, size: int, webhook: str | None = None) -> None:
        self._webhook = webhook
        self._lock = threading.Lock()
        self._latest: collections.deque[bool] = collections.deque(maxlen=size)
        self._version: int | None = None
        self.verdict: NoveltyAlarm | None = None

    @property
    def raised(self) -> bool:
        return self.verdict is not None and self.verdict.raised

    def add(self, served: Served, novel: list[bool], *, tell: bool = True) -> bool:
        """Take in what was judged; True if the alarm begins with it."""
        with self._lock:
            if served.version != self._version:
                self._version, self.verdict = served.version, None
                self._latest.clear()
            before = self.raised
            self._latest.extend(novel)
            if len(self._latest) < _LEAST:
                return False
            classifier = served.model.classifier
            self.verdict = NoveltyAlarm.of_counts(
                sum(self._latest),
                len(self._latest),
                classifier.calibration_strangeness_,
                classifier.eta_,
                classifier.alarm_level,
            )
            begins = self.raised and not before
        if begins and tell and self._webhook is not None:
            facts = {**self.facts(), "version": served.version}
            threading.Thread(target=_call, args=(self._webhook, facts), daemon=True).start()
        return begins

    def facts(self) -> dict[str, Any]:
        verdict = self.verdict
        if verdict is None:
            return {"raised": False, "unknown": 0, "total": 0, "expected": 0.0, "p_value": 1.0}
        return {
            "raised": verdict.raised,
            "unknown": verdict.flagged,
            "total": verdict.total,
            "expected": verdict.expected,
            "p_value": verdict.p_value,
        }


def _call(url: str, facts: dict[str, Any]) -> None:
    """Tell the webhook; whatever it answers, the server goes on."""
    body = json.dumps({"event": "alarm", **facts}).encode()
    headers = {"Content-Type": "application/json"}
    for attempt in range(1, _TRIES + 1):
        try:
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=_PATIENCE):
                return
        except (OSError, ValueError) as error:
            _log.warning("the webhook did not answer (try %d of %d): %s", attempt, _TRIES, error)
            threading.Event().wait(attempt)
