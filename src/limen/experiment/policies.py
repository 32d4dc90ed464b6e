"""What each policy makes of a seed's models: its cut at every step, and how well that cut does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from limen.alarm import NoveltyAlarm
from limen.class_cuts import BY_CLASS, class_cuts
from limen.continual import ContinualEta
from limen.experiment.config import CHOSEN, HELD_OUT, OBJECTIVES, RENEWED, RunConfig
from limen.experiment.judging import Arrays, Step, after, again, aligned, under, view
from limen.experiment.plan import scores_of
from limen.selection import COMBINATIONS, Evidence, Selection, select
from limen.threshold import EtaChoice, search_eta

Record: TypeAlias = dict[str, Any]
Floats: TypeAlias = NDArray[np.float64]

_BINS = 120


def choose(known: Floats, right: NDArray[np.bool_], novel: Floats) -> dict[str, EtaChoice]:
    """The best cut for each objective, by the known points whose class is right."""
    return {name: search_eta(known[right], novel, name) for name in OBJECTIVES if right.any()}


def seed_record(
    config: RunConfig, seed: int, folds: Mapping[int, Arrays], steps: Sequence[Step]
) -> Record:
    """All that tables, tests and pictures need of one seed; the same however it was computed."""
    if config.method == "limen":
        return _limen_record(config, seed, folds, steps)
    fold_choices = _fold_choices(folds)
    found = [_choices(step) for step in steps]
    ours = {name: _ours(name, fold_choices, found, steps) for name in OBJECTIVES}
    rows = []
    for i, step in enumerate(steps):
        verdicts = [
            verdict
            for name in OBJECTIVES
            for verdict in _verdicts(
                step.arrays, name, _cuts(step.arrays, found[i], name, ours[name][i])
            )
        ]
        rows.append(_row(config, seed, step, step.arrays, verdicts, ours[config.objective][i]))
    start = ours[config.objective][0] if steps else 1.0
    return {"seed": seed, "folds": _fold_facts(fold_choices, folds, start), "rows": rows}


def _limen_record(
    config: RunConfig, seed: int, folds: Mapping[int, Arrays], steps: Sequence[Step]
) -> Record:
    """The same with the score chosen too, anew before every step, for each objective."""
    scores = scores_of(config)
    # Scores are judged by the one cut that comes nearest to a cut for every class.
    named = "robust" if config.rule == BY_CLASS else config.rule
    rules = tuple(COMBINATIONS) if named == CHOSEN else (named,)
    by_score = {s: {label: view(a, s) for label, a in folds.items()} for s in scores}
    choices = {s: _fold_choices(seen) for s, seen in by_score.items()}
    views = {s: [replace(step, arrays=view(step.arrays, s)) for step in steps] for s in scores}
    found = {s: [_choices(step) for step in views[s]] for s in scores}
    rows = []
    for i, step in enumerate(steps):
        verdicts, chosen = [], {}
        for name in OBJECTIVES:
            evidence = {s: _evidence(config, by_score[s], views[s][: i + 1], name) for s in scores}
            best = select(evidence, name, rules)
            arrays = views[best.score][i].arrays
            ours = _ours(name, choices[best.score], found[best.score], views[best.score])[i]
            cuts = _cuts(arrays, found[best.score][i], name, ours)
            told = _verdicts(arrays, name, cuts)
            if config.rule == BY_CLASS:
                own = _class_cuts(evidence[best.score], step.known, arrays, name)
                best = replace(best, rule=BY_CLASS, eta=float(own.mean()))
                judged = _verdicts(
                    aligned(arrays, step.known, own, best.eta), name, {"limen": best.eta}
                )
                told += [{**judged[0], "etas": own.tolist()}]
            else:
                told += _verdicts(arrays, name, {"limen": best.eta})
            chosen[name] = best
            verdicts += [{**v, "score": best.score, "rule": best.rule} for v in told]
        best = chosen[config.objective]
        if i == 0:
            facts = _fold_facts(choices[best.score], by_score[best.score], best.eta)
        shown = views[best.score][i].arrays
        row = _row(config, seed, step, shown, verdicts, best.eta)
        rows.append({**row, "selection": _expectations(best)})
    return {"seed": seed, "folds": facts, "rows": rows}


def _evidence(
    config: RunConfig, folds: Mapping[int, Arrays], steps: Sequence[Step], objective: str
) -> list[Evidence]:
    """What all classes held out and discovered say at the last of these steps, by one score."""
    *before, now = steps

    def renewed(arrays: Arrays, name: str) -> Arrays:
        return under(arrays, name) if config.evidence == RENEWED else {}

    pieces = []
    for label, a in sorted(folds.items()):
        today = renewed(a, after(len(now.known)))
        known = {*now.known} if today else {*folds}
        pieces.append(_piece(label, today or a, known - {label}, objective))
    for step in before if config.evidence != HELD_OUT else []:
        if not step.learnt or not step.arrays["train_right"].any():
            continue
        assert step.next is not None
        today = renewed(now.arrays, again(step.next))
        known = {*now.known} - {step.next} if today else {*step.known}
        a = today or {**step.arrays, "known": _known(step.arrays)}
        pieces.append(_piece(step.next, a, known, objective, discovered=True))
    return pieces


def _piece(
    label: int, a: Arrays, known: Iterable[int], objective: str, discovered: bool = False
) -> Evidence:
    """What a class says that was met with some classes known."""
    facts = {"label": label, "discovered": discovered, "known_then": sorted(known)}
    return Evidence.of(a["known"], a["novel"], objective, won=a["won"], **facts)


def _class_cuts(evidence: Sequence[Evidence], known: list[int], a: Arrays, name: str) -> Floats:
    return class_cuts(evidence, _known(a), a["train_class"], known, name)


def _known(a: Arrays) -> Floats:
    """Strangeness of usual points, infinite where the class is wrong."""
    strangeness: Floats = np.where(a["train_right"], a["train"], np.inf)
    return strangeness


def _expectations(best: Selection) -> Record:
    """What was chosen, what it expects of itself, and what the other scores and rules would."""
    by_score: dict[str, float] = {}
    for (score, _), value in best.table.items():
        by_score[score] = max(value, by_score.get(score, 0.0))
    by_rule = {rule: v for (score, rule), v in best.table.items() if score == best.score}
    return {
        "score": best.score,
        "rule": best.rule,
        "expected": best.expected,
        "by_score": by_score,
        "by_rule": by_rule,
    }


def _fold_facts(
    choices: Mapping[int, Mapping[str, EtaChoice]], folds: Mapping[int, Arrays], eta: float
) -> list[Record]:
    """The cuts each held-out class asks for, and what it is taken for at the cut in use."""
    return [
        {
            "held_out": label,
            "etas": {name: _plain(c) for name, c in found.items()},
            "taken_for": taken_for(folds[label], eta),
        }
        for label, found in sorted(choices.items())
    ]


def taken_for(fold: Arrays, eta: float) -> dict[str, float]:
    """Known class -> share of the held-out points that are taken for it, most first."""
    if "won" not in fold:  # a fold kept from before this was recorded
        return {}
    labels, counts = np.unique(fold["won"][fold["novel"] < eta], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(labels[i]): float(counts[i]) / len(fold["novel"]) for i in order}


def start_of_ours(objective: str, folds: Mapping[int, Mapping[str, EtaChoice]]) -> ContinualEta:
    """Stage one: the plain mean over the held-out classes, as in the paper."""
    etas = {label: choices[objective].eta for label, choices in folds.items() if choices}
    return ContinualEta(rule="halving").start(etas)


class Detector:
    """Asked at each step whether the next class is noticed, at the cut `ours` has then."""

    def __init__(self, config: RunConfig, seed: int, folds: Mapping[int, Arrays]) -> None:
        self._config, self._seed = config, seed
        self._folds = _fold_choices(folds)

    def __call__(self, steps: list[Step]) -> bool:
        found = [_choices(step) for step in steps]
        eta = _ours(self._config.objective, self._folds, found, steps)[-1]
        return alarms(self._config, self._seed, steps[-1], eta)["novel"].raised


def alarms(config: RunConfig, seed: int, step: Step, eta: float) -> dict[str, NoveltyAlarm]:
    """The verdicts on a batch of the next class, and on one of known test points."""
    rng = np.random.default_rng([seed, len(step.known), step.next or 0])

    def judge(strangeness: Floats) -> NoveltyAlarm:
        size = min(config.alarm_batch, len(strangeness))
        batch = rng.choice(strangeness, size, replace=False)
        return NoveltyAlarm.judge(batch, step.arrays["train"], eta, config.alarm_level)

    return {"novel": judge(step.arrays["novel"]), "known": judge(step.arrays["test"])}


def _fold_choices(folds: Mapping[int, Arrays]) -> dict[int, dict[str, EtaChoice]]:
    return {
        label: choose(a["known"], np.isfinite(a["known"]), a["novel"]) for label, a in folds.items()
    }


def _choices(step: Step) -> dict[str, EtaChoice]:
    return choose(step.arrays["train"], step.arrays["train_right"], step.arrays["novel"])


def _ours(
    objective: str,
    folds: Mapping[int, Mapping[str, EtaChoice]],
    found: Sequence[Mapping[str, EtaChoice]],
    steps: Sequence[Step],
) -> list[float]:
    """The cut in use at each step: every class that was learnt has improved the next."""
    eta = start_of_ours(objective, folds)
    values = []
    for step, choices in zip(steps, found, strict=True):
        values.append(eta.value)
        if step.learnt and choices:
            eta.update(choices[objective].eta, label=step.next)
    return values


def _cuts(
    a: Arrays, found: Mapping[str, EtaChoice], objective: str, ours: float
) -> dict[str, float]:
    return {
        "shels": 1.0,
        "cheating": found[objective].eta if found else 1.0,
        "ours": ours,
        "rate95": keeping(a["train"], 0.95),
    }


def _verdicts(a: Arrays, objective: str, cuts: Mapping[str, float]) -> list[Record]:
    return [
        {"policy": policy, "objective": objective, "eta": eta, **accuracies(a, eta)}
        for policy, eta in cuts.items()
    ]


def _row(
    config: RunConfig, seed: int, step: Step, a: Arrays, verdicts: list[Record], eta: float
) -> Record:
    """`a` and `eta`: what is shown, and decides where the policy detects."""
    row: Record = {
        "known": step.known,
        "next": step.next,
        "learnt": step.learnt,
        "closed_set": float(np.mean(a["test_right"])),
        **separation(a["test"], a["novel"]),
        "verdicts": verdicts,
        "histogram": _histogram(a),
        "confusion": a["confusion"].tolist(),
    }
    if config.policy_detects:
        judged = alarms(config, seed, replace(step, arrays=a), eta)
        row["alarms"] = {
            on: {"flagged": v.flagged, "total": v.total, "p_value": v.p_value, "raised": v.raised}
            for on, v in judged.items()
        }
    return row


def accuracies(a: Arrays, eta: float) -> dict[str, float]:
    """The five figures at a cut."""
    right = np.count_nonzero(a["test_right"] & (a["test"] < eta))
    caught = np.count_nonzero(a["novel"] >= eta)
    known, novel = right / len(a["test"]), caught / len(a["novel"])
    return {
        "known": known,
        "novel": novel,
        "total": (known + novel) / 2,
        "pooled": (right + caught) / (len(a["test"]) + len(a["novel"])),
        "gmean": math.sqrt(known * novel),
    }


def keeping(strangeness: Floats, share: float) -> float:
    """The lowest cut that calls at least this share of the points known.

    Infinite points cannot be kept: where they are too many, all others are. 1 if all are.

    >>> 2 < keeping(np.array([1.0, 2.0, 3.0, 4.0]), 0.5) < 2.01
    True
    """
    finite = strangeness[np.isfinite(strangeness)]
    if not finite.size:
        return 1.0
    place = min(math.ceil(share * len(strangeness)), len(finite)) - 1
    return float(np.nextafter(np.partition(finite, place)[place], np.inf))


def separation(known: Floats, novel: Floats) -> dict[str, float]:
    """How well strangeness tells the two apart at any cut: AUROC, FPR at 95 %.

    The second is the share of novel points taken for known by a cut that keeps 95 % of the known.
    """
    novelty = np.concatenate([np.zeros(len(known)), np.ones(len(novel))])
    scores = np.clip(np.concatenate([known, novel]), -1e300, 1e300)
    missed = np.mean(novel < keeping(known, 0.95))
    return {"auroc": float(roc_auc_score(novelty, scores)), "fpr95": float(missed)}


def _histogram(a: Arrays) -> Record:
    """Counts of strangeness for the picture; what lies outside is counted at the ends."""
    pooled = np.concatenate([a["test"], a["novel"]])
    low, high = np.quantile(pooled[np.isfinite(pooled)], [0.002, 0.99])
    low, high = math.floor(low * 10) / 10, max(math.ceil(high * 10) / 10, math.ceil(low) + 4.0)
    edges = np.linspace(low, high, _BINS + 1)
    counts = {
        name: np.histogram(np.clip(a[name], low, high), edges)[0].tolist()
        for name in ("test", "novel")
    }
    return {"low": low, "high": high, "known": counts["test"], "novel": counts["novel"]}


def _plain(choice: EtaChoice) -> Record:
    return {
        "eta": choice.eta,
        "value": choice.value,
        "known": choice.known_accuracy,
        "novel": choice.novel_accuracy,
    }
