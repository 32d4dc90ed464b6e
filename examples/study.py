"""What each part of limen's method brings, what its folds cost, what its memory must hold.

python examples/study.py mnist --seeds 1
python examples/study.py digits --seeds 10 --only 'ablation 4:'

Every variant is a run of its own under runs/study/, which goes on where it stopped; models that a
variant does not change are taken over from the run of the full method (results/DATASET-limen, if it
was run with --keep-models). The figures go to
results/study-DATASET.csv, one line for each step of each variant and seed; examples/method.py and
method_pictures.py make tables and pictures of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cheaper_folds import left_out, settled, shared_start, three_networks
from limen.class_cuts import BY_CLASS
from limen.experiment import run as experiment
from limen.experiment.config import AS_MET, CHOSEN, HELD_OUT, RENEWED, RunConfig
from limen.experiment.plan import Unit, data_of
from limen.experiment.units import run_stream
from limen.shels import SHELSClassifier

ROOT = Path(__file__).resolve().parents[1]
# Of the work of a seed, what a variant can take over.
FOLDS = ["fold-*.npz"]
FOLD_MODELS = ["model-fold-*"]
BASE = ["model-5"]
STREAM = ["step-*", "memory-*", "model-[0-9]*"]
# Of the digits of scikit-learn nothing was wanted: on them, learnt as MNIST is or as CIFAR-10 is,
# rules, evidence and calibration were settled.
DIGITS = {"dataset": "digits", "epochs": 30}
# What goes with a network that is trained on with every class.
MOVES = {"score": CHOSEN, "evidence": AS_MET}
REPLAY = {**MOVES, "accommodation": "replay", "turns": 1, "rule": "robust", "fold_share": 1.0}
OWN = {"digits": DIGITS, "digits-replay": {**DIGITS, **REPLAY}}


def settings_of(dataset: str, **changes: Any) -> RunConfig:
    usual = {"dataset": dataset, "preset": "small", "method": "limen"}
    return RunConfig.resolve({**usual, **OWN.get(dataset, {}), **changes})


@dataclass(frozen=True)
class Variant:
    """One run: what it changes, which work it takes over, and who makes its models of the folds.

    `folds` puts them into the work folder of a seed and returns how many steps that took.
    """

    study: str
    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)
    folds: Callable[[RunConfig, int, Path], int] | None = None


def variants(config: RunConfig) -> list[Variant]:
    full, own = config.epochs, config.memory
    # Where new classes are not trained, models do not depend on what is kept.
    models = STREAM[2:] if config.accommodation == "prototype" else BASE
    other: tuple[str, dict[str, Any]] = ("4: by class", {"rule": BY_CLASS})
    if config.rule == BY_CLASS:
        other = ("4: one cut, robust", {"rule": "robust"})
    ablation = [
        Variant("ablation", "limen"),
        Variant("ablation", "1: one score, dot", {"score": "dot"}, FOLD_MODELS + models),
        Variant("ablation", "2: calibrated on held-out points", {"calibration": 0.1}),
        Variant(
            "ablation",
            "3: soft freezing",
            {"accommodation": "soft-freeze", **MOVES},
            [*FOLD_MODELS, *BASE, "memory-5.npz"],
        ),
        Variant("ablation", *other, FOLDS + STREAM),
        Variant("ablation", "4: halving", {"rule": "halving"}, FOLDS + STREAM),
        Variant("ablation", "4: consensus", {"rule": "consensus"}, FOLDS + STREAM),
        Variant("ablation", "4: rule chosen", {"rule": "chosen"}, FOLDS + STREAM),
        Variant(
            "ablation", "5: folds at full cost", {"fold_epochs": full, "fold_share": 1.0}, STREAM
        ),
        Variant("ablation", "6: everything kept", {"memory": 0}, FOLD_MODELS + models),
    ]
    first = {"evidence": HELD_OUT}
    ablation += [Variant("ablation", "4: no discoveries", first, FOLDS + STREAM)]
    if config.evidence == RENEWED:
        met = {"evidence": AS_MET}
        ablation += [
            Variant("ablation", "4: evidence as met", met, FOLDS + STREAM),
            Variant(
                "ablation", "4: one cut, evidence as met", {**met, "rule": "robust"}, FOLDS + STREAM
            ),
        ]
    if config.turns > 1:
        ablation += [
            Variant("ablation", "1: score chosen", {"score": CHOSEN}, FOLD_MODELS + models),
            Variant(
                "ablation",
                "3: replay",
                {"accommodation": "replay", "accommodation_lr": 3e-4, **MOVES},
                [*FOLD_MODELS, *BASE, "memory-5.npz"],
            ),
            Variant("ablation", "7: no turns", {"turns": 1}),
        ]
    epochs = {max(full // 12, 1), max(full // 4, 1), full // 2} - {config.fold_epochs}
    folds = [Variant("folds", f"epochs {n}", {"fold_epochs": n}, STREAM) for n in sorted(epochs)]
    fewer = {"fold_share": config.fold_share / 2}
    folds += [Variant("folds", "half the images", fewer, STREAM)]
    if config.accommodation == "prototype":
        lengths = {n: f"folds-epochs-{n}" for n in epochs}
        lengths[config.fold_epochs or full] = "ablation-limen"
        folds += [
            Variant("folds", "until settled", {}, STREAM, partial(settled, lengths)),
            Variant("folds", "three networks", {}, STREAM, three_networks),
            Variant("folds", "shared start", {}, STREAM, shared_start),
            Variant("folds", "left out only", {}, STREAM, left_out),
        ]
    sizes = {"reservoir": [10, 20, 100, 200], "herding": [20, 50], "k-centre": [20, 50]}
    memory = [
        Variant(
            "memory",
            f"{kind} {size}",
            {"memory": size, "memory_choice": kind},
            FOLD_MODELS + models,
        )
        for kind in sizes
        for size in sizes[kind]
        if (kind, size) != ("reservoir", own) and size < (config.per_class or size + 1)
    ]
    return ablation + folds + memory


def carry_out(
    variant: Variant, dataset: str, seeds: range, out: Path, jobs: int
) -> list[dict[str, Any]]:
    config = settings_of(dataset, **variant.changes)
    name = f"{variant.study}-{variant.name}".translate(str.maketrans(": ,", "---"))
    folder, main = out / name, out / "ablation-limen"
    experiment.run(config, [], folder)  # makes the folder
    own_folds = {}
    for seed in seeds:
        work = folder / "work" / f"seed-{seed:03d}"
        if variant.same and not work.exists() and not (folder / f"seed-{seed:03d}.json").exists():
            _take_over(main / "work" / work.name, work, variant.same)
        if variant.folds:
            own_folds[seed] = _once(work / "fold-steps.json", variant.folds, config, seed)
    records = experiment.run(config, seeds, folder, jobs=jobs, keep_models=True)
    lines = []
    for record in records:
        facts = json.loads((folder / f"facts-{record['seed']:03d}.json").read_text())
        stream = facts["steps"].pop("stream")
        folds = own_folds.get(record["seed"], sum(facts["steps"].values()))
        for row in record["rows"]:
            by = {v["policy"]: v for v in row["verdicts"] if v["objective"] == "gmean"}
            lines.append(
                {
                    "study": variant.study,
                    "variant": variant.name,
                    "seed": record["seed"],
                    "known": len(row["known"]),
                    **{m: by["limen"][m] for m in ("gmean", "total", "pooled")},
                    "cheating": by["cheating"]["gmean"],
                    "rate95": by["rate95"]["gmean"],
                    "closed_set": row["closed_set"],
                    "score": by["limen"]["score"],
                    "rule": by["limen"]["rule"],
                    "fold_steps": folds,
                    "steps": stream + folds,
                }
            )
    return lines


def _once(path: Path, make: Callable[[RunConfig, int, Path], int], config: Any, seed: int) -> int:
    """The steps that a variant's own folds took, made unless they are there."""
    if not path.exists():
        path.write_text(json.dumps(make(config, seed, path.parent)))
    return int(json.loads(path.read_text()))


