"""Load times, frame times and memory of `slime view` on one run, in Chromium by Playwright; one line of JSON.

    python tests/tools/made_up_run.py /tmp/runs/thousand --steps 1000 --samples 512
    python bench/view/measure.py build/release/slime /tmp/runs/thousand

A frame is what lies between two calls of requestAnimationFrame while the page is scrolled, zoomed or under the pointer; 16.7 ms where
the machine is idle. `cpu_ms` is what the page's main thread computes in a frame, whatever else the machine does."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

from playwright.sync_api import sync_playwright

FRAMES = """() => { window.frames_seen = []; let last = performance.now(); window.frames_on = true;
  const frame = (now) => { window.frames_seen.push(now - last); last = now; if (window.frames_on) requestAnimationFrame(frame); };
  requestAnimationFrame(frame); }"""


def resident_mb(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


def cpu_s(pid):
    """CPU time of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(url):
    with urllib.request.urlopen(url, timeout=600) as reply:
        return json.loads(reply.read())


def summary(frames):
    frames = sorted(frames[1:])
    if not frames:
        return None
    return {"frames": len(frames), "median_ms": round(statistics.median(frames), 1), "p95_ms": round(frames[int(len(frames) * 0.95)], 1), "max_ms": round(frames[-1], 1)}


def busy_ms(session):
    """CPU time of the page's main thread since it began."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * metrics["TaskDuration"]


def frames_of(page, session, action):
    page.evaluate(FRAMES)
    before = busy_ms(session)
    action()
    spent = busy_ms(session) - before
    out = summary(page.evaluate("() => { window.frames_on = false; return window.frames_seen; }"))
    return {**out, "cpu_ms": round(spent / out["frames"], 1)}


def scroll(page):
    """From the top to the bottom of the table in 120 wheel events."""
    box = page.locator(".scroller").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    for _ in range(120):
        page.mouse.wheel(0, 600)
        page.wait_for_timeout(8)
    page.evaluate("() => { const s = document.querySelector('.scroller'); s.scrollTop = s.scrollHeight / 2; }")
    page.wait_for_timeout(300)


def zoom(page):
    plot = page.locator(".card svg").first
    plot.focus()
    for key in "++++----" * 4:
        page.keyboard.press(key)
        page.wait_for_timeout(16)
    page.keyboard.press("0")


def hover(page):
    box = page.locator(".card svg").first.bounding_box()
    for i in range(120):
        page.mouse.move(box["x"] + 50 + i * (box["width"] - 60) / 120, box["y"] + 60)
        page.wait_for_timeout(8)


def main():
    program, run = sys.argv[1:3]
    server = subprocess.Popen([program, "view", run, "--port", "0"], stdout=subprocess.PIPE, text=True)
    url = re.search(r"http://[\d.:]+", server.stdout.readline())[0]
    name = ask(url + "/api/runs")[0]["id"]
    out = {"rss_start_mb": round(resident_mb(server.pid))}
    try:
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1360, "height": 900})
            page.set_default_timeout(120_000)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            begin = time.monotonic()
            page.goto(url)
            page.wait_for_selector(".card svg path")
            out["charts_drawn_s"] = round(time.monotonic() - begin, 2)
            out["hover"] = frames_of(page, session, lambda: hover(page))
            out["zoom"] = frames_of(page, session, lambda: zoom(page))
            begin, used = time.monotonic(), cpu_s(server.pid)
            page.goto(f"{url}/#tab=samples&run={name}")
            page.wait_for_selector(".virtual .vrow .response")
            out["first_rows_s"] = round(time.monotonic() - begin, 2)
            while (body := ask(f"{url}/api/samples?run={name}&limit=1"))["num_indexed"] < body["num_steps"]:
                time.sleep(0.2)
            out["index_s"], out["samples"] = round(time.monotonic() - begin, 1), body["total"]
            out["index_cpu_s"] = round(cpu_s(server.pid) - used, 1)
            page.wait_for_timeout(1500)
            out["scroll"] = frames_of(page, session, lambda: scroll(page))
            for label, words in (("newest", ""), ("longest", "&sort=length-"), ("reward_0_oldest_weights", "&reward=0&sort=version%2B"), ("search", "&text=apples+therefore+divide")):
                begin, used = time.monotonic(), cpu_s(server.pid)
                ask(f"{url}/api/samples?run={name}&limit=100{words}")
                out[f"query_{label}_ms"], out[f"query_{label}_cpu_ms"] = round(1000 * (time.monotonic() - begin)), round(1000 * (cpu_s(server.pid) - used))
            begin = time.monotonic()
            page.goto(f"{url}/#tab=group&run={name}")
            page.wait_for_selector(".member")
            out["group_s"] = round(time.monotonic() - begin, 2)
            out["page_heap_mb"] = round(page.evaluate("() => performance.memory.usedJSHeapSize") / 1e6)
            browser.close()
        out["rss_mb"] = round(resident_mb(server.pid))
    finally:
        server.terminate()
        server.wait(timeout=30)
    out["cores"] = os.cpu_count()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
