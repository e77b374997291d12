"""`slime view`: a page over runs that grow, and its routes."""

import json
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
def test_what_is_not_there_is_refused(server, path, status):
    assert server.request("GET", path)[0] == status


def test_the_page_is_for_itself_alone(server):
    with urllib.request.urlopen(server.url + "/") as reply:
        policy = reply.headers["Content-Security-Policy"]
        page = reply.read().decode()
    assert "unsafe" not in policy and "default-src 'none'" in policy
    assert "<script>" not in page and "style=" not in page
    own = {"Origin": server.url}
    assert server.request("GET", "/api/runs", headers=own)[0] == 200
    for headers in ({"Origin": "http://127.0.0.1:1"}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        assert server.request("GET", "/api/runs", headers=headers)[0] == 403, headers
        assert server.request("GET", "/api/events", headers=headers)[0] == 403, headers
    assert server.request("POST", "/api/runs", body={})[0] in (404, 405)


def test_every_file_that_the_page_names_is_served(server):
    seen, open_names = set(), ["live.js", "style.css", "live.css"]
    while open_names:
        name = open_names.pop()
        if name in seen:
            continue
        seen.add(name)
        with urllib.request.urlopen(f"{server.url}/page/{name}") as reply:
            text = reply.read().decode()
        open_names += [line.split('"./')[1].split('"')[0] for line in text.splitlines() if line.startswith("import ")]
    assert "plots.js" in seen
