"""limen info, history, undo, check and explain: what a model file holds, and if it still holds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from limen.cli.models import Json, ModelFile, Quiet, as_text

FAILED = 4  # exit code: the check was made and not passed


def info(model: ModelFile, as_json: Json = False) -> None:
    """Show classes, counts, eta and its history, versions, size and checksums.

    Everything is checked on the way: a model that can be shown can be used.

    Example: limen info model.limen
    """
    from limen import storage
    from limen.app.models import open_model
    from limen.cli.models import expectations

    opened = open_model(model)
    facts = storage.read_manifest(model)
    parts = {name: (p["bytes"], p["sha256"]) for name, p in facts["parts"].items()}
    told = {
        **expectations(opened),
        "inputs": opened.inputs.to_dict(),
        "version": facts["version"],
        "versions": [v["version"] for v in storage.versions(model)],
        "format": facts["format"],
        "limen": facts["limen"],
        "made": facts.get("made"),
        "bytes": sum(size for size, _ in parts.values()),
        "sha256": {name: digest for name, (_, digest) in parts.items()},
        "eta_history": facts["eta"]["history"],
    }
    if as_json:
        typer.echo(as_text(told))
        return
    size = "x".join(map(str, opened.inputs.shape))
    typer.echo(f"{model}: {opened.name} on {opened.inputs.kind} of {size}")
    typer.echo(f"version {told['version']} of {len(told['versions'])}, made {told['made']}")
    typer.echo(f"limen {told['limen']}, format {told['format']}, {told['bytes'] / 1e6:.1f} MB")
    for name, digest in told["sha256"].items():
        typer.echo(f"  {name} sha256 {digest}")
    typer.echo("\nclass, points kept, similarity demanded:")
    for one in told["classes"]:
        typer.echo(f"  {one['label']}, {one['points']}, {one['cut']:.4g}")
    typer.echo(f"\neta {told['eta']:.3f}, by {told['score']} and {told['rule']}:")
    for piece in told["eta_history"]:
        label, asked, value = piece["label"], piece["eta"], piece["value"]
        typer.echo(f"  {piece['source']} {label}: asked for {asked:.3f}, then {value:.3f}")
    typer.echo(
        f"expects {told['expected_known']:.0%} of known inputs named rightly, "
        f"{told['expected_novel']:.0%} of new ones noticed"
    )


def history(model: ModelFile, as_json: Json = False) -> None:
    """List the versions of a model; the one in use is marked.

    Example: limen history model.limen
    """
    from limen import storage

    current = storage.read_manifest(model)["version"]
    lines = [
        {
            "version": facts["version"],
            "in_use": facts["version"] == current,
            "made": facts.get("made"),
            "what": facts.get("what"),
            "classes": facts.get("classes"),
            "eta": facts["eta"]["history"][-1]["value"] if "eta" in facts else None,
        }
        for facts in storage.versions(model)
    ]
    if as_json:
        typer.echo(as_text(lines))
        return
    for line in lines:
        mark = "*" if line["in_use"] else " "
        count = len(line["classes"] or [])
        eta = "none" if line["eta"] is None else f"{line['eta']:.2f}"
        typer.echo(
            f"{mark} {line['version']:>3}  {line['made'] or '-'}  {line['what'] or 'saved'}  "
            f"({count} classes, eta {eta})"
        )


def undo(
    model: ModelFile,
    to: Annotated[
        int | None, typer.Option(help="The version to use. Default: the one before this.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Go back to the version this one was made from, or to any other. Nothing is lost.

    Example: limen undo model.limen
    """
    from limen import storage

    with storage.locked(model):
        facts = storage.read_manifest(model)
        current, target = facts["version"], facts.get("parent") if to is None else to
        if not isinstance(target, int):
            raise storage.ModelFileError(f"{model} has no version before {current}")
        storage.activate(model, target)
    if not quiet:
        typer.echo(f"{model} is at version {target}; limen undo --to {current} goes back")


def check(
    model: ModelFile,
    data: Annotated[Path, typer.Argument(help="Labelled data, as for limen fit.")],
    least: Annotated[
        float | None,
        typer.Option(help="Known accuracy wanted. Default: 5 points below what is expected."),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Strangeness has drifted if p is below this.")
    ] = 0.001,
    label: Annotated[str, typer.Option(help="Column of labels in a table.")] = "label",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check the model on labelled data: accuracy, novelty rate, drift.

    Exit code 4 if accuracy is too low or strangeness has drifted, so that it can guard a pipeline.

    Example: limen check model.limen new-pictures/
    """
    from limen.app import models

    found = models.check(models.open_model(model), data, label)
    wanted = found.expected - 0.05 if least is None else least
    reasons = []
    if found.known < wanted:
        reasons.append(f"known accuracy {found.known:.1%} is below {wanted:.1%}")
    if found.drift < level:
        reasons.append(f"strangeness has drifted by {found.shift:+.2f} (p = {found.drift:.2g})")
    if as_json:
        typer.echo(as_text({**asdict(found), "wanted": wanted, "failed": reasons}))
    elif not quiet:
        _print_check(found, reasons)
    if reasons:
        raise typer.Exit(FAILED)


def explain(
    model: ModelFile,
    input: Annotated[Path, typer.Argument(help="One picture, or a table of one row.")],
    out: Annotated[Path, typer.Option(help="The picture to make, .png or .svg.")] = Path(
        "explained.png"
    ),
    quiet: Quiet = False,
) -> None:
    """Draw why an input is known or unknown: similarity to each class, cuts, nearest examples.

    Example: limen explain model.limen strange.png --out why.png
    """
    from limen.app.explaining import draw
    from limen.app.models import open_model

    verdict = draw(open_model(model), input, out)
    if not quiet:
        typer.echo(
            f"{verdict.label}: strangeness {verdict.strangeness:.2f}, "
            f"{abs(verdict.margin):.2f} {'below' if verdict.margin > 0 else 'above'} the cut; "
            f"nearest class {verdict.nearest}"
        )
        typer.echo(f"drawn in {out}")


def _print_check(found: Any, reasons: list[str]) -> None:
    typer.echo(f"known classes: {found.known:.1%} named rightly, {found.expected:.1%} expected")
    typer.echo(f"drift of strangeness: {found.shift:+.2f}, p = {found.drift:.2g}")
    if found.novel is not None:
        typer.echo(f"other classes: {found.novel:.1%} noticed as unknown")
    typer.echo(f"{found.unknown_rate:.1%} of {found.points} points called unknown")
    typer.echo("passed" if not reasons else f"failed: {'; '.join(reasons)}")
