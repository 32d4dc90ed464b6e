"""The server through its API: what it says, keeps, learns, refuses and survives."""

import http.server
import io
import json
import os
import shutil
import signal
import struct
import threading
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import psutil
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from sklearn.datasets import load_digits

from limen.app.models import Settings, fit, judge, open_model, save
from limen.web.app import create_app
from limen.web.settings import Limits, ServerError, ServerSettings
from limen.web.uploads import png

DIGITS = load_digits()
IMAGES = np.round(DIGITS.images * 15.9375).astype(np.uint8)
TOKEN = "a-token-for-tests"


def pictures(digit, count, start=1):
    """Digits that the model was not fitted on."""
    rows = [row for row in np.flatnonzero(DIGITS.target == digit) if row % 2][start : start + count]
    return [IMAGES[row] for row in rows]


def files(arrays):
    return [("files", (f"{i}.png", png(array), "image/png")) for i, array in enumerate(arrays)]


@pytest.fixture
def client(model_copy):
    with served(model_copy) as client:
        yield client


def served(model, **settings):
    app = create_app(ServerSettings(model=model, **settings))
    return TestClient(app, base_url="http://127.0.0.1")


def send(client, digit, count, start=1):
    answer = client.post("/v1/predict", files=files(pictures(digit, count, start)))
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def wait_for_job(client, number, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job = client.get(f"/v1/jobs/{number}").json()
        if job["finished"]:
            return job
        time.sleep(0.1)
    raise AssertionError(f"job {number} did not end: {job}")


def teach(client, name, items):
    answer = client.post("/v1/classes", json={"name": name, "items": [i["id"] for i in items]})
    assert answer.status_code == 202, answer.text
    return wait_for_job(client, answer.json()["id"])


def test_a_verdict_is_that_of_the_model_and_can_be_asked_for_again(client, model_copy):
    arrays = [*pictures(3, 5), *pictures(8, 5)]
    told = client.post("/v1/predict", files=files(arrays)).json()
    model = open_model(model_copy)
    verdicts = judge(model, [""] * 10, model.inputs.rows(np.stack(arrays)))
    assert [item["label"] for item in told["items"]] == [v.label for v in verdicts]
    assert [item["strangeness"] for item in told["items"]] == pytest.approx(
        [v.strangeness for v in verdicts]
    )
    assert told["eta"] == pytest.approx(model.classifier.eta_)
    for item in told["items"]:
        assert item["novel"] is (item["strangeness"] >= told["eta"])
        assert item["margin"] == pytest.approx(told["eta"] - item["strangeness"])
        assert client.get(f"/v1/items/{item['id']}").json() == item


def test_one_picture_may_be_the_whole_body_and_large_ones_are_scaled_as_limen_predict_does(client):
    [array] = pictures(2, 1)
    large = np.kron(array, np.ones((50, 50), np.uint8))
    told = client.post(
        "/v1/predict", content=png(large), headers={"Content-Type": "image/png"}
    ).json()
    model = client.app.state.service.serving.current.model
    small = np.asarray(Image.fromarray(large).resize((8, 8), Image.Resampling.BILINEAR))
    [verdict] = judge(model, [""], model.inputs.rows(small[None]))
    assert told["items"][0]["strangeness"] == pytest.approx(verdict.strangeness)
    shown = Image.open(io.BytesIO(client.get(told["items"][0]["media"]).content))
    assert shown.size == (256, 256)


def test_items_come_in_pages_the_latest_first(client):
    send(client, 1, 7)
    first = client.get("/v1/items", params={"limit": 3}).json()
    second = client.get("/v1/items", params={"limit": 3, "before": first["next"]}).json()
    third = client.get("/v1/items", params={"limit": 3, "before": second["next"]}).json()
    ids = [item["id"] for page in (first, second, third) for item in page["items"]]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 7
    assert third["next"] is None


def test_what_a_person_says_is_kept_and_can_be_taken_back(client):
    item = next(item["id"] for item in send(client, 8, 20) if item["novel"])
    known = client.post(f"/v1/items/{item}/label", json={"label": "3"}).json()
    assert (known["state"], known["named"]) == ("reviewed", "3")
    noise = client.post(f"/v1/items/{item}/label", json={"noise": True}).json()
    assert (noise["state"], noise["named"]) == ("noise", None)
    back = client.delete(f"/v1/items/{item}/label").json()
    assert (back["state"], back["named"]) == ("novel", None)


@pytest.mark.parametrize(
    ("said", "status", "word"),
    [
        ({"label": "zebra"}, 404, "knows no class 'zebra'"),
        ({}, 422, "Field required"),
        ({"label": "3", "noise": True}, 422, "Extra inputs"),
        ({"label": "3", "extra": 1}, 422, "Extra inputs"),
        ({"noise": False}, 422, "should be True"),
        ({"label": " "}, 422, "should match pattern"),
        ({"label": "a\u0000b"}, 422, "should match pattern"),
    ],
)
def test_wrong_labels_are_refused_with_the_reason(client, said, status, word):
    item = send(client, 8, 1)[0]["id"]
    answer = client.post(f"/v1/items/{item}/label", json=said)
    assert answer.status_code == status
    assert word in answer.text


def test_a_class_is_previewed_learnt_recognised_undone_and_taken_up_again(client):
    items = send(client, 8, 40)
    rest = send(client, 8, 30, start=41)
    wanted = {"name": "eight", "items": [item["id"] for item in items]}
    preview = client.post("/v1/classes/preview", json=wanted).json()
    assert preview["points"] == 40
    assert not preview["few"]
    assert client.get("/v1/model").json()["version"] == 1

    job = teach(client, "eight", items)
    assert job["state"] == "done", job
    assert job["lesson"]["eta"] == pytest.approx([preview["eta"], preview["eta_after"]])
    model = client.get("/v1/model").json()
    assert model["version"] == job["version"] == 2
    assert "eight" in [one["name"] for one in model["classes"]]
    again = [client.get(f"/v1/items/{item['id']}").json() for item in rest]
    named = [item for item in again if item["label"] == "eight" and item["state"] == "known"]
    assert len(named) >= 20, "what was still waiting is recognised by the new version"

    assert client.post("/v1/models/1/activate").json()["version"] == 1
    assert client.get(f"/v1/items/{items[0]['id']}").json()["state"] == "novel"
    assert client.post("/v1/models/2/activate").json()["version"] == 2
    item = client.get(f"/v1/items/{items[0]['id']}").json()
    assert (item["state"], item["named"]) == ("reviewed", "eight")
    assert [v["in_use"] for v in client.get("/v1/models").json()] == [False, True]


def test_classes_that_cannot_be_learnt_are_refused_before_anything_is_done(client):
    items = [item["id"] for item in send(client, 8, 4)]
    for wanted, status in [
        ({"name": "3", "items": items}, 409),
        ({"name": "unknown", "items": items}, 409),
        ({"name": "x" * 101, "items": items}, 422),
        ({"name": "eight", "items": items[:1]}, 422),
        ({"name": "eight", "items": [items[0], items[0]]}, 422),
        ({"name": "eight", "items": [*items, 10**6]}, 404),
    ]:
        for path in ("/v1/classes", "/v1/classes/preview"):
            answer = client.post(path, json=wanted)
            assert answer.status_code == status, (wanted, answer.text)
    assert client.get("/v1/jobs").json() == []
    assert client.post("/v1/models/7/activate").status_code == 404


def test_a_preview_warns_of_few_examples(client):
    items = send(client, 8, 3)
    wanted = {"name": "eight", "items": [item["id"] for item in items]}
    assert client.post("/v1/classes/preview", json=wanted).json()["few"]


def test_a_killed_learner_leaves_the_model_and_says_why(client):
    items = send(client, 8, 20)
    wanted = {"name": "eight", "items": [item["id"] for item in items]}
    job = client.post("/v1/classes", json=wanted).json()
    end = time.monotonic() + 60
    learners = []
    while not learners and time.monotonic() < end:
        children = psutil.Process().children(recursive=True)
        learners = [p for p in children if "limen.web.learner" in " ".join(p.cmdline())]
    os.kill(learners[0].pid, signal.SIGKILL)
    ended = wait_for_job(client, job["id"])
    assert ended["state"] == "failed"
    assert "SIGKILL" in ended["error"]
    assert client.get("/v1/model").json()["version"] == 1
    assert {client.get(f"/v1/items/{i['id']}").json()["state"] for i in items} <= {"novel", "known"}
    assert teach(client, "eight", items)["state"] == "done", "and it can be taught again"


def test_a_class_the_learner_refuses_fails_with_its_reason(client):
    items = send(client, 8, 4)
    for path in client.app.state.service.blobs.folder.glob("??/*"):
        path.unlink()
    job = teach(client, "eight", items)
    assert job["state"] == "failed"
    assert "at least 2 are needed" in job["error"]


def test_everything_is_there_again_after_a_restart(model_copy):
    with served(model_copy) as client:
        send(client, 8, 30)
        send(client, 1, 5)
        item = client.get("/v1/items", params={"state": "novel"}).json()["items"][0]["id"]
        client.post(f"/v1/items/{item}/label", json={"noise": True})
        items, model = client.get("/v1/items").json(), client.get("/v1/model").json()
        assert model["alarm"]["raised"]
    with served(model_copy) as client:
        assert client.get("/v1/items").json() == items
        assert client.get("/v1/model").json() == model


def test_a_version_made_by_another_program_is_taken_over(client, model_copy):
    from limen.app.models import teach as teach_rows

    model = open_model(model_copy)
    lesson = teach_rows(model, model.inputs.rows(np.stack(pictures(9, 30))), "nine")
    save(lesson.model, model_copy, "learnt nine", keep=True)
    end = time.monotonic() + 20
    while client.get("/v1/model").json()["version"] != 2:
        assert time.monotonic() < end
        time.sleep(0.1)


def bomb():
    """A PNG of 1,000 bytes that says it has 3,600 million pixels."""
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10_000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def polyglot():
    buffer = io.BytesIO(png(IMAGES[0]))
    buffer.seek(0, 2)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("evil.html", "<script>alert(1)</script>")
    return buffer.getvalue()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.mark.parametrize(
    ("name", "data", "status"),
    [
        ("bomb.png", bomb(), 413),
        ("polyglot.png", polyglot(), 415),
        ("trailing.png", png(IMAGES[0]) + b"<script>alert(1)</script>", 415),
        ("evil.svg", SVG, 415),
        ("evil.png", SVG, 415),
        ("cut.png", png(IMAGES[0])[:-30], 415),
        ("text.png", b"hello", 415),
        ("empty.png", b"", 415),
        ("../../etc/passwd", b"root", 415),
        ("large.png", bytes(300_000), 413),
    ],
)
def test_hostile_uploads_are_refused_and_nothing_of_them_is_kept(model_copy, name, data, status):
    limits = Limits(body=400_000, picture=200_000)
    with served(model_copy, limits=limits) as client:
        good = ("files", ("good.png", png(IMAGES[0]), "image/png"))
        before = sorted(client.app.state.service.blobs.folder.glob("??/*"))
        answer = client.post("/v1/predict", files=[good, ("files", (name, data, "image/png"))])
        assert answer.status_code == status, answer.text
        assert "Traceback" not in answer.text
        assert client.get("/v1/items").json()["items"] == []
        assert sorted(client.app.state.service.blobs.folder.glob("??/*")) == before


def test_too_much_is_refused_whether_announced_or_not(model_copy):
    with served(model_copy, limits=Limits(body=10_000, inputs=3)) as client:
        assert client.post("/v1/predict", content=bytes(20_000)).status_code == 413

        def stream():
            for _ in range(20):
                yield bytes(1000)

        headers = {"Content-Type": "image/png"}
        assert client.post("/v1/predict", content=stream(), headers=headers).status_code == 413
        many = files(pictures(1, 4))
        assert client.post("/v1/predict", files=many).status_code == 400
        assert client.post("/v1/predict", files=many[:3]).status_code == 200


def test_names_of_files_never_become_paths(client):
    array = png(IMAGES[0])
    sent = [("files", ("../../../tmp/x\x07.png", array, "image/png"))]
    [item] = client.post("/v1/predict", files=sent).json()["items"]
    assert "/" not in item["name"]
    assert item["name"].isprintable()
    for path in ("/media/../../etc/passwd", "/media/..%2f..%2fetc%2fpasswd", "/media/" + "z" * 64):
        assert client.get(path).status_code in (404, 422)
    assert client.get(f"/media/{'0' * 64}").status_code == 404


def test_a_token_is_needed_everywhere_but_for_probes(model_copy):
    with served(model_copy, token=TOKEN) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200
        for path in ("/v1/items", "/v1/model", "/metrics", "/openapi.json", f"/media/{'0' * 64}"):
            assert client.get(path).status_code == 401, path
        assert client.post("/v1/predict", files=files(pictures(1, 1))).status_code == 401
        wrong = {"Authorization": f"Bearer {TOKEN}x"}
        assert client.get("/v1/items", headers=wrong).status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get("/v1/items", headers=right).status_code == 200


def test_a_person_signs_in_with_the_token_and_gets_a_cookie_for_this_site_only(model_copy):
    with served(model_copy, token=TOKEN) as client:
        page = client.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        assert client.post("/login", data={"token": "wrong"}).status_code == 401
        answer = client.post("/login", data={"token": TOKEN}, follow_redirects=False)
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in cookie
        assert client.get("/v1/items").status_code == 200


def test_guessing_tokens_is_slowed_down(model_copy):
    with served(model_copy, token=TOKEN) as client:
        codes = [client.post("/login", data={"token": str(i)}).status_code for i in range(12)]
        assert codes[0] == 401
        assert codes[-1] == 429


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_cannot_change_anything(client, headers):
    answer = client.post("/v1/predict", files=files(pictures(1, 1)), headers=headers)
    assert answer.status_code == 403
    assert client.get("/v1/items").json()["items"] == []


def test_other_names_for_this_machine_are_refused(client):
    assert client.get("/v1/items", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/v1/items", headers={"Host": "localhost:9999"}).status_code == 200


def test_every_answer_carries_the_headers_that_keep_a_browser_safe(client):
    for path in ("/", "/v1/items", "/nothing", "/static/limen.js", "/healthz"):
        headers = client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_one_address_may_not_ask_too_often(model_copy):
    with served(model_copy, limits=Limits(rate=5)) as client:
        codes = [client.get("/healthz").status_code for _ in range(30)]
        assert codes[:10] == [200] * 10
        assert 429 in codes


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"host": "0.0.0.0"}, "give a --token"),
        ({"host": "example.org"}, "give a --token"),
        ({"token": "short"}, "at least 12"),
        ({"webhook": "file:///etc/passwd"}, "http or https"),
        ({"window": 0}, "at least 1"),
        ({"db": "nonsense"}, "not understood"),
        ({"db": "oracle://x"}, "needs"),
        ({"db": "sqlite://"}, "lost at once"),
        ({"db": "sqlite:////nowhere/at/all.sqlite"}, "cannot use the database"),
    ],
)
def test_servers_that_would_be_unsafe_or_cannot_work_are_not_started(model_copy, settings, word):
    with pytest.raises(ServerError, match=word):
        create_app(ServerSettings(model=model_copy, **settings))


