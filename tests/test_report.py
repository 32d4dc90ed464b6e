"""Statistics by hand, tables in every format, and the page in a real browser."""

import io
import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests

from limen.experiment.claims import claims
from limen.experiment.config import RunConfig
from limen.experiment.figures import confusion
from limen.experiment.files import RunFolderError, write_json
from limen.experiment.records import frame, load_run, published, taken_for, titles
from limen.experiment.report import html_report
from limen.experiment.statistics import overall, paired_p, summary
from limen.experiment.tables import (
    alarm_table,
    beside_published,
    csv,
    held_out_table,
    latex,
    main_table,
    write_up,
)

POLICIES = ("shels", "cheating", "ours", "rate95")


def write_run(folder, seeds=4, rows=(5, 6, 7, 8, 9), **config):
    """A run folder with made-up but possible figures."""
    facts = RunConfig.resolve({"dataset": "mnist", "preset": "small", **config}).settings()
    policies = (*POLICIES, "limen") if facts["method"] == "limen" else POLICIES
    write_json(folder / "config.json", {"format": 1, **facts})
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(10).tolist()
        record = {"seed": seed, "folds": [], "rows": []}
        for number in rows:
            verdicts = []
            for objective in ("gmean", "total"):
                for place, policy in enumerate(policies):
                    known, novel = 0.7 + 0.02 * place + 0.02 * rng.random(2)
                    verdicts.append(
                        {"policy": policy, "objective": objective, "eta": 1 + place / 4}
                        | {"known": known, "novel": novel, "total": (known + novel) / 2}
                        | {"pooled": (5 * known + novel) / 6, "gmean": math.sqrt(known * novel)}
                    )
            row = {
                "known": order[:number],
                "next": order[number] if number < 10 else None,
                "learnt": number < 9,
                "closed_set": 0.9,
                "auroc": 0.8,
                "fpr95": 0.5,
                "verdicts": verdicts,
                "histogram": {"low": -2.0, "high": 6.0}
                | {"known": rng.integers(0, 50, 120).tolist()}
                | {"novel": rng.integers(0, 50, 120).tolist()},
                "confusion": (90 * np.eye(number, dtype=int) + 1).tolist(),
            }
            if config.get("policy_detects"):
                raised = {"flagged": 9, "total": 10, "p_value": 1e-9, "raised": seed != 1}
                row["alarms"] = {"novel": raised, "known": {**raised, "raised": seed == 0}}
            record["rows"].append(row)
        write_json(folder / f"seed-{seed:03d}.json", record)
        units = {"stream": {"training": 9.0, "total": 10.0}}
        write_json(
            folder / f"facts-{seed:03d}.json",
            {"seconds": units, "steps": {"stream": 1000}, "versions": {"limen": "0"}},
        )
    return folder


@pytest.fixture
def run(tmp_path):
    return load_run(write_run(tmp_path / "mnist-small"))


# ---- statistics


def test_the_t_test_is_paired_and_its_side_depends_on_the_metric():
    values, base = pd.Series([3.0, 5.0, 7.0, 9.5]), pd.Series([2.0, 3.0, 6.0, 8.0])
    d = (values - base).to_numpy()
    t = d.mean() / (d.std(ddof=1) / 2)

    def upper(t, df=3):  # P(T > t) for three degrees of freedom, in closed form
        x = t / math.sqrt(df)
        return 0.5 - (x / (1 + x * x) + math.atan(x)) / math.pi

    assert paired_p(values, base, "known") == pytest.approx(2 * upper(t))
    assert paired_p(values, base, "pooled") == pytest.approx(upper(t))
    assert paired_p(base, values, "pooled") == pytest.approx(1 - upper(t))


def test_without_any_spread_there_is_still_an_answer():
    same = pd.Series([0.5, 0.6])
    assert paired_p(same, same, "known") == 1
    assert paired_p(same + 0.1, same, "pooled") == 0
    assert paired_p(same - 0.1, same, "pooled") == 1
    assert paired_p(same - 0.1, same, "known") == 0


def test_holm_runs_over_the_fifteen_tests_of_a_method(run):
    table = summary(frame(run), "gmean")
    ours = table[(table["policy"] == "ours") & table["p"].notna()]
    assert len(ours) == 15
    by_hand, worst = [], 0.0
    for rank, p in enumerate(sorted(ours["p"])):
        worst = max(worst, min(1.0, (15 - rank) * p))
        by_hand.append(worst)
    np.testing.assert_allclose(sorted(ours["p_holm"]), by_hand)
    assert table[table["policy"] == "shels"]["p"].isna().all()


def test_the_papers_corrected_p_values_come_out_the_same_way():
    theirs = published()
    for _, table in theirs[theirs["policy"] != "shels"].groupby(["table", "policy"]):
        assert len(table) == 15
        corrected = multipletests(table["p"], method="holm")[1]
        # p is printed with two decimals, so its multiple is known to 15 * 0.005 at best.
        np.testing.assert_allclose(corrected, table["p_holm"], atol=0.075)


