"""The model in use and its versions, told."""

from __future__ import annotations

from limen import storage
from limen.web import records
from limen.web.schemas import AlarmOut, ClassOut, ModelOut, VersionOut, finite
from limen.web.service import Service


def model_facts(service: Service) -> ModelOut:
    served, examples = service.serving.current, service.serving.examples
    classifier, points = served.model.classifier, served.model.points()
    with service.database.session() as session:
        counts, named = records.counts(session), records.counts_by_name(session)
    classes = [
        ClassOut(
            name=label,
            kept=points[label],
            cut=finite(cut),
            named=named.get(label, 0),
            examples=[f"/media/{digest}" for digest in examples.get(label, [])],
        )
        for label, cut in zip(served.classes, classifier.thresholds_.tolist(), strict=True)
    ]
    return ModelOut(
        version=served.version,
        kind=served.model.name,
        inputs=served.model.inputs.to_dict(),
        eta=served.eta,
        score=classifier.selection_.score,
        rule=classifier.selection_.rule,
        expected_known=classifier.expected_known_accuracy_,
        expected_novel=classifier.expected_novel_accuracy_,
        classes=classes,
        alarm=AlarmOut(**service.inflow.alarm.facts()),
        counts=counts,
    )


def version_facts(service: Service) -> list[VersionOut]:
    in_use = service.serving.current.version
    return [
        VersionOut(
            version=facts["version"],
            parent=facts.get("parent"),
            in_use=facts["version"] == in_use,
            made=facts.get("made"),
            what=facts.get("what"),
            classes=facts["classes"],
            eta=facts["eta"]["history"][-1]["value"],
        )
        for facts in storage.versions(service.settings.model)
    ]
