"""The tables and pictures of docs/method.md, from the records under results/.

python examples/method.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

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
_DEVELOPED = ("cosine", "knn", "map-knn", "deep-knn", "deep-mahalanobis")
FULL = "5: folds at full cost"
COLOURS = ("#1565b0", "#d07a12", "#2e8b57")


def percent(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:.1f}"


def finished(name: str) -> Run | None:
    folder = RESULTS / name
    return load_run(folder) if list(folder.glob("seed-*.json")) else None


def means(run: Run, policy: str) -> pd.Series:
    """Over rows and seeds, sought for G-mean."""
    rows = frame(run)
    mine = rows[(rows["policy"] == policy) & (rows["objective"] == "gmean")]
    return mine[["gmean", "total", "pooled", "known", "novel"]].mean()


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
    lines, versions = [], pd.read_csv(RESULTS / "versions.csv", dtype={"version": str})
    for name, run in runs.items():
        dataset, preset = run.config["dataset"], run.config["preset"]
        limen, cheating = means(run, "limen"), means(run, "cheating")
        theirs = finished(f"{dataset}-{preset}")
        ours = percent(means(theirs, "ours")["gmean"]) if theirs else ""
        wanted = " / ".join(str(t) for t in TARGETS[dataset]) if preset == "small" else ""
        shared = versions[(versions["dataset"] == dataset) & (versions["seed"] < 3)]
        before = shared.groupby("version")["gmean"].mean()
        last = versions[versions["dataset"] == dataset]
        last = last[(last["version"] == last["version"].max()) & last["seed"].isin(_numbers(run))]
        lines.append(
            {
                "run": name,
                "seeds": str(len(run.seeds)),
                "paper's recipe, `ours`": ours,
                "earlier versions": ", ".join(percent(g) for g in before)
                if preset == "small"
                else "",
                "`limen`, seeds 0 to 2": percent(_of_seeds(run, range(3))),
                "`limen` G-mean": f"**{percent(limen['gmean'])}**",
                "version before, same seeds": percent(last["gmean"].mean())
                if preset == "small" and len(last) == len(run.seeds)
                else "",
                "wanted / hoped for": wanted,
                "balanced total": percent(limen["total"]),
                "pooled total": percent(limen["pooled"]),
                "`cheating`": percent(cheating["gmean"]),
                "gap": percent(cheating["gmean"] - limen["gmean"]),
                "`rate95`": percent(means(run, "rate95")["gmean"]),
                "eta = 1": percent(means(run, "shels")["gmean"]),
                "steps": f"{100 * steps(run) / paper_steps(dataset, preset):.0f} %",
            }
        )
    return pd.DataFrame(lines)


def _numbers(run: Run) -> list[int]:
    return [seed["seed"] for seed in run.seeds]


def _of_seeds(run: Run, seeds: range) -> float:
    """G-mean on some seeds of a small run."""
    rows = frame(run)
    mine = (rows["policy"] == "limen") & (rows["objective"] == "gmean") & rows["seed"].isin(seeds)
    return float(rows[mine]["gmean"].mean()) if run.config["preset"] == "small" else math.nan


def headline(whole: pd.DataFrame) -> pd.DataFrame:
    """What the README shows of the overview."""
    small = whole[whole["earlier versions"] != ""]
    names = {
        "run": "five classes known, five discovered",
        "paper's recipe, `ours`": "the paper's recipe",
        "`rate95`": "limen's models, cut that keeps 95 %",
        "`limen` G-mean": "limen",
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


def ablation(studies: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What taking out each part changes, with its standard error, and on how many seeds."""
    lines: dict[str, dict[str, str]] = {}
    for dataset, study in studies.items():
        rows = study[study["study"] == "ablation"]
        gmean = rows.groupby(["seed", "variant"])["gmean"].mean().unstack()
        for variant in {*rows["variant"].tolist()} - {"limen"}:
            change = 100 * (gmean[variant] - gmean["limen"]).dropna()
            error = f" ± {change.sem():.1f}" if len(change) > 2 else ""
            cell = f"{change.mean():+.1f}{error} ({len(change)})"
            lines.setdefault(variant, {})[_name(dataset)] = cell
    columns = ["taken out", *map(_name, studies)]
    cells = [{"taken out": name, **lines[name]} for name in sorted(lines)]
    return pd.DataFrame(cells, columns=columns).fillna("")


def forgetting(studies: dict[str, pd.DataFrame]) -> pd.DataFrame:
    lines = []
    for dataset, study in studies.items():
        rows = study[study["study"] == "forgetting"]
        if rows.empty:
            continue
        found = rows.groupby("variant")["closed_set"].mean()
        lines.append(
            {
                "nine classes": SETS[dataset],
                "seeds": str(rows["seed"].nunique()),
                "learnt in turn": percent(found["in turn"]),
                "all at once": percent(found["at once"]),
                "difference": f"{100 * (found['in turn'] - found['at once']):+.1f}",
            }
        )
    return pd.DataFrame(lines)