def at_once(dataset: str, seeds: range, out: Path) -> list[dict[str, Any]]:
    """Closed-set accuracy at nine classes, of the stream and of a model trained on all at once.

    The latter by cosines with the rows that training made, and by the score in use.
    """
    lines = []
    for seed in seeds:
        config = settings_of(dataset, known=9)
        work = out / "at-once" / f"seed-{seed:03d}"
        known = run_stream(config, Unit(seed, None), work)[0].known
        model, data = SHELSClassifier.load(work / "model-9"), data_of(config)
        mine = np.isin(data.y_test, known)
        ways = {"at once": "cosine", "at once, score in use": config.score}
        seen = model.similarities(data.X_test[mine], [*{*ways.values()} - {CHOSEN}])
        right = {
            name: float(np.mean(data.y_test[mine] == model.classes_[seen[score].argmax(axis=1)]))
            for name, score in ways.items()
            if score in seen
        }
        record = json.loads((out / "ablation-limen" / f"seed-{seed:03d}.json").read_text())
        right["in turn"] = record["rows"][-1]["closed_set"]
        for name, share in right.items():
            facts = {"study": "forgetting", "variant": name, "seed": seed, "known": 9}
            lines.append({**facts, "closed_set": share})
    return lines


def _start_from(run: Path, target: Path) -> None:
    """The full method as it was run for the tables, if its models are still there."""
    if (run / "work").exists() and not target.exists():
        shutil.copytree(run, target)


