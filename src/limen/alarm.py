"""Is there something new in this batch? One decision for many points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import bdtrc, betaincinv


@dataclass(frozen=True)
class NoveltyAlarm:
    """The verdict on a batch. True in a boolean context if the alarm is raised.

    Attributes
    ----------
    flagged, total : int
        How many points of the batch were judged novel, and of how many.
    expected_rate : float
        Share of known points that would be flagged too: what the calibration points show at most,
        with confidence ``1 - level``. So few calibration points make for caution, not for alarms.
    p_value : float
        One-sided binomial: how probable at least this many would be at that rate.
    level : float
        The alarm is raised where ``p_value < level``.
    """

    flagged: int
    total: int
    expected_rate: float
    p_value: float
    level: float

    @classmethod
    def judge(cls, strangeness: Any, usual: Any, eta: float, level: float) -> Self:
        """Compare a batch's strangeness with what is usual for known points, at the cut `eta`."""
        flagged = int(np.count_nonzero(strangeness >= eta))
        return cls.of_counts(flagged, len(strangeness), usual, eta, level)

    @classmethod
    def of_counts(cls, flagged: int, total: int, usual: Any, eta: float, level: float) -> Self:
        """The same from counts alone, for batches too large to be kept."""
        above, count = np.count_nonzero(usual >= eta), len(usual)
        # Clopper and Pearson's upper bound: the plain share of few calibration points is often too
        # low, and would ring false alarms far more often than `level`.
        rate = 1.0 if above == count else float(betaincinv(above + 1, count - above, 1 - level))
        p_value = 1.0 if flagged == 0 else float(bdtrc(flagged - 1, total, rate))
        return cls(flagged, total, rate, p_value, level)

    @property
    def expected(self) -> float:
        """How many of a batch of known points would be flagged, at most."""
        return self.expected_rate * self.total

    @property
    def raised(self) -> bool:
        return self.p_value < self.level

    def __bool__(self) -> bool:
        return self.raised

    def __str__(self) -> str:
        verdict = "something new is here" if self.raised else "nothing new to be seen"
        return (
            f"{self.flagged} of {self.total} unknown, at most {self.expected:.0f} expected: "
            f"{verdict}, p = {self.p_value:.2g}"
        )