def thresholders() -> pd.DataFrame:
    """The best five of each way, by the mean over sets of the mean over seeds and rows."""
    table = pd.read_csv(RESULTS / "thresholders.csv", keep_default_na=False)
    table["gmean"] = pd.to_numeric(table["gmean"], errors="coerce")
    seen = table.groupby(["fitted on", "thresholder", "dataset"])["gmean"].mean().unstack()
    seeds = table.groupby("dataset")["seed"].nunique()
    seen = seen[[d for d in ("digits", *SETS) if d in seen]].assign(
        mean=seen.mean(axis=1, skipna=False)
    )
    lines = []
    for way in ("", "calibration", "the points judged"):
        best = pd.DataFrame(seen.loc[way]).sort_values("mean", ascending=False)
        for name, row in best.iterrows() if not way else best.head(5).iterrows():
            label = f"`{name}`" if not way else str(name)
            cells = {f"{_name(d)}, {seeds[d]}": percent(row[d]) for d in best.columns[:-1]}
            lines.append({"cut by": label, "fitted on": way, **cells, "mean": percent(row["mean"])})
    return pd.DataFrame(lines)


def rules(runs: dict[str, Run]) -> pd.DataFrame:
    """What each rule expects of itself, leaving one piece of evidence out, mean over all steps."""
    lines = []
    for name, run in runs.items():
        found = pd.DataFrame([row["selection"]["by_rule"] for s in run.seeds for row in s["rows"]])
        taken = pd.Series([row["selection"]["rule"] for s in run.seeds for row in s["rows"]])
        cells = {
            f"`{rule}`": f"{percent(found[rule].mean())} ({(taken == rule).sum()})"
            for rule in found.columns
        }
        lines.append({"run": name, **cells})
    return pd.DataFrame(lines).fillna("")


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
    cells = _by_known(rows)
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
        cells = _by_known(pd.read_csv(RESULTS / f"study-{name}.csv"))
        lines += [
            {"learnt as": ways, "cut": cut, "calibrated on": points, **cells[variant]}
            for variant, cut, points in (
                ("2: calibrated on held-out points", own, "a tenth, held out"),
                ("limen", own, "training points"),
                (other, "one, `robust`" if own == "by class" else "by class", "training points"),
            )
        ]
    return pd.DataFrame(lines)


