"""What importing limen costs, seen from a fresh process."""

import json
import subprocess
import sys


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


def test_importing_limen_loads_no_heavy_package():
    loaded = run("import limen, sys, json; print(json.dumps(sorted(sys.modules)))")
    assert not {"torch", "matplotlib", "pandas", "sklearn", "scipy"} & set(loaded)


def test_the_classifier_loads_scikit_learn_only():
    """Beyond what scikit-learn itself imports (it takes in pandas where it is installed)."""
    code = """if True:
        import json, sys, time
        import sklearn.base, sklearn.model_selection, scipy.special
        before, start = set(sys.modules), time.perf_counter()
        from limen import OpenSetClassifier
        print(json.dumps([time.perf_counter() - start, sorted(set(sys.modules) - before)]))
    """
    seconds, loaded = run(code)
    assert not {"torch", "matplotlib", "pandas"} & set(loaded)
    assert seconds < 0.5


def test_every_public_name_is_there():
    missing = run(
        "import limen, json; print(json.dumps([n for n in limen.__all__ if not hasattr(limen, n)]))"
    )
    assert missing == []
