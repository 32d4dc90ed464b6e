"""scikit-learn's own estimator checks."""

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from limen import OpenSetClassifier

TWO_CLASSES = "the check uses two classes; with one held out a classifier needs two more"
EXPECTED = {
    "check_classifier_data_not_an_array": TWO_CLASSES,
    "check_classifiers_classes": TWO_CLASSES,
    "check_classifiers_train": TWO_CLASSES,
    "check_estimators_dtypes": TWO_CLASSES,
    "check_estimators_nan_inf": TWO_CLASSES,
    "check_estimators_pickle": TWO_CLASSES,
    "check_fit2d_1feature": TWO_CLASSES,
    "check_fit_check_is_fitted": TWO_CLASSES,
    "check_fit_idempotent": TWO_CLASSES,
    "check_n_features_in": TWO_CLASSES,
    "check_pipeline_consistency": TWO_CLASSES,
}


@pytest.mark.filterwarnings("ignore::limen.DegenerateClassWarning")
@pytest.mark.filterwarnings("ignore::limen.UninformativeClassWarning")
@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
@parametrize_with_checks(
    [
        OpenSetClassifier(LogisticRegression(), random_state=0),
        OpenSetClassifier(LogisticRegression(), calibration="train", random_state=0),
    ],
    expected_failed_checks=lambda _: EXPECTED,
    xfail_strict=True,
)
def test_scikit_learn_check(estimator, check):
    check(estimator)
