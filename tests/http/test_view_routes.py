"""`slime view`: a page over runs that grow, and its routes."""

import json
import time
import urllib.request

import pytest
from server_process import Program


def row(step, **metrics):
    return json.dumps({"step": step, "time": 1000.0 + step, **metrics}) + "\n"


def make_run(folder, *, steps=3, flags=None):
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"flags": flags or {}, "num_rollout": 10}))
    (folder / "metrics.jsonl").write_text("".join(row(s, **{"rollout/raw_reward": s / 10}) for s in range(steps)))
    return folder


class Events:
    """Server-sent events of one stream."""

    def __init__(self, url):
        self.reply = urllib.request.urlopen(url, timeout=60)

    def next(self, name):
        """Data of the next event of this name."""
        event = None
        for raw in self.reply:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: ") and event == name:
                return json.loads(line[6:])
        raise AssertionError(f"the stream ended before an event {name}")

    def close(self):
        self.reply.close()


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "runs" / "a", flags={"--lr": 1e-6})
    make_run(tmp_path / "runs" / "b", steps=5, flags={"--lr": 2e-6})
    return tmp_path / "runs"


@pytest.fixture
def server(runs):
    with Program("view", str(runs), "--port", "0") as server:
        yield server


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """A server over a run that stays as it is."""
    folder = tmp_path_factory.mktemp("view") / "runs"
    make_run(folder / "a")
    with Program("view", str(folder), "--port", "0") as server:
        yield server


def test_runs_and_their_series(server):
    status, listed = server.request("GET", "/api/runs")
    assert status == 200
    assert {run["id"]: run["flags"] for run in listed} == {"a": {"--lr": 1e-6}, "b": {"--lr": 2e-6}}
    status, body = server.request("GET", "/api/metrics?run=b")
    assert body["metrics"]["rollout/raw_reward"] == {"steps": [0, 1, 2, 3, 4], "values": [0.0, 0.1, 0.2, 0.3, 0.4]}
    assert body["times"]["values"][-1] == 1004.0


def test_rows_come_while_they_are_written(server, runs):
    position = server.request("GET", "/api/metrics?run=a")[1]["position"]
    events = Events(f"{server.url}/api/events?after=a:{position}")
    assert [run["id"] for run in events.next("runs")]
    with open(runs / "a" / "metrics.jsonl", "a") as file:
        file.write(row(3, x=1.5) + '{"step": 4, "to')  # the second is not whole yet
        file.flush()
        grown = events.next("rows")
        assert grown["rows"] == [{"step": 3, "time": 1003.0, "x": 1.5}]
        file.write('rn": 2}\n')
        file.flush()
        assert events.next("rows")["rows"] == [{"step": 4, "torn": 2}]
    # Another stream begins where this one was.
    again = Events(f"{server.url}/api/events?after=a:{grown['position']}")
    assert again.next("rows")["rows"] == [{"step": 4, "torn": 2}]
    events.close()
    again.close()


def test_a_run_that_goes_back_is_read_anew(server, runs):
    position = server.request("GET", "/api/metrics?run=a")[1]["position"]
    events = Events(f"{server.url}/api/events?after=a:{position}")
    # As long as before, but another text.
    (runs / "a" / "metrics.jsonl").write_text("".join(row(s, **{"rollout/raw_reward": s / 5}) for s in range(4)))
    assert events.next("reset")["run"] == "a"
    events.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/metrics", 400),
        ("/api/timeline?run=none", 400),
        ("/api/metrics?run=none", 400),
        ("/api/metrics?run=../../etc", 400),
        ("/api/metrics?run=%2e%2e%2fb", 400),
        ("/api/events?after=none:0", 400),
        ("/api/events?after=" + ",".join(["a:0"] * 65), 400),
        ("/page/../view_routes.cpp", 404),
        ("/page/page.js", 404),
        ("/etc/passwd", 404),
    ],
)
def test_what_is_not_there_is_refused(idle, path, status):
    assert idle.request("GET", path)[0] == status


