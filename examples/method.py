"""The tables of docs/method.md and docs/choices.md, from the records under results/.

python examples/method.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd

from limen.class_cuts import BY_CLASS
from limen.experiment.config import RunConfig
from limen.experiment.plan import data_of, steps_of, units_of
from limen.experiment.records import Run, frame, load_run, taken_for
from limen.experiment.tables import markdown
from limen.selection import COMBINATIONS

ROOT = Path(__file__).resolve().parents[1]
RESULTS, TABLES, IMAGES = ROOT / "results", ROOT / "docs" / "tables", ROOT / "docs" / "images"
SETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
# G-mean wanted of `limen`, and hoped for.
TARGETS = {"mnist": (89, 94), "fashion-mnist": (71, 79), "cifar10": (42, 55)}
VERSION = {"mnist": "7", "fashion-mnist": "7", "cifar10": "8"}  # of the records under results/
_CUTS = ("ours", "rate95", "shels", "cheating")
_DEVELOPED = ("cosine", "knn", "map-knn", "deep-knn", "deep-mahalanobis")
FULL = "5: folds at full cost"


def percent(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:.1f}"


def finished(name: str) -> Run | None:
    folder = RESULTS / name
    return load_run(folder) if list(folder.glob("seed-*.json")) else None


def studies(*names: str) -> dict[str, pd.DataFrame]:
    """What examples/study.py found."""
    return {name: pd.read_csv(RESULTS / f"study-{name}.csv") for name in names}


def means(run: Run, policy: str) -> pd.Series:
    """Over rows and seeds, sought for G-mean."""
    rows = frame(run)
    mine = rows[(rows["policy"] == policy) & (rows["objective"] == "gmean")]
    return mine[["gmean", "total", "pooled", "known", "novel"]].mean()


def gmean_of_seeds(run: Run, policy: str = "limen") -> pd.Series:
    """Mean over the rows of each seed."""
    rows = frame(run)
    mine = rows[(rows["policy"] == policy) & (rows["objective"] == "gmean")]
    return mine.groupby("seed")["gmean"].mean()


def steps(run: Run) -> float:
    """Of one seed, on average."""
    facts = [json.loads(path.read_text()) for path in sorted(run.path.glob("facts-*.json"))]
    return sum(sum(fact["steps"].values()) for fact in facts) / len(facts)


def paper_steps(dataset: str, preset: str) -> int:
    """Of one seed by the paper's recipe."""
    config = RunConfig.resolve({"dataset": dataset, "preset": preset})
    data = data_of(config)
    return sum(steps_of(config, data, unit) for unit in units_of(config, data.n_classes, 0))


def overview(runs: dict[str, Run]) -> pd.DataFrame:
    lines = []
    for name, run in runs.items():
        dataset, preset = run.config["dataset"], run.config["preset"]
        limen, cheating = means(run, "limen"), means(run, "cheating")
        theirs = finished(f"{dataset}-{preset}")
        cuts = {cut: means(run, cut)["gmean"] for cut in ("limen", "ours", "rate95", "shels")}
        best = max(cuts.values())
        told = {c: f"**{percent(g)}**" if g == best else percent(g) for c, g in cuts.items()}
        wanted = " / ".join(str(t) for t in TARGETS[dataset]) if preset == "small" else ""
        lines.append(
            {
                "run": name,
                "seeds": str(len(run.seeds)),
                "paper's recipe, `ours` (seeds)": _with_seeds(theirs) if theirs else "",
                "`limen`": told["limen"],
                "wanted / hoped for": wanted,
                "`cheating`": percent(cheating["gmean"]),
                "gap": percent(cheating["gmean"] - limen["gmean"]),
                "`ours`": told["ours"],
                "`rate95`": told["rate95"],
                "eta = 1": told["shels"],
                "balanced total": percent(limen["total"]),
                "pooled total": percent(limen["pooled"]),
                "steps": f"{100 * steps(run) / paper_steps(dataset, preset):.0f} %",
            }
        )
    return pd.DataFrame(lines)


def leads(runs: dict[str, Run]) -> pd.DataFrame:
    """How far limen is ahead, by the seeds that both have."""
    lines = []
    for name, run in runs.items():
        limen, theirs = gmean_of_seeds(run), finished(f"{run.config['dataset']}-small")
        others = {
            f"`{cut}`" if cut != "shels" else "eta = 1": gmean_of_seeds(run, cut) for cut in _CUTS
        }
        if theirs:
            others["the paper's models and cut"] = gmean_of_seeds(theirs, "ours")
        cells = {}
        for other, gmean in others.items():
            ahead = 100 * (limen - gmean).dropna().to_numpy(float)
            error = ahead.std(ddof=1) / math.sqrt(len(ahead))
            cells[other] = f"{ahead.mean():+.1f} ± {error:.1f} ({len(ahead)})"
        lines.append({"points of limen ahead of": name, **cells})
    return pd.DataFrame(lines)


