"""What README and docs show is what really happens."""

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


examples = load(ROOT / "docs" / "examples.py")
digits_stream = load(ROOT / "examples" / "digits_stream.py")


def test_the_pages_that_should_have_examples_have_them():
    assert {page.name for page in examples.pages()} >= {
        "README.md",
        "benchmarks.md",
        "digits.md",
        "guide.md",
    }


@pytest.mark.parametrize("page", examples.pages(), ids=lambda p: p.name)
def test_examples_and_tables_are_what_the_page_says(page):
    assert examples.refreshed(page.read_text()) == page.read_text()


@pytest.mark.parametrize("classifier", digits_stream.CLASSIFIERS)
def test_the_digits_table_is_made_from_its_records(classifier):
    records = pd.read_csv(digits_stream.RECORDS)
    shown = (digits_stream.TABLES / f"digits-{classifier}.md").read_text()
    assert digits_stream.table(records[records.classifier == classifier]) == shown


def test_the_records_can_be_measured_again():
    records = pd.read_csv(digits_stream.RECORDS)
    stored = records[(records.classifier == "SVC") & (records.seed == 0)]
    again = digits_stream.run(0, "SVC")
    pd.testing.assert_frame_equal(
        stored.reset_index(drop=True), again.round(6), atol=2e-6, check_dtype=False
    )


def test_the_demo_tells_its_story_and_draws_it(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr("sys.argv", ["digits.py", "--out", str(tmp_path)])
    load(ROOT / "examples" / "digits.py").main()
    told = capsys.readouterr().out
    assert told.count("something new is here") == 5
    assert "of 10 classes are named rightly" in told
    assert (tmp_path / "digits.png").stat().st_size > 10_000
