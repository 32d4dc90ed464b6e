"""Means, spreads and significance over seeds, as the paper reports them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.multitest import multipletests

BASELINE = "shels"
TESTED = ("known", "novel", "pooled")  # the metrics of the paper's tables
_GREATER = {"pooled"}  # one-sided: is the total better? The others may go either way


def summary(frame: pd.DataFrame, objective: str) -> pd.DataFrame:
    """Mean, std and significance against `shels`, one line per row, metric and policy.

    Columns: row, metric, policy, mean, std, seeds, p, p_holm, stars. The t-test is paired by
    seed, two-sided for known and novel accuracy and one-sided for the total; Holm-Bonferroni runs
    over all tested rows and metrics of one policy. With one seed there is nothing to test, and std
    and p are NaN.
    """
    chosen = frame[frame["objective"] == objective]
    metrics = ["eta", "known", "novel", "pooled", "total", "gmean", "auroc", "fpr95", "closed_set"]
    lines = []
    for policy, mine in chosen.groupby("policy", sort=False):
        tested = []
        for row, points in mine.groupby("row", sort=True):
            for metric in metrics:
                values = points.set_index("seed")[metric]
                line = {
                    "row": row,
                    "metric": metric,
                    "policy": policy,
                    "mean": values.mean(),
                    "std": values.std(ddof=1),
                    "seeds": len(values),
                    "p": np.nan,
                    "p_holm": np.nan,
                }
                if metric in TESTED and policy != BASELINE and len(values) > 1:
                    base = chosen[(chosen["policy"] == BASELINE) & (chosen["row"] == row)]
                    line["p"] = paired_p(values, base.set_index("seed")[metric], metric)
                    tested.append(line)
                lines.append(line)
        if tested:
            corrected = multipletests([line["p"] for line in tested], method="holm")[1]
            for line, p in zip(tested, corrected, strict=True):
                line["p_holm"] = float(p)
    table = pd.DataFrame(lines)
    return table.assign(stars=table["p_holm"].map(stars))


def paired_p(values: pd.Series, baseline: pd.Series, metric: str) -> float:
    """The p-value of a t-test paired by seed; 1 where nothing differs."""
    difference = values - baseline.reindex(values.index)
    if np.allclose(difference, difference.iloc[0], rtol=0, atol=1e-12):
        # No spread, so no t: all equal says nothing, a constant gain is as sure as can be.
        gain = difference.iloc[0]
        worth = gain > 1e-12 if metric in _GREATER else abs(gain) > 1e-12
        return 0.0 if worth else 1.0
    side = "greater" if metric in _GREATER else "two-sided"
    return float(stats.ttest_rel(values, baseline.reindex(values.index), alternative=side).pvalue)


def stars(p: float) -> str:
    """The paper's marks.

    >>> [stars(p) for p in (0.2, 0.04, 0.004, 0.0004, float("nan"))]
    ['', '*', '**', '***', '']
    """
    return "*" * sum(p < level for level in (0.05, 0.01, 0.001))


def overall(frame: pd.DataFrame, objective: str) -> pd.DataFrame:
    """Mean over the rows for each policy, with the std of that over seeds; index policy, metric."""
    chosen = frame[frame["objective"] == objective]
    metrics = ["eta", "known", "novel", "pooled", "total", "gmean"]
    per_seed = chosen.groupby(["policy", "seed"], sort=False)[metrics].mean()
    grouped = per_seed.groupby("policy", sort=False)
    return pd.concat({"mean": grouped.mean().T, "std": grouped.std(ddof=1).T}, axis=1)
