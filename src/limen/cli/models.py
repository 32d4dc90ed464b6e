"""limen fit, predict and learn: from folders of pictures to verdicts, and on to new classes."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from limen.cli.bars import counting, training
from limen.objectives import unknown_name

SOME_SKIPPED = 3  # exit code: done, but some inputs could not be read

ModelFile = Annotated[Path, typer.Argument(help="The model, such as model.limen.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def fit(
    data: Annotated[
        Path, typer.Argument(help="A folder of images per class, an .npz, .csv or .parquet.")
    ],
    out: Annotated[Path, typer.Option(help="Where to put the model.")] = Path("model.limen"),
    model: Annotated[
        str | None,
        typer.Option(help="shels, or a scikit-learn classifier such as SVC. Default: by the data."),
    ] = None,
    method: Annotated[str, typer.Option(help="limen, or paper.")] = "limen",
    objective: Annotated[str, typer.Option(help="gmean, total, pooled or f1.")] = "gmean",
    holdout: Annotated[
        float, typer.Option(help="Share of every class that tells what is usual.")
    ] = 0.2,
    memory: Annotated[
        int | None, typer.Option(min=0, help="Points of each class to keep; 0: all.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of shels.")] = None,
    label: Annotated[str, typer.Option(help="Column of labels in a table.")] = "label",
    jobs: Annotated[int | None, typer.Option(min=1, help="Trainings at once.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same model.")] = 0,
    as_zip: Annotated[bool, typer.Option("--zip", help="One file instead of a folder.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a model that is there, all its versions.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a model to known classes and let it choose its cut.

    Each class is held out in turn, to learn what a class never seen looks like.

    Example: limen fit pictures/ --out model.limen
    """
    from limen.app import models
    from limen.datasets import DatasetError
    from limen.storage import locked

    if method not in ("limen", "paper"):
        raise DatasetError(unknown_name("method", method, ["limen", "paper"]))
    if objective not in ("gmean", "total", "pooled", "f1"):
        raise DatasetError(unknown_name("objective", objective, ["gmean", "total", "pooled", "f1"]))
    if not 0 < holdout < 1:
        raise DatasetError(f"holdout must lie between 0 and 1, got {holdout}")
    _check_free(out, force)
    settings = models.Settings(model, method, objective, holdout, memory, epochs, label, jobs, seed)
    with training(quiet or as_json) as report:
        made = models.fit(data, settings, report)
    with locked(out) if out.exists() else nullcontext():
        version = models.save(made, out, f"fitted to {data.name}", as_zip=as_zip)
    facts = expectations(made)
    if as_json:
        typer.echo(as_text({**facts, "version": version, "saved": str(out)}))
    elif not quiet:
        _print_expectations(made, facts)
        typer.echo(f"\nsaved {out}")


