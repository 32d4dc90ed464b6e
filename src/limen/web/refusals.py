"""One way to say no."""

from __future__ import annotations


class RefusedError(Exception):
    """What was asked for is not done; the status and the reason go to the client."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
