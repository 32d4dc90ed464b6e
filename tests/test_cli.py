"""The command line: help, plain errors, output for programs."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import typer

from limen.cli.app import app

ROOT = Path(__file__).resolve().parents[1]


def limen(*arguments, **settings):
    return subprocess.run(
        [sys.executable, "-m", "limen.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        **settings,
    )


def commands(group=None, path=()):
    """Every command as the words that call it."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(("words", "command"), [pytest.param(*c, id=c[0][-1]) for c in commands()])
def test_every_command_has_help_an_example_and_a_place_in_the_docs(words, command):
    assert "Example: limen " + " ".join(words) in command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{words}: {parameter.name} is not explained"
    page = (ROOT / "docs" / "commands.md").read_text()
    assert f"limen {' '.join(words)}" in page


def test_help_and_version_need_no_torch():
    program = "import sys; sys.argv[1:] = ['--help']\nfrom limen.cli import main\n"
    program += "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert re.fullmatch(r"limen \d+\.\d+\.\d+\S*\n", limen("--version").stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--dataset", "mnits"], "Did you mean 'mnist'"),
        (["run"], "dataset is needed"),
        (["run", "--dataset", "digits", "--config", "none.toml"], "cannot read none.toml"),
        (["run", "--dataset", "digits", "--known", "10"], "known must be below 10"),
        (["run", "--dataset", "digits", "--out", "/proc/x"], "cannot write to /proc/x"),
        (["report", "nowhere"], "no run folder"),
        (["data", "get", "svhn"], "Put train_32x32.mat"),
        (["data", "where", "mnits"], "Did you mean 'mnist'"),
        (["data", "where", "digits"], "comes with scikit-learn"),
    ],
)
def test_a_mistake_is_one_sentence_and_an_exit_code(arguments, message, tmp_path):
    done = limen(*arguments, cwd=tmp_path, env={**os.environ, "LIMEN_DATA": str(tmp_path)})
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_option_is_usage(tmp_path):
    done = limen("run", "--dateset", "mnist", cwd=tmp_path)
    assert done.returncode == 2
    assert "--dataset" in done.stderr
    assert "Traceback" not in done.stderr


def test_data_for_people_and_programs(tmp_path):
    environment = {**os.environ, "LIMEN_DATA": str(tmp_path)}
    lines = json.loads(limen("data", "list", "--json", env=environment).stdout)
    assert {line["name"]: line["at_hand"] for line in lines} == {
        "digits": True,
        **dict.fromkeys(("mnist", "fashion-mnist", "cifar10", "svhn", "gtsrb"), False),
    }
    assert str(tmp_path) in limen("data", "list", env=environment).stdout
    assert limen("data", "where", "mnist", env=environment).stdout == f"{tmp_path / 'mnist'}\n"
    facts = json.loads(limen("data", "get", "digits", "--json", env=environment).stdout)
    assert (facts["train"], facts["test"], facts["shape"]) == (1257, 540, [8, 8])


def smoke(*arguments, **settings):
    return limen(
        "run", "--dataset", "digits", "--preset", "smoke", "--seeds", "1", *arguments, **settings
    )


def test_a_run_told_as_lines_and_as_json(tmp_path):
    done = smoke("--jobs", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 trainings" in done.stderr
    assert "limen report runs/digits-smoke --html" in done.stdout
    assert re.search(r"mean .*/", done.stdout)
    again = smoke("--json", cwd=tmp_path)
    [event] = map(json.loads, again.stdout.splitlines())
    assert (event["event"], event["units_left"]) == ("start", 0)
    assert smoke("--quiet", cwd=tmp_path).stdout == ""
    refused = smoke("--epochs", "9", cwd=tmp_path)
    assert refused.returncode == 1
    assert "epochs: 2 there, 9 now" in refused.stderr


def test_a_training_that_diverges_is_one_sentence(tmp_path):
    done = smoke("--jobs", "1", "--lr", "1e6", cwd=tmp_path)
    assert done.returncode == 1
    assert "try a lower lr" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_folder_alone_says_how_to_go_on(tmp_path):
    assert smoke("--jobs", "1", "--epochs", "1", "--out", "mine", cwd=tmp_path).returncode == 0
    (tmp_path / "mine" / "seed-000.json").unlink()
    told = limen("report", "mine", cwd=tmp_path)
    assert "go on with limen run --out mine" in told.stderr
    again = limen("run", "--out", "mine", "--seeds", "1", "--jobs", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "mine" / "config.json").read_text())["epochs"] == 1
    assert (tmp_path / "mine" / "seed-000.json").exists()