def _with_seeds(run: Run) -> str:
    return f"{percent(means(run, 'ours')['gmean'])} ({len(run.seeds)})"


def versions(runs: dict[str, Run]) -> pd.DataFrame:
    """G-mean of every version that was judged, the last one at the end."""
    found, lines = pd.read_csv(RESULTS / "versions.csv", dtype={"version": str}), []
    for run in runs.values():
        dataset = run.config["dataset"]
        mine = found[found["dataset"] == dataset].groupby("version")
        judged = {str(version): rows.set_index("seed")["gmean"] for version, rows in mine}
        judged[VERSION[dataset]] = gmean_of_seeds(run)
        for version, gmean in judged.items():
            lines.append(
                {
                    "set": SETS[dataset],
                    "version": version,
                    "seeds 0 to 2": percent(gmean[gmean.index < 3].mean()),
                    "all its seeds": f"{percent(gmean.mean())} ({len(gmean)})",
                }
            )
    return pd.DataFrame(lines)


def headline(whole: pd.DataFrame) -> pd.DataFrame:
    """What the README shows of the overview."""
    small = whole[whole["wanted / hoped for"] != ""]
    names = {
        "run": "five classes known, five discovered",
        "paper's recipe, `ours` (seeds)": "the paper's models and cut (seeds)",
        "`ours`": "limen's models, the paper's cut",
        "`rate95`": "... cut that keeps 95 % of the known",
        "eta = 1": "... cut at one deviation",
        "`limen`": "limen",
        "seeds": "its seeds",
        "steps": "training steps, of the paper's",
    }
    return small[[*names]].rename(columns=names)


def by_row(runs: dict[str, Run]) -> pd.DataFrame:
    lines = []
    for name, run in runs.items():
        rows = frame(run)
        rows = rows[(rows["policy"] == "limen") & (rows["objective"] == "gmean")]
        for metric in ("known", "novel", "gmean", "closed_set"):
            table = rows.groupby("row")[metric]
            cells = {
                str(row): f"{100 * mean:.1f} ± {100 * std:.1f}" if std == std else percent(mean)
                for row, mean, std in zip(table.groups, table.mean(), table.std(), strict=True)
            }
            lines.append({"run": name, "accuracy": metric.replace("_", "-"), **cells})
    return pd.DataFrame(lines)