def test_what_is_too_much_is_dropped_the_oldest_known_first(model_copy):
    with served(model_copy, keep_items=30) as client:
        novel = send(client, 8, 10)
        send(client, 1, 60)
        service = client.app.state.service
        dropped = service.inflow.tidy()
        assert dropped == 40
        left = client.get("/v1/items").json()["items"]
        assert len(left) == 30
        assert {i["id"] for i in novel if i["state"] == "novel"} <= {i["id"] for i in left}
        for item in left:
            assert client.get(item["media"]).status_code == 200
        shown = {digest for digests in service.serving.examples.values() for digest in digests}
        on_disk = {path.name for path in service.blobs.folder.glob("??/*")}
        assert on_disk == shown | {item["media"].rsplit("/", 1)[1] for item in left}


def test_the_size_of_what_is_kept_is_bounded(model_copy):
    with served(model_copy, keep_bytes=3000) as client:
        send(client, 1, 60)
        service = client.app.state.service
        service.inflow.tidy()
        sizes = [
            len(client.get(i["media"]).content) for i in client.get("/v1/items").json()["items"]
        ]
        assert 1500 < sum(sizes) <= 3000


def test_the_alarm_is_raised_and_the_webhook_told(model_copy):
    told = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as hook:
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{hook.server_port}/alarm"
        with served(model_copy, webhook=address) as client:
            send(client, 1, 20)
            assert not client.get("/v1/model").json()["alarm"]["raised"]
            send(client, 8, 40)
            alarm = client.get("/v1/model").json()["alarm"]
            assert alarm["raised"]
            end = time.monotonic() + 20
            while not told:
                assert time.monotonic() < end
                time.sleep(0.05)
        hook.shutdown()
    assert len(told) == 1
    assert told[0]["event"] == "alarm"
    assert told[0]["unknown"] == alarm["unknown"]


