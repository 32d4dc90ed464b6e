"""limen run: the paper's experiment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from limen.cli.live import printing
from limen.experiment.config import ConfigError, RunConfig, read_settings
from limen.experiment.files import read_json

# Settings of RunConfig: None means not given, so that presets and --config can decide.
Text = str | None
Int = int | None
Float = float | None
_DATA, _NETWORK, _STREAM = "What is run", "Network and training", "New classes"


def run(
    dataset: Annotated[
        Text,
        typer.Option(
            help="digits, mnist, fashion-mnist, cifar10, svhn, gtsrb, or the path of your own.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    seeds: Annotated[
        Int, typer.Option(min=1, help="How many: 0, 1, 2 and so on. Default: 10.")
    ] = None,
    preset: Annotated[
        Text,
        typer.Option(
            help="paper: as published (default). small: a tenth of the work. smoke: seconds."
        ),
    ] = None,
    objective: Annotated[Text, typer.Option(help="gmean or total: what is shown first.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. The same run there is gone on with.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at once. Default: one for each core.")
    ] = None,
    scheduler: Annotated[
        Text, typer.Option(help="Run on this Dask scheduler instead: tcp://HOST:PORT.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings; flags go before it.")
    ] = None,
    novel: Annotated[
        Text, typer.Option(help="Know all classes of the data set; this other one is novel.")
    ] = None,
    policy_detects: Annotated[
        bool | None,
        typer.Option(help="Learn a class only if the batch alarm fires."),
    ] = None,
    known: Annotated[Int, typer.Option(help="Classes known at the start.")] = None,
    per_class: Annotated[Int, typer.Option(help="Training images of each class.")] = None,
    test_per_class: Annotated[Int, typer.Option(help="Test images of each class.")] = None,
    epochs: Annotated[Int, typer.Option(help="Of training.")] = None,
    batch_size: Annotated[Int, typer.Option(help="Images in a training step.")] = None,
    lr: Annotated[Float, typer.Option(help="Learning rate.")] = None,
    alpha: Annotated[Float, typer.Option(help="Weight of group sparsity.")] = None,
    beta: Annotated[Float, typer.Option(help="Weight of soft freezing.")] = None,
    score: Annotated[
        Text,
        typer.Option(
            help="Similarity: dot (the paper's), cosine, prototype, mahalanobis, knn, energy, msp, "
            "map-knn, deep-knn, deep-mahalanobis, or chosen: by the evidence."
        ),
    ] = None,
    rule: Annotated[
        Text,
        typer.Option(
            help="Of limen: by-class, or one cut: halving, mean, median, consensus, robust, chosen."
        ),
    ] = None,
    evidence: Annotated[
        Text,
        typer.Option(
            help="Of limen: as-met, renewed with every class learnt, or held-out: no discoveries."
        ),
    ] = None,
    accommodation: Annotated[
        Text, typer.Option(help="soft-freeze (the paper's), replay or prototype.")
    ] = None,
    accommodation_epochs: Annotated[Int, typer.Option(help="For each new class.")] = None,
    accommodation_lr: Annotated[Float, typer.Option(help="For new classes.")] = None,
    method: Annotated[
        Text, typer.Option(help="paper, or limen: limen's own, see docs/method.md. Default: paper.")
    ] = None,
    scale: Annotated[Float, typer.Option(help="Of the cosines that are the logits.")] = None,
    augment: Annotated[Text, typer.Option(help="shift, flip or shift-flip.")] = None,
    schedule: Annotated[Text, typer.Option(help="Of lr: constant or one-cycle.")] = None,
    norm: Annotated[bool | None, typer.Option(help="Batch normalisation.")] = None,
    turns: Annotated[
        Int, typer.Option(help="Quarter turns told apart in training: 1 or 4.")
    ] = None,
    distillation: Annotated[
        Float, typer.Option(help="For replay: weight of what the network said before.")
    ] = None,
    calibration: Annotated[
        Float, typer.Option(help="Share of every class that calibrates instead of training.")
    ] = None,
    fold_epochs: Annotated[Int, typer.Option(help="With a class held out.")] = None,
    fold_share: Annotated[
        Float, typer.Option(help="Of the images of each class, likewise.")
    ] = None,
    accommodation_steps: Annotated[Int, typer.Option(help="For replay, not epochs.")] = None,
    memory: Annotated[Int, typer.Option(help="Images kept of each class; 0: all.")] = None,
    memory_choice: Annotated[Text, typer.Option(help="reservoir, herding or k-centre.")] = None,
    alarm_batch: Annotated[Int, typer.Option(help="Inputs the alarm is judged on.")] = None,
    alarm_level: Annotated[Float, typer.Option(help="Of the alarm's test.")] = None,
    keep_models: Annotated[
        bool | None, typer.Option(help="Keep the models of finished seeds.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Repeat the paper's experiment; go on where an earlier run stopped.

    Each seed holds out every known class in turn, trains the base model, then meets the other
    classes one by one. One trained trajectory serves every policy and both objectives.

    Example: limen run --dataset mnist --preset small --seeds 3
    """
    flags: dict[str, Any] = {
        "dataset": dataset, "novel": novel, "preset": preset, "known": known,
        "per_class": per_class, "test_per_class": test_per_class, "epochs": epochs,
        "batch_size": batch_size, "lr": lr, "alpha": alpha, "beta": beta, "score": score,
        "accommodation": accommodation, "accommodation_epochs": accommodation_epochs,
        "accommodation_lr": accommodation_lr, "policy_detects": policy_detects,
        "method": method, "scale": scale, "augment": augment, "schedule": schedule, "norm": norm,
        "calibration": calibration, "fold_epochs": fold_epochs, "fold_share": fold_share,
        "accommodation_steps": accommodation_steps, "memory": memory,
        "distillation": distillation, "turns": turns, "rule": rule, "memory_choice": memory_choice,
        "evidence": evidence,
        "objective": objective, "alarm_batch": alarm_batch, "alarm_level": alarm_level,
    }  # fmt: skip
    how: dict[str, Any] = {
        "seeds": seeds, "out": out, "jobs": jobs, "scheduler": scheduler, "keep_models": keep_models
    }  # fmt: skip
    given = {name: value for name, value in {**flags, **how}.items() if value is not None}
    settings = {**(read_settings(config) if config else {}), **given}
    how = {name: settings.pop(name, None) for name in how}
    _check_how(how)
    resolved = RunConfig.resolve({**_begun(settings, how["out"]), **settings})
    from joblib import cpu_count

    from limen.experiment import run as experiment

    folder = Path(how["out"] or default_folder(resolved))
    with printing(folder, resolved.objective, as_json, quiet) as show:
        try:
            experiment.run(
                resolved,
                range(how["seeds"] or 10),
                folder,
                jobs=how["jobs"] or cpu_count(),
                scheduler=how["scheduler"],
                keep_models=bool(how["keep_models"]),
                report=show,
            )
        except RuntimeError as error:
            from limen.shels import TrainingDivergedError

            if not isinstance(error, TrainingDivergedError):
                raise
            raise ConfigError(
                f"{error}. {folder} holds this setting: choose another --out"
            ) from error
        except KeyboardInterrupt:
            typer.echo(
                f"\nstopped. What is finished is kept in {folder}: the same command goes on.",
                err=True,
            )
            raise typer.Exit(130) from None