def ablation(found: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What taking out each part changes, with its standard error, and on how many seeds."""
    lines: dict[str, dict[str, str]] = {}
    for dataset, study in found.items():
        rows = study[study["study"] == "ablation"]
        gmean = rows.groupby(["seed", "variant"])["gmean"].mean().unstack()
        for variant in {*rows["variant"].tolist()} - {"limen"}:
            change = 100 * (gmean[variant] - gmean["limen"]).dropna()
            error = f" ± {change.sem():.1f}" if len(change) > 2 else ""
            cell = f"{change.mean():+.1f}{error} ({len(change)})"
            lines.setdefault(variant, {})[name_of(dataset)] = cell
    columns = ["taken out", *map(name_of, found)]
    cells = [{"taken out": name, **lines[name]} for name in sorted(lines)]
    return pd.DataFrame(cells, columns=columns).fillna("")


def forgetting(found: dict[str, pd.DataFrame]) -> pd.DataFrame:
    lines = []
    for dataset, study in found.items():
        rows = study[study["study"] == "forgetting"]
        if rows.empty:
            continue
        right = rows.groupby("variant")["closed_set"].mean()
        lines.append(
            {
                "nine classes": name_of(dataset),
                "seeds": str(rows["seed"].nunique()),
                "learnt in turn": percent(right["in turn"]),
                "all at once": percent(right["at once"]),
                "all at once, by the score in use": percent(right["at once, score in use"]),
                "forgotten": f"{100 * (right.max() - right['in turn']):+.1f}",
            }
        )
    return pd.DataFrame(lines)


def thresholders() -> pd.DataFrame:
    """The best five of each way, by the mean over the three sets; the digits beside it."""
    table = pd.read_csv(RESULTS / "thresholders.csv", keep_default_na=False)
    table["gmean"] = pd.to_numeric(table["gmean"], errors="coerce")
    seen = table.groupby(["fitted on", "thresholder", "dataset"])["gmean"].mean().unstack()
    seeds = table.groupby("dataset")["seed"].nunique()
    seen["mean"] = seen[[*SETS]].mean(axis=1, skipna=False)
    lines = []
    for way in ("", "calibration", "the points judged"):
        best = pd.DataFrame(seen.loc[way]).sort_values("mean", ascending=False)
        for name, row in best.iterrows() if not way else best.head(5).iterrows():
            label = f"`{name}`" if not way else str(name)
            cells = {f"{name_of(d)}, {seeds[d]}": percent(row[d]) for d in SETS}
            cells |= {"mean": percent(row["mean"])}
            cells |= {f"digits, {seeds['digits']}": percent(row["digits"])}
            lines.append({"fitted on": way, "cut by": label, **cells})
    return pd.DataFrame(lines)


def scores(runs: dict[str, Run]) -> pd.DataFrame:
    """What each score expects of itself with its best rule, mean over all steps."""
    lines = []
    for name, run in runs.items():
        found = pd.DataFrame([row["selection"]["by_score"] for s in run.seeds for row in s["rows"]])
        taken = pd.Series([row["selection"]["score"] for s in run.seeds for row in s["rows"]])
        cells = {
            f"`{score}`": f"{percent(found[score].mean())} ({(taken == score).sum()})"
            for score in found.columns
        }
        lines.append({"run": name, **cells})
    return pd.DataFrame(lines).fillna("")


def pairs(runs: dict[str, Run]) -> pd.DataFrame:
    """Held-out classes that were taken for one other class most often, by mean over seeds."""
    lines = []
    for name, run in runs.items():
        shares, names = taken_for(run), run.class_names
        hardest = sorted(shares, key=lambda pair: -shares[pair])[:5]
        told = ", ".join(
            f"{names[a]} for {names[b]} {100 * shares[a, b]:.0f} %" for a, b in hardest
        )
        lines.append({"run": name, "held out, taken for": told})
    return pd.DataFrame(lines)


def development() -> pd.DataFrame:
    """What was found on training images of held-out known classes, by score."""
    found = pd.read_csv(RESULTS / "development.csv", keep_default_na=False)
    found["gmean"] = pd.to_numeric(found["gmean"])
    lines = []
    by = ["dataset", "seed", "turns", "accommodation", "known"]
    for (dataset, seed, turns, accommodation, known), rows in found.groupby(by, sort=False):
        tried = rows.set_index("score")
        measure = "closed_set" if known == 5 else "gmean"
        lines.append(
            {
                "set, seed": f"{SETS[str(dataset)]}, {seed}",
                "turns": str(turns),
                "new classes": f"`{accommodation}`" if accommodation else "",
                "known": str(known),
                "what": measure.replace("_", "-").replace("gmean", "G-mean"),
                **{f"`{s}`": percent(tried[measure].get(s, math.nan)) for s in _DEVELOPED},
            }
        )
    return pd.DataFrame(lines)


def choosing() -> pd.DataFrame:
    """How well each score and rule do for a held-out class that had no part in it."""
    found = pd.read_csv(RESULTS / "rules.csv")
    by = ["dataset", "turns"]
    table = found.groupby([*by, "score", "rule"], sort=False)["gmean"].mean().unstack(sort=False)
    seeds = found.groupby(by)["seed"].nunique()
    columns = [*(r for r in table.columns if r not in ("eta = 1", "best")), "eta = 1", "best"]
    return pd.DataFrame(
        [
            {
                "set, turns, seeds": f"{SETS[dataset]}, {turns}, {seeds[dataset, turns]}",
                "score": f"`{score}`",
                **{
                    f"`{rule}`" if rule in (*COMBINATIONS, BY_CLASS) else rule: percent(row[rule])
                    for rule in columns
                },
            }
            for (dataset, turns, score), row in zip(
                table.index, table.to_dict("records"), strict=True
            )
        ]
    )


def digits() -> pd.DataFrame:
    """Rules and evidence on a set that no other table is about."""
    rows = pd.read_csv(RESULTS / "study-digits.csv")
    names = {
        "4: one cut, evidence as met": ("one, `robust`", "as met"),
        "4: evidence as met": ("by class", "as met"),
        "4: halving": ("one, `halving`", "renewed"),
        "4: rule chosen": ("one, rule chosen", "renewed"),
        "4: consensus": ("one, `consensus`", "renewed"),
        "4: one cut, robust": ("one, `robust`", "renewed"),
        "limen": ("by class", "renewed"),
    }
    cells = _by_known(rows, [*names])
    return pd.DataFrame(
        [{"cut": cut, "evidence": met, **cells[name]} for name, (cut, met) in names.items()]
    )


def calibration() -> pd.DataFrame:
    """Who tells what is usual, on the same set, learnt in two ways."""
    lines = []
    for ways, name, own, other in (
        ("MNIST", "digits", "by class", "4: one cut, robust"),
        ("CIFAR-10", "digits-replay", "one, `robust`", "4: by class"),
    ):
        tried = {
            "2: calibrated on held-out points": (own, "a tenth, held out"),
            "limen": (own, "training points"),
            other: ("one, `robust`" if own == "by class" else "by class", "training points"),
        }
        cells = _by_known(pd.read_csv(RESULTS / f"study-{name}.csv"), [*tried])
        lines += [
            {"learnt as": ways, "cut": cut, "calibrated on": points, **cells[variant]}
            for variant, (cut, points) in tried.items()
        ]
    return pd.DataFrame(lines)


def _by_known(rows: pd.DataFrame, variants: list[str]) -> dict[str, dict[str, str]]:
    """Variant -> G-mean by number of classes known, and the mean, of the seeds that all have."""
    rows = rows[rows["variant"].isin(variants)]
    measured = rows.groupby("seed")["variant"].nunique()
    rows = rows[rows["seed"].isin(measured.index[measured == len(variants)])]
    means = rows.groupby(["variant", "known"])["gmean"].mean().unstack()
    found = means.assign(mean=means.mean(axis=1)).to_dict("index")
    return {
        str(variant): {str(known): percent(value) for known, value in cells.items()}
        for variant, cells in found.items()
    }


def folds(found: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What cheaper folds cost and bring, against folds as long as the base model's training."""
    lines = []
    for dataset, study in found.items():
        if FULL not in study["variant"].to_numpy():
            continue
        cost, gmean = cost_of_folds(study)
        for variant in cost.sort_values().index:
            if variant == FULL:
                continue
            both = gmean[[variant, FULL]].dropna()
            change = 100 * (both[variant] - both[FULL])
            error = f" ± {change.sem():.1f}" if len(change) > 1 else ""
            lines.append(
                {
                    "set, streams": f"{name_of(dataset)}, {len(change)}",
                    "folds": "**limen's**" if variant == "limen" else variant,
                    "steps, of full cost": f"{100 * cost[variant] / cost[FULL]:.0f} %",
                    "G-mean": percent(both[variant].mean()),
                    "against full cost": f"{change.mean():+.1f}{error}",
                }
            )
    return pd.DataFrame(lines)


def cost_of_folds(study: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Steps of each variant's folds, and the G-mean of each seed (rows) with them (columns)."""
    mine = (study["study"] == "folds") | study["variant"].isin(["limen", FULL])
    rows = study[mine & study["seed"].isin(study.loc[study["variant"] == FULL, "seed"])]
    cost = rows.groupby("variant")["fold_steps"].mean()
    return cost, rows.groupby(["seed", "variant"])["gmean"].mean().unstack()


def name_of(dataset: str) -> str:
    return SETS.get(dataset, "digits, as CIFAR-10" if dataset == "digits-replay" else dataset)


def main() -> None:
    runs: dict[str, Run] = {}
    for dataset, name in SETS.items():
        for suffix, preset in (("limen", "small"), ("limen-paper", "paper")):
            run = finished(f"{dataset}-{suffix}")
            if run is not None:
                runs[f"{name}, `{preset}`"] = run
    small = {name: run for name, run in runs.items() if run.config["preset"] == "small"}
    whole = overview(runs)
    tables = {
        "overview": whole,
        "headline": headline(whole),
        "leads": leads(small),
        "versions": versions(small),
        "development": development(),
        "choosing": choosing(),
        "digits": digits(),
        "calibration": calibration(),
        "rows": by_row(runs),
        "scores": scores(small),
        "pairs": pairs(small),
        "ablation": ablation(studies("digits", *SETS)),
        "folds": folds(studies("digits", *SETS)),
        "forgetting": forgetting(studies("digits", *SETS)),
        "thresholders": thresholders(),
    }
    for name, table in tables.items():
        (TABLES / f"method-{name}.md").write_text(markdown(table))


if __name__ == "__main__":
    main()