def test_numbers_for_prometheus(client):
    send(client, 8, 10)
    text = client.get("/metrics").text
    assert 'limen_inputs_total{verdict="novel"}' in text
    assert "limen_model_version 1.0" in text
    assert 'limen_http_requests_total{method="POST",route="/v1/predict",status="200"} 1.0' in text


def test_errors_do_not_tell_what_is_inside(client):
    shutil.rmtree(client.app.state.service.blobs.folder)
    client.app.state.service.blobs.folder.write_text("no folder any more")
    answer = client.post("/v1/predict", files=files(pictures(1, 1)))
    assert answer.status_code == 500
    assert "the log has it as" in answer.json()["detail"]
    assert "Error" not in answer.text
    Path(client.app.state.service.blobs.folder).unlink()


@pytest.fixture(scope="module")
def table_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    lines = ["a,b,label"]
    for name, (x, y) in {"p": (0, 0), "q": (9, 0), "r": (0, 9)}.items():
        lines += [f"{x + u:.4f},{y + v:.4f},{name}" for u, v in rng.normal(size=(40, 2))]
    (folder / "table.csv").write_text("\n".join(lines))
    save(fit(folder / "table.csv", Settings(jobs=1)), folder / "table.limen", "fitted")
    return folder / "table.limen"


def test_rows_are_judged_by_a_model_of_tables(table_model, tmp_path):
    model = shutil.copytree(table_model, tmp_path / "table.limen")
    with served(model) as client:
        rows = [[0.1, 0.2], {"b": 0.0, "a": 9.1}, [60.0, 60.0]]
        items = client.post("/v1/predict", json={"rows": rows}).json()["items"]
        assert [item["label"] for item in items] == ["p", "q", "unknown"]
        assert client.get(items[0]["media"]).json() == pytest.approx([0.1, 0.2])
        assert client.get("/", headers={"Accept": "text/html"}).status_code == 200
        for wrong in ([[1.0]], [[1.0, "x"]], [[1.0, 1e39]], [{"a": 1.0}], [], "x", [[True, 1.0]]):
            assert client.post("/v1/predict", json={"rows": wrong}).status_code == 422, wrong
        assert client.post("/v1/predict", content=b"{", headers=JSON).status_code == 400
        assert client.post("/v1/predict", files=files(pictures(1, 1))).status_code == 415