def test_the_page_is_for_itself_alone(idle):
    with urllib.request.urlopen(idle.url + "/") as reply:
        policy = reply.headers["Content-Security-Policy"]
        page = reply.read().decode()
    assert "unsafe" not in policy and "default-src 'none'" in policy
    assert "<script>" not in page and "style=" not in page
    own = {"Origin": idle.url}
    assert idle.request("GET", "/api/runs", headers=own)[0] == 200
    for headers in ({"Origin": "http://127.0.0.1:1"}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        assert idle.request("GET", "/api/runs", headers=headers)[0] == 403, headers
        assert idle.request("GET", "/api/events", headers=headers)[0] == 403, headers
    assert idle.request("POST", "/api/runs", body={})[0] in (404, 405)


def test_every_file_that_the_page_names_is_served(idle):
    seen, open_names = set(), ["live.js", "style.css", "live.css"]
    while open_names:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        with urllib.request.urlopen(f"{idle.url}/page/{name}") as reply:
            text = reply.read().decode()
        open_names += [line.split('"./')[1].split('"')[0] for line in text.splitlines() if line.startswith("import ")]
    assert "plots.js" in seen


HOSTILE = "</script><img src=x onerror=alert(1)> \u2028 \U0001f600 \"quoted\" line\nbreak"


def sample(group, index, **fields):
    """A line of a rollout file."""
    return json.dumps({
        "group_index": group, "index_in_group": index, "prompt": f"<user>What is {group}+1?</user>", "tokens": [1, 2, 3], "response": "it is",
        "response_length": 2, "reward": 1.0, "status": "completed", "label": str(group + 1), "loss_mask": None, "weight_versions": [[3, 2]],
        "rollout_log_probs": [-0.5, -0.25], "train_log_probs": [-0.5, -0.25], "token_texts": ["it", " is"], "remove_sample": False, **fields,
    }, ensure_ascii=False) + "\n"  # fmt: skip


@pytest.fixture
def samples(runs, server):
    """A function that asks for a table of run a: (group, index) of its rows, and the whole answer."""
    folder = runs / "a" / "rollouts"
    folder.mkdir()
    (folder / "step_000000.jsonl").write_text(sample(0, 0) + sample(0, 1, reward=1.0) + "no json\n" + sample(1, 0, reward=0.0) + sample(1, 1))
    (folder / "step_000001.jsonl").write_text(
        sample(2, 0, reward=0.0, status="truncated", response_length=900, weight_versions=[[1, 1], [4, 1]])
        + sample(2, 1, reward=0.25, train_log_probs=[-0.5, -1.5], response=HOSTILE)
    )

    def ask(query="", until_indexed=True):
        for _ in range(600):
            status, body = server.request("GET", f"/api/samples?run=a{query}")
            assert status == 200, body
            if not until_indexed or body["num_indexed"] == body["num_steps"]:
                return [(row["group"], row["index"]) for row in body["rows"]], body
            time.sleep(0.05)
        raise AssertionError("the steps were not indexed")

    return ask


def test_tables_are_filtered_and_sorted(samples):
    rows, body = samples()
    assert rows == [(2, 0), (2, 1), (0, 0), (0, 1), (1, 0), (1, 1)]  # the newest step first
    assert (body["total"], body["first_step"], body["last_step"]) == (6, 0, 1)
    assert body["mean_reward"] == pytest.approx(3.25 / 6)
    assert body["rows"][3]["place"] == 1 and body["rows"][4]["place"] == 2  # among the samples: the bad line is none
    assert samples("&step=0&reward=0")[0] == [(1, 0)]
    assert samples("&status=truncated")[0] == [(2, 0)]
    assert samples("&sort=length-&limit=1")[0] == [(2, 0)]
    assert samples("&sort=difference-&limit=1")[0] == [(2, 1)]
    assert samples("&sort=reward%2B&limit=3")[0] == [(2, 0), (1, 0), (2, 1)]
    assert samples("&sort=version%2B&limit=1")[0] == [(2, 0)]
    assert samples("&version=4")[0] == [(2, 0)]
    assert samples("&version=3&step=1")[0] == [(2, 0), (2, 1)]  # made between versions 1 and 4
    assert samples("&dead=1")[0] == [(0, 0), (0, 1)]
    assert samples("&group=1")[0] == [(1, 0), (1, 1)]
    assert samples("&offset=4&limit=1")[0] == [(1, 0)]
    assert samples("&last_step=0&limit=1")[0] == [(0, 0)]


def test_texts_are_searched_as_they_are_not_as_they_are_written(samples):
    assert samples("&text=WHAT%20is%201")[0] == [(1, 0), (1, 1)]
    for words in ("line%0Abreak", "%22quoted%22", "%F0%9F%98%80", "onerror%3Dalert"):
        assert samples("&text=" + words)[0] == [(2, 1)], words
    assert samples("&text=token_texts")[0] == []  # a name of the file, not of a text


def test_every_sample_and_group_is_reachable(server, samples):
    samples()
    status, body = server.request("GET", "/api/sample?run=a&step=1&place=1")
    assert status == 200 and body["response"] == HOSTILE and body["token_texts"] == ["it", " is"]
    status, body = server.request("GET", "/api/group?run=a&step=0&group=1")
    assert [one["reward"] for one in body["samples"]] == [0.0, 1.0]
    assert [one["advantage"] for one in body["samples"]] == pytest.approx([-0.7071, 0.7071], abs=1e-3)
    assert body["previous"] == 0 and "next" not in body
    for path in ("sample?run=a&step=1&place=2", "sample?run=a&step=7&place=0", "sample?run=a&step=1&place=-1", "group?run=a&step=x&group=1"):
        assert server.request("GET", f"/api/{path}")[0] == 400, path


def test_a_step_that_is_made_again_is_read_again(runs, samples):
    assert samples("&step=0")[1]["total"] == 4
    (runs / "a" / "rollouts" / "step_000000.jsonl").write_text(sample(5, 0))
    for _ in range(100):
        rows, _ = samples("&step=0")
        if rows == [(5, 0)]:
            break
        time.sleep(0.05)
    assert rows == [(5, 0)]


@pytest.mark.parametrize("query", ["sort=size-", "sort=length", "reward=x", "reward=nan", "status=done", "limit=201", "limit=0", "offset=-1", "step=-1", "text=" + "a" * 201])
def test_queries_beyond_their_limits_are_refused(idle, query):
    status, body = idle.request("GET", f"/api/samples?run=a&{query}")
    assert status == 400
    assert query.split("=")[0] in body["error"]["message"]


def test_alarms_lead_to_the_samples_that_show_them(runs, server):
    rows = [row(s, **{"train/grad_norm": 0.0 if s > 20 else 0.5, "rollout/raw_reward": 0.5}) for s in range(30)]
    (runs / "a" / "metrics.jsonl").write_text("".join(rows))
    status, alarms = server.request("GET", "/api/alarms?run=a")
    assert [alarm["kind"] for alarm in alarms] == ["zero_gradients"]
    assert alarms[0]["look"] == {"step": 29} and alarms[0]["is_now"]
    assert server.request("GET", "/api/alarms?run=b") == (200, [])


def test_runs_that_begin_later_are_listed(runs, server):
    make_run(runs / "later")
    for _ in range(200):
        if len(server.request("GET", "/api/runs")[1]) == 3:
            break
        time.sleep(0.1)
    assert server.request("GET", "/api/metrics?run=later")[0] == 200