def test_mean_and_std_over_seeds(run):
    rows = frame(run)
    chosen = rows[(rows.objective == "gmean") & (rows.policy == "ours") & (rows.row == 7)]
    line = summary(rows, "gmean").set_index(["row", "metric", "policy"]).loc[7, "known", "ours"]
    assert line["mean"] == pytest.approx(np.mean(chosen["known"]))
    assert line["std"] == pytest.approx(np.std(chosen["known"], ddof=1))
    mean = overall(rows, "gmean")["mean"]["ours"]["known"]
    everything = rows[(rows.objective == "gmean") & (rows.policy == "ours")]["known"]
    assert mean == pytest.approx(everything.mean())


def test_one_seed_has_no_spread_and_no_test(tmp_path):
    single = load_run(write_run(tmp_path / "one", seeds=1))
    table = summary(frame(single), "gmean")
    assert table["std"].isna().all()
    assert table["p"].isna().all()
    assert "±" not in write_up([single], "markdown").replace("Mean ± std", "")


# ---- tables


def test_ours_stands_beside_the_published_figure_with_the_difference(run):
    table = beside_published(run, "gmean")
    line = table[(table["known classes"] == "5") & (table["accuracy"] == "total (pooled)")].iloc[0]
    assert line["ours, paper"] == "91.8"
    assert float(line["ours"]) - 91.78 == pytest.approx(float(line["ours, difference"]), abs=0.1)
    assert len(table) == 15


def test_there_is_no_published_table_for_other_settings(tmp_path):
    run = load_run(write_run(tmp_path / "digits", dataset="digits"))
    assert beside_published(run, "gmean") is None
    crossed = load_run(write_run(tmp_path / "x", rows=(10,), novel="fashion-mnist"))
    assert beside_published(crossed, "gmean") is None
    assert "against fashion-mnist" in html_report([crossed])


def test_latex_has_as_many_cells_in_every_line_as_columns(run):
    text = latex(main_table(run, "gmean"), "MNIST_100 %")
    columns = re.search(r"tabular}{(\w+)}", text)[1]
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert all(line.count("&") == len(columns) - 1 for line in lines)
    assert r"MNIST\_100 \%" in text
    assert text.count(r"\begin") == text.count(r"\end") == 2
    assert "±" not in text


def test_csv_reads_back(run):
    table = pd.read_csv(io.StringIO(csv([run])))
    assert set(table["objective"]) == {"gmean", "total"}
    assert {"auroc", "fpr95", "known", "pooled"} <= set(table["metric"])
    assert len(table) == 2 * 5 * 4 * 9
    header = csv([run]).splitlines()[0].split(",")
    assert len(header) == len(set(header))
    assert {"mean", "p_holm", "stars"} <= set(header)


def test_alarms_are_counted(tmp_path):
    run = load_run(write_run(tmp_path / "d", policy_detects=True))
    table = alarm_table(run)
    assert table["noticed"].tolist() == ["3 of 4"] * 5
    assert table["missed"].tolist() == ["1"] * 5
    assert table["false alarms"].tolist() == ["1 of 4"] * 5
    assert "The batch alarm" in html_report([run])


def test_confusion_is_added_up_by_class():
    rows = [{"known": [2, 0], "confusion": [[3, 1], [0, 4]]}]
    shares = confusion([{"rows": rows}], 3)
    assert shares[2] == [0.25, 0, 0.75]  # of class 2, a quarter went to class 0
    assert shares[0] == [1, 0, 0]
    assert shares[1] == [None, None, None]


def test_what_a_held_out_class_is_taken_for_is_a_mean_over_the_seeds_that_knew_both(run):
    folds = [
        [{"held_out": 2, "taken_for": {"0": 0.5, "1": 0.25}}, {"held_out": 0, "taken_for": {}}],
        [{"held_out": 2, "taken_for": {"1": 0.75}}],
    ]
    seeds = [
        {"folds": folds[0], "rows": [{"known": [0, 1, 2]}]},
        {"folds": folds[1], "rows": [{"known": [1, 2, 3]}]},
    ]
    found = replace(run, seeds=seeds)
    shares = {(2, 0): 0.5, (2, 1): 0.5, (2, 3): 0.0, (0, 1): 0.0, (0, 2): 0.0}
    assert taken_for(found) == shares
    table = held_out_table(replace(found, config={**run.config, "class_names": list("abcd")}))
    assert table.to_numpy().tolist() == [["c", "100 %", "a (50 %), b (50 %)"], ["a", "0 %", ""]]
    old = [{"folds": [{"held_out": 2}], "rows": [{"known": [0, 1, 2]}]}]
    assert held_out_table(replace(run, seeds=old)) is None