def test_an_interrupt_keeps_what_is_finished_and_says_so(tmp_path):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "limen.cli", "run", "--dataset", "digits"),
            *("--preset", "small", "--epochs", "500", "--seeds", "1", "--jobs", "1"),
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("runs/*/work/*/running-*")):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the same command goes on" in said
    assert "Traceback" not in said


def test_the_demo_tells_its_story(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = limen("demo", "--out", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" comes. At eta = ") == 5
    assert done.stdout.count("Someone names it") == 4
    assert "3 seeds" in done.stdout
    assert "finding the cut on digits" in (tmp_path / "demo" / "report.html").read_text()


def test_a_toml_file_also_says_how_to_run(tmp_path):
    (tmp_path / "run.toml").write_text(
        'dataset = "digits"\npreset = "smoke"\nseeds = 1\njobs = 1\nout = "here"\nper-class = 10\n'
    )
    done = limen("run", "--config", "run.toml", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "seed-000.json").exists()
    (tmp_path / "run.toml").write_text('dataset = "digits"\nseeds = "many"\n')
    done = limen("run", "--config", "run.toml", cwd=tmp_path)
    assert done.returncode == 1
    assert "seeds cannot be 'many'" in done.stderr


def test_a_run_on_own_pictures_stays_out_of_them(tmp_path):
    from PIL import Image

    for value in range(5):
        (tmp_path / "pics" / f"c{value}").mkdir(parents=True)
        for number in range(6):
            Image.new("L", (8, 8), 40 * value + number).save(
                tmp_path / "pics" / f"c{value}" / f"{number}.png"
            )
    (tmp_path / "pics" / "c0" / "broken.png").write_bytes(b"")
    flags = ["--known", "4", "--preset", "smoke", "--seeds", "1", "--jobs", "1"]
    done = limen("run", "--dataset", "pics/", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "broken.png cannot be read" in done.stderr
    assert (tmp_path / "runs" / "pics-smoke" / "seed-000.json").exists()
    page = limen("report", "runs/pics-smoke", "--html", "r.html", cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    assert "c3" in (tmp_path / "r.html").read_text()


def on_a_terminal(*words, cwd):
    """What a person sees: the program with a terminal for its output."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 140, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "limen", *map(str, words)],
        stdout=there,
        stderr=there,
        cwd=cwd,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(there)
    seen = b""
    with contextlib.suppress(OSError):  # the other end is closed when the program ends
        while part := os.read(here, 65536):
            seen += part
    os.close(here)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


def test_on_a_terminal_a_run_shows_what_is_done_running_and_left(tmp_path):
    few = ("--known", 3, "--per-class", 100, "--epochs", 60, "--jobs", 1, "--seeds", 1)
    seen = on_a_terminal("run", "--dataset", "digits", "--preset", "smoke", *few, cwd=tmp_path)
    assert re.search(r"trainings: \d done, 1 running, \d left  time left (\?|\d+ s)", seen)
    assert "seed 0 stream: training, epoch" in seen
    assert "known classes" in seen
    assert "limen report runs/digits-smoke" in seen


def test_the_shell_is_told_how_a_command_goes_on():
    asked = {"_LIMEN_COMPLETE": "complete_bash", "COMP_WORDS": "limen pre", "COMP_CWORD": "1"}
    program = Path(sys.executable).with_name("limen")
    told = subprocess.run(
        [program], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["predict"]
