"""Read run folders back: the records as one tidy table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pandas as pd

from limen.datasets.catalog import CATALOG
from limen.experiment.config import RunConfig
from limen.experiment.files import RunFolderError, read_json
from limen.experiment.policies import Record

METRICS: Mapping[str, str] = {
    "known": "known",
    "novel": "novel",
    "pooled": "total (pooled)",
    "total": "total (balanced)",
    "gmean": "G-mean",
}


@dataclass(frozen=True)
class Run:
    """A finished run, or what is finished of it."""

    path: Path
    config: Record
    seeds: list[Record]
    facts: list[Record]

    @property
    def title(self) -> str:
        novel = f" against {self.config['novel']}" if self.config["novel"] else ""
        method = ", limen's method" if self.policy == "limen" else ""
        return f"{self.config['dataset']}{novel}, {self.config['preset']} preset{method}"

    @property
    def policy(self) -> str:
        """The policy that the run is about."""
        return "limen" if self.config.get("method") == "limen" else "ours"

    @property
    def class_names(self) -> list[str]:
        """By number of the class."""
        if names := self.config.get("class_names"):
            return list(names)
        return list(CATALOG[self.config["dataset"]].class_names or ())

    @property
    def command(self) -> str:
        """The command that makes this run."""
        deciding = ("dataset", "preset", "accommodation", "method")
        given = {name: self.config[name] for name in deciding if name in self.config}
        usual = RunConfig.resolve(given).settings() | {"method": "paper"}
        if given.get("method") != "limen":
            usual["accommodation"] = "soft-freeze"
        words = [
            "limen run",
            "--dataset",
            self.config["dataset"],
            "--preset",
            self.config["preset"],
        ]
        words += ["--seeds", str(max(seed["seed"] for seed in self.seeds) + 1)]
        for name, value in self.config.items():
            if name in usual and value != usual[name]:
                flag = name.replace("_", "-")
                if isinstance(value, bool):
                    words.append(f"--{flag}" if value else f"--no-{flag}")
                else:
                    words += [f"--{flag}", str(value)]
        return " ".join(words)


def titles(runs: Sequence[Run]) -> list[str]:
    """Of each run; where several would have the same, with their folders."""
    plain = [run.title for run in runs]
    return [
        f"{title} ({run.path.name})" if plain.count(title) > 1 else title
        for run, title in zip(runs, plain, strict=True)
    ]


def load_run(path: Path) -> Run:
    """The run in a folder, with every seed that is finished."""
    if not (path / "config.json").is_file():
        raise RunFolderError(f"{path} is no run folder: it has no config.json. See limen run --out")
    config = read_json(path / "config.json")
    files = sorted(path.glob("seed-*.json"))
    if not files:
        raise RunFolderError(
            f"no seed of {path} is finished yet: go on with limen run --out {path}"
        )
    try:
        seeds = [read_json(file) for file in files]
        numbers = [f"{seed['seed']:03d}" for seed in seeds]
        facts = [read_json(path / f"facts-{number}.json") for number in numbers]
        run = Run(path, config, seeds, facts)
        frame(run)
    except (KeyError, TypeError, IndexError) as error:
        raise RunFolderError(f"the records in {path} are damaged: {error!r}") from error
    return run


def frame(run: Run) -> pd.DataFrame:
    """One line for each seed, row, objective and policy; accuracies between 0 and 1.

    ``row`` is how many classes the model has met: as many as it knows, if all were learnt.
    """
    lines = [
        {
            "dataset": run.config["dataset"],
            "preset": run.config["preset"],
            "seed": seed["seed"],
            "row": len(seed["rows"][0]["known"]) + place,
            "known_classes": len(row["known"]),
            **{name: row[name] for name in ("closed_set", "auroc", "fpr95")},
            **verdict,
        }
        for seed in run.seeds
        for place, row in enumerate(seed["rows"])
        for verdict in row["verdicts"]
    ]
    return pd.DataFrame(lines)


def taken_for(run: Run) -> dict[tuple[int, int], float]:
    """(held-out class, known class) -> share of the one that the first cut takes for the other.

    Classes by number; the mean over the seeds that knew both. Empty where folds were kept from
    before this was recorded.
    """
    shares: dict[tuple[int, int], list[float]] = {}
    for seed in run.seeds:
        for fold in seed["folds"]:
            for known in seed["rows"][0]["known"] if "taken_for" in fold else ():
                if known != fold["held_out"]:
                    share = fold["taken_for"].get(str(known), 0.0)
                    shares.setdefault((fold["held_out"], known), []).append(share)
    return {pair: sum(found) / len(found) for pair, found in shares.items()}


def published_beside(run: Run, objective: str) -> pd.DataFrame | None:
    """What the paper's tables have of the rows of a run; None if it is another experiment."""
    theirs = published()
    mine = (theirs["dataset"] == run.config["dataset"]) & (theirs["objective"] == objective)
    theirs = theirs[mine & theirs["row"].isin(frame(run)["row"])]
    other = run.config["novel"] or run.config["policy_detects"] or run.policy == "limen"
    return None if theirs.empty or other else theirs


def published() -> pd.DataFrame:
    """The paper's tables: mean and std in per cent, by data set, objective, row and method."""
    with resources.files("limen.experiment").joinpath("published.csv").open() as file:
        table = pd.read_csv(file)
    # The paper's tables report the pooled total under the plain name.
    return table.assign(metric=table["metric"].replace({"total": "pooled"})).rename(
        columns={"known_classes": "row", "method": "policy"}
    )