JSON = {"Content-Type": "application/json"}


def test_rows_are_refused_by_a_model_of_pictures(client):
    assert client.post("/v1/predict", json={"rows": [[1.0, 2.0]]}).status_code == 415
    assert client.post("/v1/predict", content=b"x").status_code == 415


def test_a_database_that_is_away_for_a_while_does_not_end_learning(client):
    items = send(client, 8, 20)
    engine = client.app.state.service.database.engine
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE jobs RENAME TO away")
    client.app.state.service.learning.wake()
    time.sleep(1.5)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO jobs")
    assert client.get("/readyz").status_code == 200
    assert teach(client, "eight", items)["state"] == "done"


def test_a_damaged_file_spoils_neither_inbox_nor_learning_and_is_mended_when_sent_again(client):
    items = send(client, 8, 20)
    blobs = client.app.state.service.blobs
    digest = items[0]["media"].rsplit("/", 1)[1]
    path = blobs.folder / digest[:2] / digest
    path.write_bytes(b"")
    assert client.get("/", headers={"Accept": "text/html"}).status_code == 200
    wanted = {"name": "eight", "items": [item["id"] for item in items]}
    assert client.post("/v1/classes/preview", json=wanted).json()["points"] == 19
    assert teach(client, "eight", items)["lesson"]["points"] == 19
    send(client, 8, 1)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_after_too_many_wrong_tokens_the_right_one_must_wait_too(model_copy):
    with served(model_copy, token=TOKEN) as client:
        for guess in range(12):
            client.get("/v1/items", headers={"Authorization": f"Bearer {guess}"})
        right = {"Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "9.9.9.9"}
        assert client.get("/v1/items", headers=right).status_code == 429
        assert client.post("/login", data={"token": TOKEN}).status_code == 429
        assert client.get("/healthz").status_code == 200


def test_a_malformed_origin_is_a_foreign_one(client):
    answer = client.post("/v1/classes", json={}, headers={"Origin": "http://["})
    assert answer.status_code == 403
    assert "content-security-policy" in answer.headers


def test_what_is_too_much_is_dropped_at_the_start_too(model_copy):
    with served(model_copy) as client:
        send(client, 1, 40)
    with served(model_copy, keep_items=15) as client:
        assert len(client.get("/v1/items").json()["items"]) == 15


def test_one_name_is_learnt_once_at_a_time(client):
    first, second = send(client, 8, 10), send(client, 8, 10, start=20)
    wanted = [{"name": "eight", "items": [i["id"] for i in items]} for items in (first, second)]
    assert client.post("/v1/classes", json=wanted[0]).status_code == 202
    again = client.post("/v1/classes", json=wanted[1])
    assert again.status_code == 409
    states = {client.get(f"/v1/items/{item['id']}").json()["state"] for item in second}
    assert states <= {"novel", "known"}


def test_undo_is_offered_only_for_the_lesson_learnt_last(client):
    eights, nines = send(client, 8, 25), send(client, 9, 25)
    first, second = teach(client, "eight", eights), teach(client, "nine", nines)
    page = {"Accept": "text/html"}
    assert "Undo: forget" not in client.get(f"/jobs/{first['id']}", headers=page).text
    assert "Undo: forget" in client.get(f"/jobs/{second['id']}", headers=page).text


def test_more_rows_than_can_be_are_not_even_read(table_model, tmp_path):
    model = shutil.copytree(table_model, tmp_path / "table.limen")
    with served(model) as client:
        rows = b'{"rows": [' + b"[0,0]," * 20_000 + b"[0,0]]}"
        assert client.post("/v1/predict", content=rows, headers=JSON).status_code == 413
        shown = client.post("/v1/predict", json={"rows": [[60.0, 61.5]]}).json()["items"][0]
        assert shown["novel"]
        assert "a 60, b 61.5" in client.get("/", headers={"Accept": "text/html"}).text


def test_nothing_is_made_beside_a_model_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="there is no model"):
        create_app(ServerSettings(model=tmp_path / "nope.limen"))
    assert list(tmp_path.iterdir()) == []
