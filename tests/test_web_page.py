"""The page in a real browser: from something never seen to a class with a name."""

import re

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from conftest import serving
from limen.web.uploads import png
from test_web_api import files, pictures, polyglot


@pytest.fixture
def site(model_copy):
    with serving(model_copy) as (_, address):
        yield address


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: m.type == "error" and problems.append(m.text))
    yield page
    context.close()
    assert not [p for p in problems if "415" not in p], problems


def send(address, digit, count, start=1):
    answer = httpx2.post(f"{address}/v1/predict", files=files(pictures(digit, count, start)))
    return answer.json()["items"]


def teach(page, name):
    """Tick the largest group from the keyboard, name it, and wait until it is being learnt."""
    page.locator("legend", has_text="alike").first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("n")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Teach it").click()
    page.wait_for_selector("#job")


def test_from_novelty_to_a_name_that_is_then_recognised_and_back(site, page):
    page.goto(site)
    expect(page.get_by_text("Nothing unknown is waiting")).to_be_visible()
    novel = [item for item in send(site, 8, 60) if item["novel"]]
    page.locator("legend", has_text="alike").first.wait_for()  # the page follows by itself
    page.get_by_text("Something new is here.").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("x")
    ticked = int(re.search(r"\d+", page.locator("#ticked").inner_text())[0])
    assert ticked >= 20, "those that look alike are ticked in one go"
    page.keyboard.press("Escape")
    expect(page.locator("#ticked")).to_have_text("None ticked")

    teach(page, "eight")
    page.reload()  # in the middle of learning
    page.wait_for_selector('#job[data-state="done"]', timeout=90_000)
    expect(page.get_by_role("heading", name="“eight” is known now")).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("version 2")
    fresh = send(site, 8, 20, start=61)
    named = [item for item in fresh if item["label"] == "eight"]
    assert len(named) > 0.5 * len(fresh)

    page.get_by_role("button", name="Undo: forget").click()
    page.get_by_text(" is in use.").wait_for()
    expect(page.locator("#facts")).to_contain_text("version 1")
    assert all(i["label"] != "eight" for i in send(site, 8, 10, start=61))
    item = httpx2.get(f"{site}/v1/items/{novel[0]['id']}").json()
    assert item["state"] == "novel"
    page.get_by_role("button", name="Use version 2").click()
    page.get_by_text(" is in use.").wait_for()
    expect(page.locator("#facts")).to_contain_text("version 2")


def test_noise_and_known_are_said_and_taken_back(site, page):
    items = [item["id"] for item in send(site, 8, 20) if item["novel"]]
    page.goto(site)
    page.locator(f'input[value="{items[0]}"]').check()
    page.keyboard.press("d")
    page.get_by_text("1 input called noise.").wait_for()
    assert httpx2.get(f"{site}/v1/items/{items[0]}").json()["state"] == "noise"
    page.keyboard.press("u")
    page.get_by_text("1 input back where they were.").wait_for()
    assert httpx2.get(f"{site}/v1/items/{items[0]}").json()["state"] == "novel"

    page.locator(f'input[value="{items[1]}"]').check()
    page.locator("#known").select_option("3")
    page.get_by_role("button", name="It is this").click()
    page.get_by_text("1 input named 3.").wait_for()
    page.goto(f"{site}/items?state=reviewed")
    page.locator(f'input[value="{items[1]}"]').check()
    page.get_by_role("button", name="Take back").click()
    page.get_by_text("1 input back where they were.").wait_for()
    assert httpx2.get(f"{site}/v1/items/{items[1]}").json()["state"] == "novel"


def test_pictures_that_are_dropped_are_judged_or_refused_with_the_reason(site, page):
    page.goto(site)
    good = {"name": "one.png", "mimeType": "image/png", "buffer": png(pictures(1, 1)[0])}
    bad = {"name": "evil.png", "mimeType": "image/png", "buffer": polyglot()}
    page.locator("#files").set_input_files([good, bad])
    page.get_by_role("button", name="Judge").click()
    page.get_by_text("there is more in this file than one picture").wait_for()
    expect(page.locator("#verdicts li").first).to_contain_text("strangeness")
    assert len(httpx2.get(f"{site}/v1/items").json()["items"]) == 1


def test_a_name_that_says_nothing_good_stays_text(site, page):
    evil = "<img src=x onerror=alert(1)>"
    sent = [("files", (evil, png(a), "image/png")) for a in pictures(8, 25)]
    httpx2.post(f"{site}/v1/predict", files=sent)
    page.goto(site)
    page.wait_for_selector(".tile")
    teach(page, evil)
    page.wait_for_selector('#job[data-state="done"]', timeout=90_000)
    for path in ("/classes", "/history", "/"):
        page.goto(f"{site}{path}")
        assert page.locator("img[src='x']").count() == 0
    page.goto(f"{site}/classes")
    expect(page.get_by_role("heading", name=evil)).to_be_visible()


def test_it_works_without_a_script(site, browser):
    send(site, 8, 30)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site)
    for box in page.locator(".group").first.locator("input[name=item]").all()[:5]:
        box.check()
    page.get_by_role("button", name="Teach").click()  # without a name nothing is sent or unticked
    expect(page.locator("input[name=item]:checked")).to_have_count(5)
    page.locator("#name").fill("eight")
    page.get_by_role("button", name="Teach").click()
    expect(page.get_by_text("Few examples.")).to_be_visible()
    page.get_by_role("button", name="Teach it").click()
    page.get_by_role("heading", name="“eight” is known now").wait_for(timeout=90_000)
    context.close()


def test_the_token_opens_the_page(model_copy, page):
    with serving(model_copy, "--token", "open-sesame-now") as (_, address):
        page.goto(address)
        page.get_by_label("Token").fill("open-sesame-now")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="What has it never seen?")).to_be_visible()
        page.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious_and_nothing_is_cut_off(site, browser, scheme, width):
    items = send(site, 8, 30)
    wanted = {"name": "eight", "items": [i["id"] for i in items[:20]]}
    job = httpx2.post(f"{site}/v1/classes", json=wanted).json()["id"]
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    for path in ("/", "/?sort=newest", "/classes", "/history", f"/jobs/{job}", "/items", "/login"):
        page.goto(f"{site}{path}")
        found = Axe().run(page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert not serious, (path, [(v["id"], v["nodes"][0]["html"]) for v in serious])
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} pixels wide"
    context.close()


def test_the_demo_has_something_to_name_within_a_minute(browser):
    with serving("--demo") as (_, address):
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector(".tile", timeout=60_000)
        page.get_by_text("Something new is here.").wait_for(timeout=60_000)
        page.close()