def _by_known(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Variant -> G-mean by number of classes known, and the mean."""
    means = rows.groupby(["variant", "known"])["gmean"].mean().unstack()
    found = means.assign(mean=means.mean(axis=1)).to_dict("index")
    return {
        str(variant): {str(known): percent(value) for known, value in cells.items()}
        for variant, cells in found.items()
    }


def folds(studies: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What cheaper folds cost and bring, against folds as long as the base model's training."""
    lines = []
    for dataset, study in studies.items():
        cost, gmean = _folds(study)
        for variant in cost.sort_values().index:
            if variant == FULL:
                continue
            both = gmean[[variant, FULL]].dropna()
            change = 100 * (both[variant] - both[FULL])
            error = f" ± {change.sem():.1f}" if len(change) > 1 else ""
            lines.append(
                {
                    "set, streams": f"{_name(dataset)}, {len(change)}",
                    "folds": "**limen's**" if variant == "limen" else variant,
                    "steps, of full cost": f"{100 * cost[variant] / cost[FULL]:.0f} %",
                    "G-mean": percent(both[variant].mean()),
                    "against full cost": f"{change.mean():+.1f}{error}",
                }
            )
    return pd.DataFrame(lines)


def _folds(study: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Steps of each variant's folds, and the G-mean of each seed (rows) with them (columns)."""
    mine = (study["study"] == "folds") | study["variant"].isin(["limen", FULL])
    rows = study[mine & study["seed"].isin(_seeds(study[study["variant"] == FULL]))]
    cost = rows.groupby("variant")["fold_steps"].mean()
    return cost, rows.groupby(["seed", "variant"])["gmean"].mean().unstack()


def draw_folds(studies: dict[str, pd.DataFrame]) -> None:
    """G-mean against what the folds cost; but for folds that take no step, far below."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for dataset, study in studies.items():
        cost, gmean = _folds(study)
        ax = left if dataset == "digits" else right
        colour = COLOURS[[*SETS].index(dataset)] if dataset in SETS else "#444c58"
        change = 100 * gmean.sub(gmean[FULL], axis=0)
        x, y, error = 100 * cost / cost[FULL], change.mean(), change.sem().fillna(0)
        line = [v for v in x.sort_values().index if v in ("limen", FULL) or v.startswith("epochs")]
        label = "fewer epochs" if ax is left else SETS[dataset]
        ax.errorbar(x[line], y[line], error[line], marker="o", color=colour, label=label)
        ax.plot(x["limen"], y["limen"], "o", ms=11, mfc="none", color=colour)
        for variant in [v for v in x.index if v not in line and x[v]]:
            ax.errorbar(x[variant], y[variant], error[variant], fmt="x", ms=7, color=COLOURS[1])
            if ax is left:
                side = 1 if y[variant] > 0 else -1
                end, style = y[variant] + side * error[variant], {"fontsize": "small"}
                style["va"] = "bottom" if side > 0 else "top"
                ax.annotate(
                    variant, (x[variant], end), (2, 2 * side), textcoords="offset points", **style
                )
    left.set(title="digits, ten streams (mean and its standard error)")
    right.set(title="seed 0 of each set")
    for ax in (left, right):
        ax.axhline(0, color="#7a8290", lw=1)
        ax.axhline(-1, color="#7a8290", lw=1, ls="--")
        ax.set(xlabel="steps of the folds, % of full cost", xlim=(0, 104))
        ax.set_ylabel("G-mean, points against full cost")
        _plain(ax)
    _save(figure, "method-folds")


def draw_memory(studies: dict[str, pd.DataFrame]) -> None:
    """G-mean against how many examples of a class are kept."""
    found = {d: s for d, s in studies.items() if (s["study"] == "memory").any()}
    figure = Figure(figsize=(4.2 * len(found), 3.4), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for ax, (dataset, study) in zip(axes, found.items(), strict=True):
        rows = study[study["study"] == "memory"]
        study = study[study["seed"].isin(_seeds(rows))]
        kinds = rows["variant"].str.rsplit(" ", n=1).str[0]
        sizes = rows["variant"].str.rsplit(" ", n=1).str[1].astype(int)
        points = rows.assign(kind=kinds, size=sizes)[["kind", "size", "gmean"]]
        main = study[study["variant"] == "limen"]["gmean"].mean()
        own = pd.DataFrame([{"kind": "reservoir", "size": 50, "gmean": main}])
        points = pd.concat([points, own])
        for kind, mine in points.groupby("kind", sort=False):
            line = mine.groupby("size")["gmean"].mean()
            colour = COLOURS[("reservoir", "herding", "k-centre").index(str(kind))]
            ax.plot(line.index, 100 * line, marker="o", color=colour, label=kind)
        everything = study[study["variant"] == "6: everything kept"]["gmean"].mean()
        ax.axhline(100 * everything, color="#7a8290", ls="--", lw=1.2, label="everything")
        ax.set(title=_name(dataset), xlabel="images kept of a class", xscale="log")
        ticks = sorted(points["size"].unique())
        ax.set_xticks(ticks, labels=[str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.set_ylabel("G-mean, %")
        _plain(ax)
    _save(figure, "method-memory")


def _name(dataset: str) -> str:
    return SETS.get(dataset, "digits, as CIFAR-10" if dataset == "digits-replay" else dataset)


def _seeds(rows: pd.DataFrame) -> list[int]:
    return rows["seed"].unique().tolist()


def _plain(ax: mpl.axes.Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize="small")


def _save(figure: Figure, name: str) -> None:
    with mpl.rc_context({"svg.hashsalt": "limen"}):
        figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})


def main() -> None:
    runs: dict[str, Run] = {}
    for dataset, name in SETS.items():
        for suffix, preset in (("limen", "small"), ("limen-paper", "paper")):
            run = finished(f"{dataset}-{suffix}")
            if run is not None:
                runs[f"{name}, `{preset}`"] = run
    small = {name: run for name, run in runs.items() if run.config["preset"] == "small"}
    paths = {dataset: RESULTS / f"study-{dataset}.csv" for dataset in SETS}
    studies = {dataset: pd.read_csv(path) for dataset, path in paths.items() if path.exists()}
    digits_too = {"digits": pd.read_csv(RESULTS / "study-digits.csv"), **studies}
    at_full = {d: study for d, study in digits_too.items() if (study["variant"] == FULL).any()}
    whole = overview(runs)
    tables = {
        "overview": whole,
        "headline": headline(whole),
        "development": development(),
        "choosing": choosing(),
        "digits": digits(),
        "calibration": calibration(),
        "rows": by_row(runs),
        "rules": rules(small),
        "scores": scores(small),
        "pairs": pairs(small),
        "ablation": ablation(digits_too),
        "folds": folds(at_full),
        "forgetting": forgetting(studies),
        "thresholders": thresholders(),
    }
    for name, table in tables.items():
        (TABLES / f"method-{name}.md").write_text(markdown(table))
    draw_folds(at_full)
    draw_memory(studies | {"digits-replay": pd.read_csv(RESULTS / "study-digits-replay.csv")})


if __name__ == "__main__":
    main()