def predict(
    model: ModelFile,
    inputs: Annotated[Path, typer.Argument(help="Images, a folder of them, or a table.")],
    out: Annotated[Path | None, typer.Option(help="Write the verdicts to this CSV file.")] = None,
    move_novel: Annotated[
        Path | None, typer.Option(help="Move pictures that are unknown to this folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    quiet: Quiet = False,
) -> None:
    """Name each input, or call it unknown; then say whether something new is there.

    Exit code 3 if some inputs could not be read; they are listed and skipped.

    Example: limen predict model.limen inbox/ --out verdicts.csv
    """
    from limen.app import models
    from limen.datasets import DatasetError

    opened, inputs = models.open_model(model), inputs.expanduser()
    if move_novel is not None and (opened.inputs.kind != "images" or inputs.suffix == ".npz"):
        raise DatasetError("--move-novel moves pictures that are files of their own")
    if move_novel is not None and move_novel.resolve().is_relative_to(inputs.resolve()):
        raise DatasetError(f"{move_novel} lies inside {inputs}: move to a folder elsewhere")
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise DatasetError(f"cannot write {out}: it is a folder, or there is no folder for it")
    tally, skipped = models.Tally(opened), 0
    with ExitStack() as stack:
        silent = quiet or as_json or out is None
        total = None if silent else opened.inputs.count(inputs)
        bar = stack.enter_context(counting("judged", total, silent))
        table = None
        if out is not None:
            part = out.with_name(f".{out.name}.part")
            stack.callback(part.unlink, missing_ok=True)
            file = stack.enter_context(part.open("w", newline="", errors="backslashreplace"))
            table = csv.writer(file)
            table.writerow(models.Verdict._fields)
        for batch in opened.inputs.stream(inputs):
            verdicts = models.judge(opened, batch.names, batch.rows)
            tally.add(verdicts)
            bar(len(verdicts))
            for name, why in batch.skipped:
                skipped += 1
                print(f"skipped {name}: {why}", file=sys.stderr)
            _show(verdicts, table, as_json, quiet)
            if move_novel is not None:
                _move([v.input for v in verdicts if v.margin <= 0], inputs, move_novel)
        if out is not None:
            file.close()
            part.replace(out)
    alarm = tally.alarm
    if as_json:
        facts = {"unknown": alarm.flagged, "total": alarm.total, "p_value": alarm.p_value}
        typer.echo(as_text({**facts, "alarm": alarm.raised, "skipped": skipped}))
    elif not quiet:
        typer.echo(str(alarm))
    if skipped:
        print(f"{skipped} inputs could not be read and were skipped", file=sys.stderr)
        raise typer.Exit(SOME_SKIPPED)


def learn(
    model: ModelFile,
    inputs: Annotated[Path, typer.Argument(help="Pictures or rows of the new class.")],
    label: Annotated[str, typer.Option(help="What the class is called.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it would do, and save nothing.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Teach the model a class it has never seen.

    The cut is improved on the class first, while it is still unknown; then the class is learnt. The
    result is a new version beside the old: see limen history and limen undo.

    Example: limen learn model.limen new/ --label zebra
    """
    from limen.app import models
    from limen.storage import locked

    with nullcontext() if dry_run else locked(model):
        opened = models.open_model(model)
        lesson = models.learn(opened, inputs, label)
        version = None
        if not dry_run:
            version = models.save(lesson.model, model, f"learnt {label}", keep=True)
    for note in lesson.model.notes:
        print(note, file=sys.stderr)
    facts = {k: v for k, v in asdict(lesson).items() if k != "model"} | {"version": version}
    if as_json:
        typer.echo(as_text(facts))
    elif not quiet:
        (eta, now), (before, after) = lesson.eta, lesson.old_accuracy
        typer.echo(f"{lesson.points} points of {label}: {lesson.noticed:.0%} noticed as unknown")
        typer.echo(f"eta {eta:.2f} -> {now:.2f}")
        typer.echo(f"old classes on held-out points: {before:.1%} -> {after:.1%} named rightly")
        typer.echo(f"{label} on held-out points: {lesson.new_accuracy:.1%}")
        kept = "nothing saved (--dry-run)" if dry_run else f"saved version {version} of {model}"
        typer.echo(kept)


def as_text(value: Any) -> str:
    """JSON that every program can read: what is not finite is null."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _check_free(out: Path, force: bool) -> None:
    """Refuse a place that is taken, before anything is trained."""
    from limen.storage import ModelFileError, read_manifest

    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    read_manifest(out)  # what is no model is never replaced
    if not force:
        raise ModelFileError(
            f"{out} is there already: choose another --out, or --force to replace it with all its "
            "versions"
        )


def expectations(model: Any) -> dict[str, Any]:
    """What a model expects of itself."""
    from limen.app.models import hardest

    classifier = model.classifier
    points, cuts = model.points(), classifier.thresholds_.tolist()
    classes = []
    for label, cut in zip(classifier.classes_.tolist(), cuts, strict=True):
        taken = classifier.taken_for_.get(label, {})
        classes.append(
            {
                "label": label,
                "points": points[label],
                "cut": cut,
                "noticed": 1 - sum(taken.values()),
                "taken_for": taken,
            }
        )
    return {
        "model": model.name,
        "score": classifier.selection_.score,
        "rule": classifier.selection_.rule,
        "eta": classifier.eta_,
        "expected_known": classifier.expected_known_accuracy_,
        "expected_novel": classifier.expected_novel_accuracy_,
        "classes": classes,
        "hardest": next(iter(hardest(model)), None),
        "notes": list(model.notes),
    }


def _print_expectations(model: Any, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from limen.app.models import FEW

    for note in facts["notes"]:
        print(note, file=sys.stderr)
    table = Table(box=None, header_style="bold")
    table.add_column("class")
    for name in ("kept", "cut", "noticed when unknown"):
        table.add_column(name, justify="right")
    table.add_column("else taken for")
    for one in facts["classes"]:
        taken = ", ".join(
            f"{label} {share:.0%}" for label, share in [*one["taken_for"].items()][:2]
        )
        cells = (str(one["points"]), f"{one['cut']:.3g}", f"{one['noticed']:.0%}")
        table.add_row(escape(one["label"]), *cells, escape(taken))
    Console().print(table)
    typer.echo(f"\nby {facts['score']} and {facts['rule']}, eta = {facts['eta']:.2f}")
    typer.echo(
        f"expects to name {facts['expected_known']:.0%} of known inputs rightly, and to notice "
        f"{facts['expected_novel']:.0%} of what it has never seen"
    )
    if facts["hardest"]:
        a, b, share = facts["hardest"]
        typer.echo(f"hardest to tell apart when unknown: {a}, {share:.0%} of it taken for {b}")
    few = [f"{label} ({n})" for label, n in model.points().items() if n < FEW]
    if few:
        print(f"warning: too few points to judge: {', '.join(few)}", file=sys.stderr)


def _show(verdicts: Any, table: Any, as_json: bool, quiet: bool) -> None:
    if table is not None:
        table.writerows(verdicts)
    elif as_json:
        for verdict in verdicts:
            print(as_text(verdict._asdict()))
    elif not quiet:
        for verdict in verdicts:
            near = f" (nearest: {verdict.nearest})" if verdict.margin <= 0 else ""
            print(f"{verdict.input}: {verdict.label}{near}, strangeness {verdict.strangeness:.2f}")


def _move(names: list[str], root: Path, target: Path) -> None:
    """Move pictures, keeping the folders they were in; a name that is taken gets a number."""
    from limen.datasets import DatasetError

    base = root if root.is_dir() else root.parent
    for name in names:
        place = target / Path(name).relative_to(base)
        number, free = 1, place
        while free.exists():
            free = place.with_stem(f"{place.stem}-{number}")
            number += 1
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(name, free)
        except OSError as error:
            raise DatasetError(f"cannot move {name} to {free}: {error.strerror}") from error
