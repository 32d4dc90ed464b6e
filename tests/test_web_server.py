"""The server as a process: killed at any moment, asked by many, on SQLite and PostgreSQL."""

import contextlib
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2
import psutil
import pytest
from typer.testing import CliRunner

from conftest import serving
from limen.cli.app import app as cli
from test_web_api import files, pictures

SEEDS = [int(os.environ.get("LIMEN_SEED", "0"))]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A PostgreSQL server of our own, where one is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = found[-1] if found else shutil.which("initdb")
    if not initdb:
        if os.environ.get("LIMEN_POSTGRES") == "required":
            pytest.fail("no PostgreSQL was found: apt-get install postgresql")
        pytest.skip("no PostgreSQL was found: apt-get install postgresql")
    bin_, folder = Path(initdb).parent, tmp_path_factory.mktemp("postgres")
    as_user = {}
    if os.geteuid() == 0:  # it refuses to be run by root
        user = pwd.getpwnam("postgres")
        for path in (folder, *folder.parents):
            if path == Path("/tmp"):
                break
            path.chmod(0o755)
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = {"user": "postgres", "group": user.pw_gid, "extra_groups": []}
    data = str(folder / "data")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    make = [str(bin_ / "initdb"), "-D", data, "-A", "trust", "-U", "limen", "-E", "UTF8"]
    subprocess.run(make, check=True, capture_output=True, cwd="/", **as_user)
    command = [str(bin_ / "postgres"), "-D", data, "-p", str(port), "-k", str(folder)]
    server = subprocess.Popen(
        [*command, "-h", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        **as_user,
    )
    try:
        end = time.monotonic() + 60
        while subprocess.run(
            [bin_ / "pg_isready", "-h", "127.0.0.1", "-p", str(port)], capture_output=True
        ).returncode:
            assert time.monotonic() < end
            time.sleep(0.2)
        yield f"postgresql+psycopg://limen@127.0.0.1:{port}/"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """The flag that names a fresh database."""
    if request.param == "sqlite":
        return ["--db", f"sqlite:///{tmp_path / 'own.sqlite'}"]
    base, name = request.getfixturevalue("postgres"), f"limen{random.randrange(10**9)}"
    import psycopg

    plain = base.replace("+psycopg", "")
    with psycopg.connect(f"{plain}postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return ["--db", f"{base}{name}"]


def all_items(address):
    found, before = [], {}
    while True:
        page = httpx2.get(f"{address}/v1/items", params={"limit": 500, **before}).json()
        found += page["items"]
        if page["next"] is None:
            return {item["id"]: item for item in found}
        before = {"before": page["next"]}


def learners(server):
    """The learners of this server; other tests have theirs."""
    return [p for p in psutil.Process(server).children() if "learner" in str(p.cmdline())]


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_killed_whenever_nothing_that_was_confirmed_is_lost(model_copy, database, seed):
    """Kill server or learner at random moments; what was answered before must be there after."""
    rng = random.Random(seed)
    confirmed, noise, jobs = {}, set(), {}
    for round_ in range(4):
        with serving(model_copy, *database) as (process, address):
            state = httpx2.get(f"{address}/v1/model").json()
            there = all_items(address)
            assert confirmed.keys() <= there.keys()
            for number in noise:
                assert there[number]["state"] == "noise"
            for number, label in jobs.items():
                job = httpx2.get(f"{address}/v1/jobs/{number}").json()
                assert job["label"] == label
                assert job["state"] in ("done", "failed", "queued", "running")
                if job["state"] == "done":
                    assert job["version"] in [
                        v["version"] for v in httpx2.get(f"{address}/v1/models").json()
                    ]
            assert state["version"] >= 1
            killer = threading.Timer(rng.uniform(0.2, 8.0), os.kill, (process.pid, signal.SIGKILL))
            if round_ % 2:
                killer = threading.Timer(rng.uniform(1.0, 6.0), _kill_learners, [process.pid])
            killer.start()
            with contextlib.suppress(httpx2.HTTPError):
                for digit in (7, 8, 9):
                    answer = httpx2.post(f"{address}/v1/predict", files=files(pictures(digit, 15)))
                    items = answer.json()["items"]
                    confirmed |= {item["id"]: item for item in items}
                    label = f"{items[-1]['id']}/label"
                    if httpx2.post(f"{address}/v1/items/{label}", json={"noise": True}).is_success:
                        noise.add(items[-1]["id"])
                    if digit == 8 and round_ < 3:
                        wanted = {"name": f"r{round_}", "items": [i["id"] for i in items[:-1]]}
                        job = httpx2.post(f"{address}/v1/classes", json=wanted).json()
                        jobs[job["id"]] = job["label"]
                end = time.monotonic() + 8
                while time.monotonic() < end:
                    httpx2.get(f"{address}/healthz")
                    time.sleep(0.1)
            killer.cancel()
    with serving(model_copy, *database) as (_, address):
        end = time.monotonic() + 90
        while any(
            httpx2.get(f"{address}/v1/jobs/{number}").json()["finished"] is None for number in jobs
        ):
            assert time.monotonic() < end
            time.sleep(0.2)
        there = all_items(address)
        assert confirmed.keys() <= there.keys()
        states = {job["id"]: job for job in httpx2.get(f"{address}/v1/jobs").json()}
        known = [c["name"] for c in httpx2.get(f"{address}/v1/model").json()["classes"]]
        for number, label in jobs.items():
            assert (states[number]["state"] == "done") is (label in known)
        assert jobs
        assert noise


def _kill_learners(server):
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in learners(server):
            process.kill()


def test_the_learner_ends_with_its_server(model_copy):
    with serving(model_copy) as (process, address):
        answer = httpx2.post(f"{address}/v1/predict", files=files(pictures(8, 20)))
        wanted = {"name": "eight", "items": [i["id"] for i in answer.json()["items"]]}
        httpx2.post(f"{address}/v1/classes", json=wanted)
        end = time.monotonic() + 30
        mine = []
        while not mine:
            assert time.monotonic() < end
            mine = learners(process.pid)
        process.kill()
        psutil.wait_procs(mine, timeout=20)
        assert not any(p.is_running() for p in mine)


def test_many_clients_at_once_each_get_their_own_verdict(model_copy):
    """Micro-batches mix requests; answers must not be mixed up."""
    with serving(model_copy, "--rate", "0") as (_, address):
        sent = {digit: files(pictures(digit, 3, start=4)) for digit in range(10)}
        alone = {
            digit: [
                (i["label"], round(i["strangeness"], 6))
                for i in httpx2.post(f"{address}/v1/predict", files=body).json()["items"]
            ]
            for digit, body in sent.items()
        }
        wrong = []

        def ask(digit):
            with httpx2.Client() as client:
                for _ in range(5):
                    items = client.post(f"{address}/v1/predict", files=sent[digit]).json()["items"]
                    got = [(i["label"], round(i["strangeness"], 6)) for i in items]
                    if got != alone[digit]:
                        wrong.append((digit, got))

        threads = [threading.Thread(target=ask, args=(n % 10,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        text = httpx2.get(f"{address}/metrics").text
        batches = float(text.split("limen_batch_inputs_count ")[1].split()[0])
        assert batches < 110, "20 clients with 5 requests each were judged together at times"


def test_events_tell_what_happens_while_it_happens(model_copy):
    with (
        serving(model_copy) as (_, address),
        httpx2.stream("GET", f"{address}/v1/events") as events,
    ):
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        assert next(lines) == ": welcome"
        sent = httpx2.post(f"{address}/v1/predict", files=files(pictures(8, 30)), timeout=60)
        assert sent.status_code == 200
        told, end = [], time.monotonic() + 60
        for line in lines:  # at the latest, silence is broken every 15 s
            assert time.monotonic() < end, told
            if line.startswith("event:"):
                told.append(line.removeprefix("event: "))
            if "items" in told and "alarm" in told:
                break
        assert set(told) == {"items", "alarm"}


def test_the_demo_feeds_itself_with_the_token_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    token = "open-sesame-now"
    with serving("--demo", "--token", token) as (process, address):
        end = time.monotonic() + 60
        with httpx2.Client(headers={"Authorization": f"Bearer {token}"}) as client:
            while not client.get(f"{address}/v1/items").json()["items"]:
                assert time.monotonic() < end
                time.sleep(0.2)
        process.terminate()
        assert process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []


def test_it_stops_at_once_even_if_a_page_listens(model_copy):
    with serving(model_copy) as (process, address):
        with httpx2.stream("GET", f"{address}/v1/events") as events:
            assert next(events.iter_lines()) == ": welcome"
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        assert time.monotonic() - start < 4.5, "less than uvicorn waits for connections"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "name a model"),
        (["missing.limen"], "there is no model"),
        (["MODEL", "--host", "0.0.0.0"], "give a --token"),
        (["MODEL", "--db", "nonsense"], "not understood"),
        (["MODEL", "--demo"], "name a model"),
        (["MODEL", "--port", "TAKEN"], "cannot listen"),
    ],
)
def test_a_server_that_cannot_be_started_says_why_in_one_line(model_copy, arguments, word):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        names = {"MODEL": str(model_copy), "TAKEN": str(taken.getsockname()[1])}
        given = [names.get(argument, argument) for argument in arguments]
        command = [sys.executable, "-m", "limen", "serve", *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_has_help():
    shown = CliRunner().invoke(cli, ["serve", "--help"])
    assert shown.exit_code == 0
    for flag in ("--host", "--port", "--db", "--token", "--demo", "--webhook"):
        assert flag in shown.output


def test_schemathesis_finds_nothing(model_copy, tmp_path):
    """Requests made from the schema, right and wrong; /v1/events is left out: it has no end."""
    with serving(model_copy, "--rate", "0") as (_, address):
        httpx2.post(f"{address}/v1/predict", files=files(pictures(8, 20)))
        tool = Path(sys.executable).with_name("schemathesis")
        config = Path(__file__).parent / "fixtures" / "schemathesis.toml"
        command = [tool, f"--config-file={config}", "run", f"{address}/openapi.json"]
        limits = [
            "--exclude-path",
            "/v1/events",
            "--max-examples",
            "30",
            "--seed",
            "1",
            "--no-color",
        ]
        done = subprocess.run([*command, *limits], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-6000:]
        assert int(re.search(r"(\d+) generated", done.stdout)[1]) > 300
