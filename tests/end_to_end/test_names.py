"""Models and data sets by name, against a server with the routes of the hub."""

import json
import os
import re
import select
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import ROOT, SLIME, run_slime, train_command
from hub_server import HubServer

TOKEN = "hf_secretsecretsecret"


@pytest.fixture
def hub():
    with HubServer() as server:
        yield server


@pytest.fixture
def slime(hub, tmp_path):
    """Runs the program with the hub's variables; `offline` takes the hub away."""

    def run(*words, env=(), text=None):
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
        variables |= {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url, "HF_HUB_DOWNLOAD_TIMEOUT": "5", **dict(env)}
        return run_slime([str(SLIME), *map(str, words)], env=variables, cwd=tmp_path, input=text)

    return run


@pytest.fixture
def model_files(work):
    files = {path.name: path.read_bytes() for path in (work / "model").iterdir() if path.is_file()}
    return files | {"README.md": b"# tiny", "modeling_tiny.py": b"raise SystemExit", "pytorch_model.bin": b"pickle"}


def problem(result):
    assert result.returncode == 2, result.stdout + result.stderr
    return result.stderr


def rows(count, first=0):
    return "".join(json.dumps({"prompt": f"{i}+1=", "label": str(i + 1)}) + "\n" for i in range(first, first + count)).encode()


def test_a_model_is_downloaded_into_the_layout_of_the_hub(hub, slime, model_files, tmp_path):
    repo = hub.add("models", "acme/tiny", model_files)
    result = slime("download", "acme/tiny")
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "hf" / "hub" / "models--acme--tiny"
    snapshot = folder / "snapshots" / repo.commit
    assert result.stdout.strip() == str(snapshot)
    assert (folder / "refs" / "main").read_text() == repo.commit
    taken = {path.name for path in snapshot.iterdir()}
    assert taken == {name for name in model_files if name.endswith((".json", ".safetensors", ".jinja", ".txt"))}
    for path in snapshot.iterdir():
        assert path.read_bytes() == model_files[path.name]
        assert os.readlink(path).startswith("../../blobs/")
        entry = repo.entry(path.name)
        assert Path(os.readlink(path)).name == entry.get("lfs", {}).get("sha256", entry["blobId"])
    assert not [path for path in hub.asked() if path.endswith((".py", ".bin"))]
    assert "downloading acme/tiny" in result.stderr

    huggingface_hub = pytest.importorskip("huggingface_hub")
    found = huggingface_hub.snapshot_download("acme/tiny", cache_dir=tmp_path / "hf" / "hub", local_files_only=True)
    assert Path(found) == snapshot
    info = huggingface_hub.scan_cache_dir(tmp_path / "hf" / "hub")
    assert [each.repo_id for each in info.repos] == ["acme/tiny"] and not info.warnings


def test_what_is_in_the_cache_is_used_without_a_question(hub, slime, model_files):
    hub.add("models", "acme/tiny", model_files)
    text = json.dumps({"text": "1+1"}) + "\n"
    first = slime("tokenize", "--model", "acme/tiny", text=text)
    assert first.returncode == 0, first.stderr
    assert not [path for path in hub.asked() if "safetensors" in path and "index" not in path]
    count = len(hub.requests)
    again = slime("tokenize", "--model", "acme/tiny", env={"HF_HUB_OFFLINE": "1"}, text=text)
    assert again.stdout == first.stdout
    assert slime("tokenize", "--model", "acme/tiny", text=text).stdout == first.stdout
    assert len(hub.requests) == count
    # Weights are not there yet, and are fetched when somebody wants them.
    assert "model.safetensors" in problem(slime("inspect", "acme/tiny", env={"HF_HUB_OFFLINE": "1"}))
    assert slime("inspect", "acme/tiny").returncode == 0


