"""Parts of the server by themselves: answers worked out by hand."""

import asyncio
import io
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from limen.app.inputs import Inputs
from limen.web.batching import Batcher, BusyError
from limen.web.blobs import Blobs
from limen.web.charts import eta_history, histogram
from limen.web.database import Item
from limen.web.endings import is_nothing_but
from limen.web.groups import grouped
from limen.web.guard import Buckets, same
from limen.web.refusals import RefusedError
from limen.web.settings import ServerSettings
from limen.web.uploads import png, read_row, stored_array


def run(coroutine):
    """In a thread of its own: a browser may have left a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@given(st.lists(st.lists(st.integers(), min_size=0, max_size=90), max_size=12))
def test_each_request_gets_the_results_of_its_own_inputs(requests):
    async def ask():
        batcher = Batcher(lambda xs: [x + 1 for x in xs], lambda xs: [2 * x for x in xs])
        batcher.start()
        try:
            return await asyncio.gather(*map(batcher.submit, requests))
        finally:
            await batcher.stop()

    assert run(ask()) == [[2 * (x + 1) for x in request] for request in requests]


def test_requests_that_come_together_are_judged_together():
    sizes = []

    def judge(xs):
        sizes.append(len(xs))
        time.sleep(0.05)
        return xs

    async def ask():
        batcher = Batcher(judge, lambda xs: xs)
        batcher.start()
        await asyncio.gather(*(batcher.submit([n]) for n in range(100)))
        await batcher.stop()

    run(ask())
    assert sum(sizes) == 100
    assert max(sizes) == 64
    assert len(sizes) <= 4


@pytest.mark.parametrize("step", ["judge", "record"])
def test_a_batch_that_fails_fails_its_requests_and_no_others(step):
    def broken(xs):
        if 13 in xs:
            raise RuntimeError("thirteen")
        return xs

    async def ask():
        steps = {"judge": lambda xs: xs, "record": lambda xs: xs, step: broken}
        batcher = Batcher(**steps)
        batcher.start()
        with pytest.raises(RuntimeError, match="thirteen"):
            await batcher.submit([13])
        assert await batcher.submit([14]) == [14]
        await batcher.stop()

    run(ask())


def test_what_waits_is_bounded():
    async def ask():
        batcher = Batcher(lambda xs: xs, lambda xs: xs)  # not started: all must wait
        waiting = [asyncio.create_task(batcher.submit([0] * 256)) for _ in range(16)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await batcher.submit([0])
        for task in waiting:
            task.cancel()

    run(ask())


def test_a_bucket_holds_its_burst_and_fills_at_its_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("limen.web.guard.time.monotonic", lambda: now[0])
    buckets = Buckets(rate=2.0, burst=3.0)
    assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
    assert buckets.take("b"), "each address has its own"
    now[0] = 0.5
    assert [buckets.take("a") for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]


@given(st.binary(), st.binary())
def test_secrets_are_the_same_if_they_are(a, b):
    assert same(a, b) is (a == b)


@given(st.binary())
def test_blobs_are_found_by_their_content(tmp_path_factory, data):
    blobs = Blobs(tmp_path_factory.mktemp("blobs"))
    digest = blobs.put(data)
    assert blobs.put(data) == digest
    assert blobs.get(digest) == data
    blobs.drop(digest)
    assert blobs.get(digest) is None


@pytest.mark.parametrize(
    "name", ["../" * 20 + "etc/passwd", "", "A" * 64, "0" * 63, "0" * 64 + "\n"]
)
def test_what_is_no_digest_is_no_path(tmp_path, name):
    with pytest.raises(ValueError, match="digest"):
        Blobs(tmp_path).get(name)


def item(number, point):
    return Item(id=number, version=1, feature=np.asarray(point, np.float16).tobytes())


def test_inputs_that_look_alike_are_grouped_the_largest_group_first():
    left = [item(n, [0.0, 0.01 * n]) for n in range(3)]
    right = [item(10 + n, [1.0, 0.01 * n]) for n in range(5)]
    bare = Item(id=99, feature=None)
    groups = grouped([*left, *right, bare], alike=0.5)
    assert [sorted(i.id for i in group) for group in groups] == [
        [10, 11, 12, 13, 14],
        [0, 1, 2],
        [99],
    ]
    assert grouped([], 0.5) == []
    assert grouped([bare], 0.5) == [[bare]]


def test_the_histogram_colours_by_the_cut_and_survives_infinity():
    drawn = ET.fromstring(histogram([0.0, 0.1, 5.0, np.inf], 2.0))
    kinds = [bar.get("class") for bar in drawn.iter("rect")]
    assert kinds.count("novel") == 1
    assert "1 of the latest 3 inputs" in drawn.get("aria-label")
    assert histogram([], 2.0) == ""


def test_names_in_the_history_stay_text():
    piece = {"eta": 1.0, "value": 1.0, "label": "<b>&", "source": "discovered"}
    drawn = ET.fromstring(eta_history([piece]))
    assert "<b>&: asked for 1.00, then 1.00" in [title.text for title in drawn.iter("title")]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_a_row_is_the_same_after_it_was_stored(row):
    inputs = Inputs("table", (3,))
    if max(map(abs, row)) >= 1e38:
        with pytest.raises(RefusedError):
            read_row("row", row, inputs)
        return
    received = read_row("row", row, inputs)
    np.testing.assert_array_equal(stored_array(received.stored, inputs), np.float32(row))


@pytest.mark.parametrize("shape", [(8, 8), (5, 7, 3)])
def test_a_picture_is_the_same_after_it_was_stored(shape):
    array = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    np.testing.assert_array_equal(stored_array(png(array), Inputs("images", shape)), array)


PICTURE = np.random.default_rng(1).integers(0, 255, (9, 7, 3), dtype=np.uint8)


def encoded(kind):
    buffer = io.BytesIO()
    Image.fromarray(PICTURE).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_a_picture_is_nothing_but_a_picture_until_something_is_behind_it(kind):
    data = encoded(kind)
    assert is_nothing_but(kind, data)
    for more in (b"<script>alert(1)</script>", data, b";", b"\0\0\0\0IEND\xaeB`\x82", b"\xff\xd9"):
        if not (kind == "JPEG" and more == data):  # cameras do put two in one file
            assert not is_nothing_but(kind, data + more), more
    for length in range(0, len(data), 7):
        assert not is_nothing_but(kind, data[:length])


@given(st.binary(max_size=300), st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "WEBP", "SVG"]))
def test_any_bytes_have_an_answer(data, kind):
    assert is_nothing_but(kind, data) in (True, False)


def test_only_known_names_are_answered_unless_a_token_protects(tmp_path):
    local = ServerSettings(model=tmp_path, hosts=("limen.example",))
    assert {"localhost", "127.0.0.1", "::1", "limen.example"} <= local.allowed_hosts
    assert ServerSettings(model=tmp_path, host="0.0.0.0", token="x" * 12).allowed_hosts is None
