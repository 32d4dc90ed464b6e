"""What was wanted of limen's own method, beside what the records under results/ show.

python examples/method_targets.py
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from limen.experiment.config import RunConfig
from limen.experiment.plan import data_of, steps_of, units_of
from limen.experiment.records import Run
from limen.experiment.tables import markdown
from method import (
    FULL,
    RESULTS,
    SETS,
    TABLES,
    finished,
    gmean_of_seeds,
    means,
    name_of,
    paper_steps,
    steps,
    studies,
)

WANTED = {"mnist": 89, "fashion-mnist": 71, "cifar10": 42}  # G-mean


def targets() -> pd.DataFrame:
    runs = {d: run for d in SETS if (run := finished(f"{d}-limen")) is not None}
    found = studies(*SETS)
    lines = []
    for dataset, run in runs.items():
        every = _every_seed(run, found[dataset])["limen"]
        mine = every[every.index.isin([seed["seed"] for seed in run.seeds])]
        for what, of_seeds in (("", mine), (", with the seeds of the studies", every)):
            if what and len(every) == len(mine):
                continue
            values = 100 * of_seeds.to_numpy(float)
            gmean, error = values.mean(), values.std(ddof=1) / math.sqrt(len(values))
            told, least = f"{gmean:.1f} ± {error:.1f} ({len(values)} seeds)", WANTED[dataset]
            name = f"G-mean, {SETS[dataset]}{what}"
            lines.append(_line(name, f"at least {least}", told, bool(gmean >= least)))
    gap = sum(means(r, "cheating")["gmean"] - means(r, "limen")["gmean"] for r in runs.values())
    gap *= 100 / len(runs)
    lines.append(_line("gap to `cheating`, mean of the sets", "at most 3", f"{gap:.1f}", gap <= 3))
    ran = [_every_seed(run, found[d]) for d, run in runs.items()]
    gap = sum(100 * float((s["cheating"] - s["limen"]).mean()) for s in ran) / len(ran)
    what = "the same, with the seeds of the studies"
    lines.append(_line(what, "at most 3", f"{gap:.1f}", gap <= 3))
    leads = {d: 100 * (means(r, "limen") - means(r, "rate95"))["gmean"] for d, r in runs.items()}
    told = ", ".join(f"{lead:+.1f}" for lead in leads.values())
    lines.append(_line("against `rate95`, each set", "ahead", told, min(leads.values()) > 0))
    name, lead = _nearest_thresholder()
    lines.append(
        _line(
            "against pythresh, mean of the sets", "ahead of each", f"{lead:+.1f} ({name})", lead > 0
        )
    )
    cost = [100 * steps(run) / paper_steps(d, "small") for d, run in runs.items()]
    told = ", ".join(f"{share:.0f} %" for share in cost)
    lines.append(_line("training steps, of the paper's", "at most 40 %", told, max(cost) <= 40))
    for dataset in ("mnist", "fashion-mnist"):
        rows = found[dataset][found[dataset]["study"] == "forgetting"]
        right = rows.groupby("variant")["closed_set"].mean()
        lost = 100 * (right.max() - right["in turn"])
        what = f"forgotten at nine classes, {SETS[dataset]}"
        lines.append(_line(what, "at most 2 points", f"{lost:+.1f}", lost <= 2))
    share = max(_folds(run) for run in runs.values())
    lines.append(_line("folds, of full cost", "a quarter", f"{share:.1f} %", round(share) <= 25))
    for part, what, measure, most, sets in (
        (FULL, "total lost by cheaper folds", "total", 1.0, studies("digits") | found),
        ("6: everything kept", "G-mean lost by keeping 5 %", "gmean", 1.5, found),
    ):
        for dataset, study in sets.items():
            lost = _brings(study, part, measure)
            mean, error = lost.mean(), lost.std(ddof=1) / math.sqrt(len(lost))
            told = f"{mean:+.1f} ± {error:.1f} ({len(lost)} seeds)"
            wanted = f"at most {most} points"
            lines.append(_line(f"{what}, {name_of(dataset)}", wanted, told, bool(mean <= most)))
    return pd.DataFrame(lines)


def _every_seed(run: Run, study: pd.DataFrame) -> pd.DataFrame:
    """G-mean of `limen` and `cheating`, of the seeds of a run and of others that studies have."""
    mine = pd.DataFrame({p: gmean_of_seeds(run, p) for p in ("limen", "cheating")})
    full = study[study["variant"] == "limen"].rename(columns={"gmean": "limen"})
    theirs = full.groupby("seed")[["limen", "cheating"]].mean()
    return pd.concat([mine, theirs[~theirs.index.isin(mine.index)]])


def _line(what: str, wanted: str, found: str, met: bool) -> dict[str, str]:
    return {"what": what, "wanted": wanted, "found": found, "met": "yes" if met else "**no**"}


def _brings(study: pd.DataFrame, part: str, measure: str) -> NDArray[np.float64]:
    """Points that leaving out a part brings, seed by seed."""
    found = study.groupby(["seed", "variant"])[measure].mean().unstack()
    return 100 * (found[part] - found["limen"]).dropna().to_numpy(float)


def _folds(run: Run) -> float:
    """Steps of the folds, in per cent of folds as long as the paper's."""
    config = RunConfig.resolve({"dataset": run.config["dataset"], "preset": "small"})
    data = data_of(config)
    units = [u for u in units_of(config, data.n_classes, 0) if u.held_out is not None]
    mine: list[int] = [n for unit, n in run.facts[0]["steps"].items() if unit != "stream"]
    return 100 * sum(mine) / sum(steps_of(config, data, unit) for unit in units)


def _nearest_thresholder() -> tuple[str, float]:
    """The best of all, whatever it is fitted on, and how many points limen is ahead of it."""
    table = pd.read_csv(RESULTS / "thresholders.csv", keep_default_na=False)
    table["gmean"] = pd.to_numeric(table["gmean"], errors="coerce")
    table = table[table["dataset"].isin([*SETS])]
    by = table.groupby(["dataset", "thresholder", "fitted on"])["gmean"].mean().unstack("dataset")
    mean: dict[Any, float] = (100 * by.mean(axis=1, skipna=False)).dropna().to_dict()
    limen = mean.pop(("limen", ""))
    theirs = {key: value for key, value in mean.items() if key[1]}
    best = max(theirs, key=theirs.__getitem__)
    return str(best[0]), limen - theirs[best]


if __name__ == "__main__":
    (TABLES / "method-targets.md").write_text(markdown(targets()))