def _take_over(source: Path, target: Path, patterns: list[str]) -> None:
    target.mkdir(parents=True)
    for pattern in patterns:
        for path in source.glob(pattern):
            copy = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, target / path.name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("dataset", choices=("mnist", "fashion-mnist", "cifar10", *OWN))
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--only", help="ablation, folds, memory, forgetting, or more of a name: 'ablation 4:'"
    )
    options = parser.parse_args()
    out = ROOT / "runs" / "study" / options.dataset
    _start_from(ROOT / "results" / f"{options.dataset}-limen", out / "ablation-limen")
    path = ROOT / "results" / f"study-{options.dataset}.csv"
    seeds = range(options.first, options.first + options.seeds)
    for variant in variants(settings_of(options.dataset)):
        wanted = f"{variant.study} {variant.name}".startswith(options.only or "")
        if variant.name != "limen" and not wanted:
            continue
        lines = carry_out(variant, options.dataset, seeds, out, options.jobs)
        if variant.name == "limen":
            _check_same(path, lines)
        _write(path, lines)
        print(variant.study, variant.name, flush=True)
    if options.only in (None, "forgetting"):
        _write(path, at_once(options.dataset, seeds, out))


def _check_same(path: Path, lines: list[dict[str, Any]]) -> None:
    """Variants are compared with the full method of the same seed: it must be that of the file."""
    if not path.exists():
        return
    keys = ["study", "variant", "seed", "known"]
    both = pd.DataFrame(lines).merge(pd.read_csv(path), on=keys)
    moved = both.loc[(both["gmean_x"] - both["gmean_y"]).abs() > 2e-5, "seed"].unique().tolist()
    if moved:
        raise SystemExit(
            f"the full method comes out otherwise than in {path.name}, seeds {moved}: on another "
            "processor variants do not compare with it. Take other seeds (--first), or remove "
            "these from the file and measure them anew."
        )


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    """Put the lines into the file, in place of those of the same variant and seed."""
    new, keys = pd.DataFrame(lines), ["study", "variant", "seed"]
    if path.exists():
        old = pd.read_csv(path)
        mine = old.set_index(keys).index.isin(new.set_index(keys).index)
        new = pd.concat([old[~mine], new])
    new.sort_values([*keys, "known"], kind="stable").round(5).to_csv(path, index=False)


if __name__ == "__main__":
    main()
