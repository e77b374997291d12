"""The page of `slime view` in Chromium, by Playwright: skipped where one of them is not installed (CONTRIBUTING.md)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import PROGRAM, Program

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
from made_up_run import write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no Chromium: apt-get install chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
LIMIT_MS = 60_000  # a busy machine takes seconds for what takes none
playwright.expect.set_options(timeout=LIMIT_MS)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view") / "runs"
    write_run(folder / "first", steps=12, samples=16, seed=1)
    write_run(folder / "second", steps=60, samples=16, seed=2, hack_at=30, flags={"--lr": 3e-6})
    path = folder / "first" / "rollouts" / "step_000011.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0].update(prompt=HOSTILE, response=HOSTILE, token_texts=[HOSTILE, "\n"], rollout_log_probs=[-1, -1], train_log_probs=[-1, -9], response_length=2)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def server(runs):
    with Program("view", str(runs), "--port", "0") as server:
        yield server


@pytest.fixture
def page(browser, server):
    """A page whose errors, those of its Content-Security-Policy included, fail the test; it may ask its own server alone."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(LIMIT_MS)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.watch = lambda request: None if request.url.startswith(server.url) else problems.append(request.url)
    page.on("request", page.watch)
    page.open = lambda fragment="": page.goto(f"{server.url}/#{fragment}")
    yield page
    page.close()
    assert not problems


def card(page, title):
    return page.locator(f".card:has(.name[title='{title}'])")


def test_curves_of_two_runs_grow(page, runs):
    page.open()
    reward = card(page, "Reward")
    playwright.expect(reward.locator(".legend .label")).to_have_text(["first", "second"])
    playwright.expect(reward.locator("svg path[fill='none']")).to_have_count(2)
    with open(runs / "second" / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 59, "time": 2e9, "rollout/raw_reward": 0.123, "new/metric": 1.0}) + "\n")
    playwright.expect(reward.locator(".legend b").last).to_have_text("0.123")
    page.get_by_label("second").uncheck()
    playwright.expect(reward.locator("svg path[fill='none']")).to_have_count(1)


def test_the_address_keeps_the_view(page):
    page.open()
    page.get_by_role("button", name="log").click()
    page.get_by_role("button", name="time").click()
    page.get_by_label("Smoothing").fill("0.5")
    plot = card(page, "Reward").locator("svg[tabindex]")
    plot.focus()
    plot.press("+")
    address = page.url
    for word in ("log=1", "axis=time", "smooth=0.5", "range="):
        assert word in address
    page.reload()
    playwright.expect(page.get_by_role("button", name="log")).to_have_attribute("aria-pressed", "true")
    playwright.expect(page.get_by_role("button", name="Show all")).to_be_enabled()
    assert page.url == address


def test_text_of_a_run_is_never_markup(page):
    page.open("tab=samples&run=first&step=11&open=11.0")
    side = page.get_by_role("complementary", name="Sample")
    playwright.expect(side.get_by_label("Prompt")).to_have_text(HOSTILE)
    playwright.expect(side.locator(".token").first).to_have_text(HOSTILE)
    page.get_by_role("link", name="Its group").click()
    playwright.expect(page.locator("pre", has_text=HOSTILE).first).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0


def test_the_report_is_made_of_the_same_modules(page, runs, tmp_path):
    out = tmp_path / "report.html"
    subprocess.run([str(PROGRAM), "report", str(runs / "first"), "-o", str(out)], check=True, stdout=subprocess.DEVNULL)
    page.remove_listener("request", page.watch)  # it is a file
    page.goto(out.as_uri())
    playwright.expect(card(page, "Reward").locator("svg path[fill='none']")).to_have_count(1)
    page.locator("button.row", has_text=HOSTILE).first.click()
    playwright.expect(page.locator(".token").first).to_have_text(HOSTILE)
    assert page.evaluate("window.hacked") is None


def test_samples_are_filtered_by_keyboard_and_links(page):
    page.open("tab=samples&run=second&step=40")
    rows = page.locator(".virtual .vrow")
    playwright.expect(rows.first).to_contain_text("completed")
    page.get_by_role("button", name="reward = 0").click()
    playwright.expect(page.locator(".virtual .pill.good")).to_have_count(0)
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("complementary", name="Sample")).to_be_visible()
    assert "reward=0" in page.url and "open=40." in page.url
    page.keyboard.press("Escape")
    playwright.expect(page.get_by_role("complementary", name="Sample")).to_be_hidden()


def test_an_alarm_leads_to_its_samples(page):
    page.open("tab=alarms")
    alarm = page.locator(".alarm", has_text="Reward hacking?")
    playwright.expect(alarm).to_contain_text("second")
    alarm.get_by_role("link", name="Look at these samples").click()
    playwright.expect(page.get_by_label("Sort")).to_have_value("length-")
    playwright.expect(page.locator(".virtual .vrow").first).to_be_visible()


def test_settings_that_differ(page):
    page.open("tab=settings")
    playwright.expect(page.locator(".settings tbody th")).to_have_text(["--lr"])
    page.get_by_role("button", name="only what differs").click()
    playwright.expect(page.locator(".settings tbody th", has_text="--rollout-batch-size")).to_be_visible()


@pytest.mark.parametrize("tab", ["charts", "samples", "group", "alarms", "settings"])
def test_nothing_is_wider_than_a_phone(page, tab):
    page.set_viewport_size({"width": 360, "height": 740})
    page.open(f"tab={tab}")
    page.wait_for_selector("main section")
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_controls_have_names(page):
    for tab in ("charts", "samples", "group"):
        page.open(f"tab={tab}")
        page.wait_for_selector("main section .toolbar")
        nameless = page.evaluate(
            "[...document.querySelectorAll('button, input, select, a, svg[tabindex]')].filter((one) => one.offsetParent !== null || one.tagName === 'svg')"
            ".filter((one) => !(one.ariaLabel || one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML)"
        )
        assert nameless == []