def test_a_run_of_limens_method_is_about_limen_and_its_g_mean(tmp_path, run):
    own = load_run(write_run(tmp_path / "own", method="limen"))
    first = own.seeds[0]["rows"][0]["known"][0]
    own.seeds[0]["folds"].append({"held_out": first, "taken_for": {}})
    for seed in own.seeds:
        for place, row in enumerate(seed["rows"]):
            score = "dot" if place or seed["seed"] else "knn"
            row["selection"] = {"score": score, "rule": "mean", "expected": 0.5}
    text = write_up([own], "markdown")
    assert "| held out | unnoticed | taken for |" in text
    assert "| 5 | dot (3), knn (1) | mean (4) | 50.0 |\n| 6 | dot (4) |" in text
    assert (run.policy, own.policy) == ("ours", "limen")
    page, papers = html_report([own]), html_report([run])
    assert "points from limen to cheating" in page
    assert '<td class="limen">' in page
    assert '<td class="ours">' not in page
    assert "G-mean by number of known classes" in page
    assert "The paper's claims" in papers
    assert "The paper's claims" not in page
    assert "points from ours to cheating" in papers
    assert '<td class="limen">' not in papers
    assert "G-mean by number of known classes" not in papers


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    one, two = (load_run(write_run(tmp_path / name)) for name in ("a", "b"))
    assert titles([one]) == ["mnist, small preset"]
    assert titles([one, two]) == ["mnist, small preset (a)", "mnist, small preset (b)"]
    assert "<h2" in html_report([one, two])
    assert "mnist, small preset (b)</h2>" in html_report([one, two])


def test_who_marks_with_stars_says_what_they_mean(run, tmp_path):
    for text in (html_report([run]), write_up([run], "markdown"), write_up([run], "latex")):
        assert "p below 0.05, 0.01, 0.001 against shels" in text
    one = load_run(write_run(tmp_path / "one", seeds=1))
    assert "p below" not in html_report([one]) + write_up([one], "markdown")


def test_a_folder_without_a_run_says_what_is_missing(tmp_path):
    with pytest.raises(RunFolderError, match=r"no config\.json"):
        load_run(tmp_path)
    write_run(tmp_path / "empty", seeds=0)
    with pytest.raises(RunFolderError, match=r"no seed of .* is finished yet"):
        load_run(tmp_path / "empty")
    folder = write_run(tmp_path / "odd", seeds=1)
    write_json(folder / "seed-000.json", {"seed": 0, "rows": [{}]})
    with pytest.raises(RunFolderError, match="damaged"):
        load_run(folder)


def test_limen_report_writes_every_format(tmp_path):
    folder = write_run(tmp_path / "mnist-small")
    targets = {name: tmp_path / f"r.{name}" for name in ("html", "markdown", "latex", "csv")}
    flags = [part for name, path in targets.items() for part in (f"--{name}", str(path))]
    command = [sys.executable, "-m", "limen.cli", "report", str(folder)]
    subprocess.run([*command, *flags], check=True)
    assert "Beside the published figures" in targets["html"].read_text()
    assert r"\toprule" in targets["latex"].read_text()
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == targets["markdown"].read_text()


# ---- the page


def test_the_page_in_a_browser(tmp_path, browser):
    runs = [write_run(tmp_path / name, dataset=name) for name in ("mnist", "cifar10")]
    page_file = tmp_path / "report.html"
    page_file.write_text(html_report([load_run(path) for path in runs]))
    asked, said = [], []
    for width, scheme in ((1280, "light"), (390, "dark")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(page_file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("section").count() == 2
        assert page.locator("section").first.locator("svg").count() == 3 + 3 + 5 + 1
        # Nothing keeps a colour that only suits one scheme.
        ink = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
        assert ink == ("rgb(29, 36, 48)" if scheme == "light" else "rgb(231, 234, 239)")
        page.locator("summary", has_text="Run facts").first.click()
        assert "training steps of a seed" in page.locator("dl").first.inner_text()
        page.close()
    assert set(asked) == {page_file.as_uri()}
    assert said == []


def test_no_stand_in_colour_is_left_on_the_page(run):
    assert not re.search(r"#01010\d", html_report([run]))


def test_the_command_shown_makes_the_run(tmp_path):
    plain = load_run(write_run(tmp_path / "a", seeds=3))
    assert plain.command == "limen run --dataset mnist --preset small --seeds 3"
    changed = load_run(
        write_run(tmp_path / "b", seeds=1, accommodation="replay", lr=1e-3, policy_detects=True)
    )
    words = changed.command.split()
    assert words[:8] == ["limen", "run", "--dataset", "mnist", "--preset", "small", "--seeds", "1"]
    assert "--policy-detects" in words
    assert words[words.index("--lr") + 1] == "0.001"
    assert words[words.index("--accommodation") + 1] == "replay"


def test_claims_compare_the_rows_there_are(tmp_path):
    some = load_run(write_run(tmp_path / "some", rows=(8, 9)))
    theirs = published()
    mine = theirs[(theirs.dataset == "mnist") & (theirs.objective == "gmean") & (theirs.row >= 8)]
    totals = mine[mine.metric == "pooled"].set_index(["row", "policy"])["mean"].unstack()
    gain = (totals["cheating"] - totals["shels"]).mean()
    assert claims(some)[0].paper == pytest.approx(gain)
    assert claims(some)[0].holds  # cheating is above shels by construction
    detecting = load_run(write_run(tmp_path / "d", policy_detects=True))
    assert beside_published(detecting, "gmean") is None
    assert claims(detecting)[0].paper is None