def _begun(settings: dict[str, Any], out: str | Path | None) -> dict[str, Any]:
    """The settings of the run in a folder, where no other data set is named."""
    stored = Path(out or "") / "config.json"
    if "dataset" in settings or out is None or not stored.is_file():
        return {}
    names = {field.name for field in dataclasses.fields(RunConfig)}
    return {name: value for name, value in read_json(stored).items() if name in names}


def _check_how(how: dict[str, Any]) -> None:
    """What a TOML file says of how to run; flags are checked already."""
    kinds = {"seeds": int, "jobs": int, "out": (str, Path), "scheduler": str, "keep_models": bool}
    for name, kind in kinds.items():
        value = how[name]
        wrong = not isinstance(value, kind) or (kind is int and value < 1)  # type: ignore[arg-type]
        if value is not None and wrong:
            raise ConfigError(f"{name} cannot be {value!r}")


def default_folder(config: RunConfig) -> Path:
    """Where a run goes if nothing is said: a name for what sets it apart."""
    names = [Path(name).resolve().stem for name in (config.dataset, config.novel) if name]
    parts = ["-vs-".join(names), config.preset]
    parts += ["detects"] if config.policy_detects else []
    parts += [config.method] if config.method != "paper" else []
    return Path("runs") / "-".join(parts)
