"""The paper's claims, each answered with yes or no and the number."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from limen.experiment.config import OBJECTIVES
from limen.experiment.records import Run, frame, published_beside

CLOSE = 5.0  # points of total accuracy within which `ours` is called close to `cheating`


@dataclass(frozen=True)
class Claim:
    """One claim, what was found, and what the paper's own tables say, in points."""

    text: str
    holds: bool
    found: float
    paper: float | None
    detail: str


def claims(run: Run) -> list[Claim]:
    """(1) cheating beats shels; (2) ours comes close to cheating; (3) G-mean beats total.

    All in pooled total accuracy, mean over the rows, which is what the paper's tables report.
    """
    rows = frame(run)
    found = []
    for objective in OBJECTIVES:
        ours = _totals(rows[rows["objective"] == objective], "row", 100)
        theirs = _published(run, objective)
        gain = ours["cheating"] - ours["shels"]
        found.append(
            Claim(
                f"`cheating` beats `shels` (sought for {objective})",
                bool(gain.mean() > 0),
                float(gain.mean()),
                None if theirs is None else float((theirs["cheating"] - theirs["shels"]).mean()),
                f"in {(gain > 0).sum()} of {len(gain)} rows",
            )
        )
        gap = ours["cheating"] - ours["ours"]
        found.append(
            Claim(
                f"`ours` comes within {CLOSE:.0f} points of `cheating` (sought for {objective})",
                bool(gap.mean() <= CLOSE),
                float(gap.mean()),
                None if theirs is None else float((theirs["cheating"] - theirs["ours"]).mean()),
                f"worst row {gap.max():.1f} points",
            )
        )
    by = {name: _totals(rows[rows["objective"] == name], "row", 100)["ours"] for name in OBJECTIVES}
    better = by["gmean"] - by["total"]
    paper = [_published(run, objective) for objective in OBJECTIVES]
    told = None
    if paper[0] is not None and paper[1] is not None:
        told = float((paper[0]["ours"] - paper[1]["ours"]).mean())
    text = "for `ours`, G-mean is a better objective than total accuracy"
    detail = f"in {(better > 0).sum()} of {len(better)} rows"
    return [*found, Claim(text, bool(better.mean() > 0), float(better.mean()), told, detail)]


def _published(run: Run, objective: str) -> pd.DataFrame | None:
    theirs = published_beside(run, objective)
    if theirs is None:
        return None
    chosen = theirs[theirs["metric"] == "pooled"].rename(columns={"mean": "pooled"})
    return _totals(chosen, "row", 1)


def _totals(rows: pd.DataFrame, by: str, scale: float) -> pd.DataFrame:
    """Pooled total, one line per row and one column per policy."""
    return scale * rows.pivot_table(index=by, columns="policy", values="pooled", aggfunc="mean")


def claims_table(run: Run) -> pd.DataFrame:
    """For people: claim, answer, number, the paper's."""
    return pd.DataFrame(
        {
            "claim": claim.text,
            "holds": "yes" if claim.holds else "no",
            "points": f"{claim.found:+.1f}",
            "paper": "" if claim.paper is None else f"{claim.paper:+.1f}",
            "detail": claim.detail,
        }
        for claim in claims(run)
    )