def test_downloads_of_the_hubs_own_tools_are_found(hub, slime, model_files, tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    hub.add("models", "acme/tiny", model_files)
    huggingface_hub.snapshot_download(
        "acme/tiny", endpoint=hub.url, cache_dir=tmp_path / "hf" / "hub", allow_patterns=["*.json", "*.safetensors", "*.jinja"]
    )
    hub.requests.clear()
    assert slime("inspect", "acme/tiny", env={"HF_HUB_OFFLINE": "1"}).returncode == 0
    assert slime("inspect", "acme/tiny").returncode == 0
    assert len(hub.requests) == 1 and hub.asked()[0].startswith("/api/models/acme/tiny/revision/")


def test_a_download_goes_on_where_it_broke_off(hub, slime, model_files):
    hub.add("models", "acme/tiny", model_files)
    hub.faults["model.safetensors"] = ["status 503", "cut 5000", "status 429", "cut 300"]
    result = slime("download", "acme/tiny")
    assert result.returncode == 0, result.stderr
    ranges = [headers.get("Range") for _, role, _, headers in hub.requests if role == "storage"]
    assert ranges == [None, None, "bytes=5000-", "bytes=5000-", "bytes=5300-"]


def test_the_same_command_goes_on_with_what_an_ended_one_left(hub, slime, model_files, tmp_path):
    hub.add("models", "acme/tiny", model_files)
    hub.faults["model.safetensors"] = ["cut 6000", "status 404"]
    assert "model.safetensors with status 404" in problem(slime("download", "acme/tiny"))
    partial = list((tmp_path / "hf").rglob("*.incomplete"))
    assert [path.stat().st_size for path in partial] == [6000]
    hub.requests.clear()
    assert slime("download", "acme/tiny").returncode == 0
    assert [headers.get("Range") for _, role, _, headers in hub.requests if role == "storage"] == ["bytes=6000-"]
    assert not list((tmp_path / "hf").rglob("*.incomplete"))


def test_a_server_without_ranges_and_a_damaged_beginning_start_again(hub, slime, model_files, tmp_path):
    repo = hub.add("models", "acme/tiny", model_files)
    hub.faults["model.safetensors"] = ["cut 4000", "no range"]
    assert slime("download", "acme/tiny").returncode == 0
    blobs = tmp_path / "hf" / "hub" / "models--acme--tiny" / "blobs"
    blob = blobs / repo.entry("model.safetensors")["lfs"]["sha256"]
    blob.rename(blob.with_name(blob.name + ".incomplete"))
    damaged = blob.with_name(blob.name + ".incomplete")
    damaged.write_bytes(b"x" * 2000)
    assert slime("download", "acme/tiny").returncode == 0
    assert blob.read_bytes() == model_files["model.safetensors"]


@pytest.mark.parametrize("fault", ["wrong", "longer"])
def test_a_wrong_file_never_gets_its_name(hub, slime, model_files, tmp_path, fault):
    hub.add("models", "acme/tiny", model_files)
    hub.faults["model.safetensors"] = [fault]
    said = problem(slime("download", "acme/tiny"))
    assert "model.safetensors" in said and ("another checksum" in said or "is longer than" in said)
    assert not [path for path in (tmp_path / "hf").rglob("model.safetensors")]
    assert slime("download", "acme/tiny").returncode == 0


def test_the_token_goes_to_the_hub_alone(hub, slime, model_files, tmp_path):
    hub.add("models", "acme/private", model_files, token=TOKEN)
    said = problem(slime("download", "acme/private"))
    assert "no such model, or it is private" in said and "HF_TOKEN" in said
    result = slime("download", "acme/private", env={"HF_TOKEN": TOKEN})
    assert result.returncode == 0, result.stderr
    for _, role, _, headers in hub.requests[1:]:
        assert headers.get("Authorization") == (f"Bearer {TOKEN}" if role == "hub" else None)
    assert {role for _, role, _, _ in hub.requests} == {"hub", "storage"}
    assert TOKEN not in result.stdout + result.stderr
    kept = [path for path in (tmp_path / "hf").rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert kept == []

    (tmp_path / "hf" / "token").write_text(TOKEN + "\n")
    shutil.rmtree(tmp_path / "hf" / "hub")
    assert slime("download", "acme/private").returncode == 0


def test_refusals_say_what_works(hub, slime, model_files):
    hub.add("models", "acme/tiny", model_files)
    hub.add("models", "acme/terms", model_files, terms=True)
    hub.add("models", "acme/pickle", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    hub.add("models", "acme/adapter", {"adapter_config.json": b"{}"})
    for name, words in {
        "acme/none": "has no such model, or it is private: then give a token in HF_TOKEN",
        "acme/terms": f"read them on {hub.url}/acme/terms",
        "acme/tiny@v9": "there is no revision v9",
        "acme/pickle": "can run code when it is read",
        "acme/adapter": "is an adapter (LoRA)",
    }.items():
        assert words in problem(slime("download", name)), name
    said = problem(slime("train", "--hf-checkpoint", "acme/none", "--prompt-data", "x.jsonl"))
    assert "--hf-checkpoint acme/none: no such directory; as a name on the hub" in said


def test_without_a_network_the_three_ways_are_named(hub, slime, tmp_path):
    nowhere = "http://127.0.0.1:9"
    for env in ({"HF_ENDPOINT": nowhere}, {"HF_HUB_OFFLINE": "1"}):
        said = problem(slime("serve", "--model", "acme/tiny", env=env))
        assert "slime download acme/tiny" in said and "models--acme--tiny" in said
        assert "HF_HOME" in said and "the path of a model directory" in said
        assert str(tmp_path / "hf" / "hub") in said


def test_a_path_wins_and_a_slip_in_a_folder_is_not_looked_up(hub, slime, work, tmp_path):
    shutil.copytree(work / "model", tmp_path / "acme" / "tiny")
    assert slime("inspect", "acme/tiny").returncode == 0
    said = slime("inspect", "acme/tyni")
    assert said.returncode == 2 and "no such file or directory; did you mean acme/tiny?" in said.stderr
    assert hub.requests == []
    assert "has no such model" in problem(slime("inspect", "hf://acme/tyni"))


def test_a_word_that_is_no_name_is_refused_with_the_nearest(hub, slime, work, tmp_path):
    shutil.copytree(work / "model", tmp_path / "SmolLM2")
    (tmp_path / "hf" / "hub" / "models--mine--SmolLM-own").mkdir(parents=True)
    train = problem(slime("train", "--hf-checkpoint", "SmolLM", "--prompt-data", "x.jsonl"))
    assert "--hf-checkpoint SmolLM: no such directory; did you mean SmolLM2, mine/SmolLM-own or HuggingFaceTB/SmolLM2-135M-Instruct?" in train
    for verb, flag in (("serve", "--model"), ("generate", "--model"), ("chat", "MODEL")):
        words = [verb, *([flag] if flag.startswith("--") else []), "SmolLM"]
        assert f"{flag} SmolLM: no such file or directory; did you mean SmolLM2, " in problem(slime(*words)), verb
    slip = problem(slime("train", "--hf-checkpoint", "Qwen/Qwen3-06B", "--prompt-data", "x.jsonl"))
    assert "as a name on the hub" in slip and "; did you mean Qwen/Qwen3-0.6B" in slip


def test_paths_of_files_from_a_server_stay_below_their_folder(hub, slime, model_files, tmp_path):
    hub.add("models", "acme/tiny", model_files)
    for path in ("../../../evil.json", "/etc/evil.json", "a\\..\\evil.json", "x/../../evil.json"):
        hub.extra_siblings = [{"rfilename": path, "size": 1, "blobId": "0" * 40}]
        assert "does not speak the routes of the hub" in problem(slime("download", "acme/tiny"))
    assert not list(tmp_path.rglob("*evil*"))


def test_a_mirror_without_checksums_in_its_list_is_asked_for_each(hub, slime, model_files):
    hub.add("models", "acme/tiny", model_files)
    hub.is_plain_mirror = True
    result = slime("download", "acme/tiny")
    assert result.returncode == 0, result.stderr
    assert "HEAD" in {method for method, _, _, _ in hub.requests}


def test_a_renamed_model_is_followed(hub, slime, model_files):
    hub.add("models", "acme/tiny", model_files)
    hub.moved["old/tiny"] = "acme/tiny"
    assert slime("download", "old/tiny").returncode == 0


PAGE = b"""---
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test.jsonl
- config_name: hard
  data_files: hard/*.jsonl
---
"""


@pytest.fixture
def task(hub):
    files = {"README.md": PAGE, "main/train-0.jsonl": rows(6), "main/train-1.jsonl": rows(4, 6), "main/test.jsonl": rows(3)}
    return hub.add("datasets", "acme/sums", files | {"hard/all.jsonl": rows(2), "load.py": b"raise SystemExit"})


def test_a_split_is_the_files_that_the_page_names(hub, slime, task, tmp_path):
    result = slime("download", "acme/sums:train[:7]")
    assert result.returncode == 0, result.stderr
    snapshot = tmp_path / "hf" / "hub" / "datasets--acme--sums" / "snapshots" / task.commit
    assert result.stdout.strip() == f"{snapshot}/main/train-*.jsonl@[:7]"
    assert "configuration main of main, hard" in result.stderr
    assert sorted(str(path.relative_to(snapshot)) for path in snapshot.rglob("*.*")) == [
        "README.md", "main/train-0.jsonl", "main/train-1.jsonl",
    ]  # fmt: skip
    assert slime("download", "hf://datasets/acme/sums:hard/train").stdout.strip() == f"{snapshot}/hard/all.jsonl"
    assert "has no split dev in its configuration main; it has train, test" in problem(slime("download", "acme/sums:dev"))


GSM8K_PAGE = b"""---
configs:
- config_name: main
  data_files: [{split: train, path: main/train.jsonl}, {split: test, path: main/test.jsonl}]
---
"""


def test_the_quickstart_of_gsm8k_reads_model_and_data_by_name(hub, model_files, tmp_path):
    questions = [{"question": f"Ann has {i} apples and buys 1.", "answer": f"{i} + 1 = <<{i}+1={i + 1}>>{i + 1}\n#### {i + 1}"} for i in range(8)]
    lines = "".join(json.dumps(row) + "\n" for row in questions).encode()
    hub.add("models", "Qwen/Qwen3-0.6B", model_files)
    hub.add("datasets", "openai/gsm8k", {"README.md": GSM8K_PAGE, "main/train.jsonl": lines, "main/test.jsonl": lines})
    variables = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url, "SLIME_BINARY": str(SLIME), "RUNS": str(tmp_path / "runs")}
    script = [str(ROOT / "examples" / "quickstart" / "gsm8k.sh")]
    dry = run_slime([*script, "--dry-run"], env={**os.environ, **variables})
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert hub.requests == [] and "Qwen/Qwen3-0.6B: is not in the cache" in dry.stdout
    few = ["--num-rollout", "1", "--rollout-batch-size", "2", "--n-samples-per-prompt", "2", "--global-batch-size", "4"]
    done = run_slime([*script, *few, "--rollout-max-response-len", "4", "--device", "cpu"], env={**os.environ, **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "eval/gsm8k" in (tmp_path / "runs" / "gsm8k" / "metrics.jsonl").read_text()
    assert (tmp_path / "runs" / "gsm8k" / "report.html").exists()


def test_a_run_trains_on_names(hub, slime, work, model_files, task, tmp_path):
    hub.add("models", "acme/tiny", model_files)
    (tmp_path / "eval.yaml").write_text("eval: {datasets: [{name: sums, path: 'acme/sums:test', rm_type: math}]}")
    command = train_command(work, tmp_path / "run", rollouts=2, extra=["--eval-config", "eval.yaml", "--eval-interval", "1"])[1:]
    command[command.index("--hf-checkpoint") + 1] = "acme/tiny"
    command[command.index("--prompt-data") + 1] = "acme/sums:train[:7]"
    command.remove("--rollout-shuffle")
    dry = slime(*command, "--dry-run")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert hub.requests == [] and "acme/tiny: is not in the cache of Hugging Face; a run would download it" in dry.stdout
    result = slime(*command)
    assert result.returncode == 0, result.stderr
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "eval/sums" in metrics
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "models--acme--tiny" in json.dumps(run) and "train-*.jsonl@[:7]" in json.dumps(run)


def test_a_default_run_folder_has_the_models_name(hub, slime, work, model_files, tmp_path):
    hub.add("models", "acme/tiny", model_files)
    command = train_command(work, "x", rollouts=1)[1:]
    command[command.index("--hf-checkpoint") + 1] = "acme/tiny"
    at = command.index("--run-dir")
    result = slime(*command[:at], *command[at + 2 :])
    assert result.returncode == 0, result.stderr
    assert [re.match(r"tiny-\d{8}-\d{6}$", path.name) is not None for path in (tmp_path / "runs").iterdir()] == [True]


class TlsFront:
    """The hub's port behind TLS, with a certificate of its own authority, and a proxy that leads every name there."""

    def __init__(self, hub, folder):
        self.authority = folder / "authority.pem"
        key = folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", self.authority, "-days", "2"]
            + ["-subj", "/CN=hub.test", "-addext", "subjectAltName=DNS:hub.test"],
            check=True,
            capture_output=True,
        )
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.authority, key)
        self.target = ("127.0.0.1", int(hub.url.rsplit(":", 1)[1]))
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:word@127.0.0.1:{self.listening.getsockname()[1]}"
        self.asked = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        self.asked.append(head.decode())
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            inside = self.context.wrap_socket(client, server_side=True)
        except (ssl.SSLError, OSError):
            return
        server = socket.create_connection(self.target)
        # One thread for both directions: Python's TLS sockets are not for two.
        try:
            while True:
                ready = [inside] if inside.pending() else select.select([inside, server], [], [])[0]
                for source, sink in ((inside, server), (server, inside)):
                    if source in ready:
                        data = source.recv(65536)
                        if not data:
                            return
                        sink.sendall(data)
        except OSError:
            pass
        finally:
            server.close()
            inside.close()


def test_certificates_are_verified_and_proxies_lead_out(hub, slime, model_files, tmp_path):
    hub.add("models", "acme/tiny", {"config.json": model_files["config.json"], "tokenizer.json": model_files["tokenizer.json"]})
    front = TlsFront(hub, tmp_path)
    env = {"HF_ENDPOINT": "https://hub.test", "HTTPS_PROXY": front.url, "NO_PROXY": "", "no_proxy": "", "HF_TOKEN": TOKEN}
    words = ["download", "--without-weights", "acme/tiny"]
    said = problem(slime(*words, env=env))
    assert "certificate is not trusted" in said and "SSL_CERT_FILE" in said and hub.requests == []
    trusted = {"SSL_CERT_FILE": str(front.authority)}
    result = slime(*words, env=env | trusted)
    assert result.returncode == 0, result.stderr
    assert front.asked[-1].startswith("CONNECT hub.test:443 HTTP/1.1") and "Proxy-Authorization: Basic" in front.asked[-1]
    assert "word@" not in result.stderr
    # Another host's certificate is no proof.
    assert "certificate" in problem(slime(*words, env=env | trusted | {"HF_ENDPOINT": "https://other.test"}))
    front.listening.close()
