"""An adapter that is replaced under its name again and again, under load: all tokens and scores of a request are of one version, which was
there when the request began; those of the base and of another adapter stay as they are. Memory does not grow with versions."""

import threading
import time
from pathlib import Path

import pytest
from naming_adapters import BASE_TOKEN, make_adapter, make_base, token_of
from naming_model import LABELS, VOCAB
from server_process import Server

FULL = 1000
SHORT = 50
OTHER = 1  # a label
FIRST, COUNT = 2, LABELS - 2  # labels of versions, which come round
# Of two pairs of matrices of 64 x RANK: 0.5 MiB.
RANK = 512
ADAPTER_BYTES = 4 * 4 * 64 * RANK
PROMPT = [40, 41, 42] * 40


def label_of(version: int) -> int:
    return FIRST + version % COUNT


class Versions:
    """The adapter `moving`. A request finds a version between the last whose loading was answered and the last that was asked for."""

    def __init__(self, server: Server, folders: dict[int, Path]):
        self.server, self.folders = server, folders
        self.answered = self.asked = -1
        self.num_unloads, self.num_returns, self.num_retries = 0, 0, 0

    def load(self, version: int):
        in_place = version % 5 != 4
        if not in_place:
            self.num_unloads += 1
            status, reply = self.server.post("/unload_lora_adapter", {"lora_name": "moving"})
            assert status == 200 and "moving" not in reply["loaded_adapters"], reply
        self.asked = version
        path = str(self.folders[label_of(version)])
        while True:
            status, reply = self.server.post("/load_lora_adapter", {"lora_name": "moving", "lora_path": path, "load_inplace": in_place})
            # Requests hold all the room that there is: the documented answer.
            if status != 400 or "try again" not in reply["error_message"]:
                break
            self.num_retries += 1
        assert status == 200 and reply["loaded_adapters"]["moving"] == path, reply
        self.answered = version
        if not in_place:
            self.num_returns += 1


class Client(threading.Thread):
    """Asks without an end, and remembers what was wrong."""

    def __init__(self, server: Server, versions: Versions, ask):
        super().__init__()
        self.server, self.versions, self.ask = server, versions, ask
        self.is_over = threading.Event()
        self.wrong, self.num_answers, self.num_refused, self.num_tokens, self.num_scores, self.num_cached = [], 0, 0, 0, 0, 0
        self.num_overtaken = 0  # answers that ended when another version was loaded
        self.num_split = 0  # calls whose samples are of two versions

    def run(self):
        try:
            while not self.is_over.is_set() and not self.wrong:
                self.ask(self)
        except Exception as error:  # shown by the test
            self.wrong.append(repr(error))

    def begin(self):
        return self.versions.answered, self.versions.num_returns

    def is_away(self, begun, status: int, text: str) -> bool:
        """Whether the request was refused while no version was loaded."""
        if status not in (400, 404) or "no adapter moving is loaded" not in text or self.versions.num_unloads <= begun[1]:
            return False
        self.num_refused += 1
        return True

    def check_drawn(self, begun, newest: int, reply: dict, name: str | None):
        ids, meta = reply["output_ids"], reply["meta_info"]
        moving = {token_of(label_of(version)) for version in range(begun[0], newest + 1)}
        expected = {"moving": moving, "other": {token_of(OTHER)}, None: {BASE_TOKEN}}[name]
        if len(set(ids)) != 1 or ids[0] not in expected:
            self.wrong.append(f"{name}: tokens {ids}, versions {begun[0]} to {newest}")
        if meta["weight_version"] != "base" or "weight_version_runs" in meta:
            self.wrong.append(f"the weights are those of base: {meta}")
        if any(log_prob < -1e-3 for log_prob, *_ in meta["output_token_logprobs"]):
            self.wrong.append(f"{name}: log-probs {meta['output_token_logprobs']}")

    def count(self, newest: int, reply: dict):
        self.num_answers += 1
        self.num_tokens += len(reply["output_ids"])
        self.num_cached += reply["meta_info"]["cached_tokens"]
        self.num_overtaken += self.versions.answered > newest


def body_of(name: str | None, temperature: float, n: int = 1, stream: bool = False) -> dict:
    params = {"temperature": temperature, "max_new_tokens": 60, "ignore_eos": True, "n": n}
    body = {"input_ids": PROMPT, "stream": stream, "return_logprob": True, "sampling_params": params}
    return body if name is None else {**body, "lora_path": name}


def whole(name: str | None, temperature: float, n: int = 1):
    def ask(client: Client):
        begun = client.begin()
        status, replies = client.server.post("/generate", body_of(name, temperature, n))
        newest = client.versions.asked
        if client.is_away(begun, status, str(replies)):
            return
        assert status == 200, replies
        replies = replies if n > 1 else [replies]
        assert len(replies) == n and all(len(reply["output_ids"]) == 60 for reply in replies)
        for reply in replies:
            client.check_drawn(begun, newest, reply, name)
            client.count(newest, reply)
        client.num_split += len({reply["output_ids"][0] for reply in replies}) > 1

    return ask


def streamed(name: str | None, temperature: float, n: int = 1):
    def ask(client: Client):
        begun = client.begin()
        newest, last = {}, {}
        try:
            for reply in client.server.frames("/generate", body_of(name, temperature, n, stream=True)):
                if "error" in reply or reply["meta_info"]["finish_reason"] and reply["meta_info"]["finish_reason"]["type"] == "abort":
                    assert client.is_away(begun, 400, str(reply)), reply
                    return
                index = reply.get("index", 0)
                # What drew the first token draws them all.
                newest.setdefault(index, client.versions.asked)
                client.check_drawn(begun, newest[index], reply, name)
                last[index] = reply
        except OSError as error:
            status, text = getattr(error, "code", 0), error.read().decode() if hasattr(error, "read") else str(error)
            assert client.is_away(begun, status, text), (status, text)
            return
        assert len(last) == n and all(len(reply["output_ids"]) == 60 for reply in last.values())
        for index, reply in last.items():
            client.count(newest[index], reply)
        client.num_split += len({reply["output_ids"][0] for reply in last.values()}) > 1

    return ask


def mixed(client: Client):
    """Rows of one call that take different adapters."""
    names = ["moving", None, "other"]
    begun = client.begin()
    status, replies = client.server.post("/generate", {**body_of(None, 1.0), "input_ids": [PROMPT] * 3, "lora_path": names})
    newest = client.versions.asked
    if client.is_away(begun, status, str(replies)):
        return
    assert status == 200, replies
    for name, reply in zip(names, replies, strict=True):
        client.check_drawn(begun, newest, reply, name)
        client.count(newest, reply)


def scored(name: str | None):
    def ask(client: Client):
        """All tokens several times: the one of the version that scored has log-prob 0, the others have none."""
        begun = client.begin()
        body = {**body_of(name, 0.0), "input_ids": [*range(VOCAB)] * 4, "logprob_start_len": 1}
        body["sampling_params"] = {"max_new_tokens": 0}
        status, reply = client.server.post("/generate", body)
        newest = client.versions.asked
        if client.is_away(begun, status, str(reply)):
            return
        assert status == 200, reply
        likely = {token for log_prob, token, _ in reply["meta_info"]["input_token_logprobs"] if log_prob > -1}
        expected = {token_of(label_of(version)) for version in range(begun[0], newest + 1)}
        if len(likely) != 1 or not likely <= expected:
            client.wrong.append(f"scores of {likely}, versions {begun[0]} to {newest}")
        client.num_answers += 1
        client.num_scores += 1
        client.num_overtaken += client.versions.answered > newest

    return ask


ASKS = [whole("moving", 0.0), whole("moving", 1.0, n=4), streamed("moving", 0.0), streamed("moving", 1.0, n=3), scored("moving"), mixed,
        whole(None, 1.0), streamed("other", 0.0)]


def resident_bytes(process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def wait_for_answers(clients: list[Client]):
    """One more of each client."""
    wanted = [client.num_answers + 1 for client in clients]
    end = time.monotonic() + 60
    while any(client.num_answers < count and not client.wrong for client, count in zip(clients, wanted)):
        assert time.monotonic() < end, [client.num_answers for client in clients]
        time.sleep(0.002)


# Room for 16 adapters and for as many versions that are still used: more than requests that run. For 2 of each, one of them `other`: fewer.
@pytest.mark.parametrize("ranks, room", [(1, 16), (1, 2), (2, 16)], ids=["one_rank", "little_room", "two_ranks"])
def test_no_token_is_of_another_version(tmp_path, nightly, ranks, room):
    model = make_base(tmp_path / "model")
    folders = {label: make_adapter(tmp_path / f"label-{label}", label, RANK) for label in range(OTHER, LABELS)}
    flags = ["--skip-tokenizer-init", "--dtype", "float32", "--weight-version", "base", "--weights-root", str(tmp_path)]
    flags += ["--tp-size", str(ranks), "--max-loaded-loras", str(room), "--chunked-prefill-size", "32", "--max-total-tokens", "16384"]
    with Server(str(model), *flags, "--lora-paths", f"other={folders[OTHER]}") as server:
        versions = Versions(server, folders)
        versions.load(0)
        clients = [Client(server, versions, ask) for ask in ASKS]
        for client in clients:
            client.start()
        started = time.monotonic()
        count = FULL if nightly else SHORT
        sizes, seconds = [], []
        try:
            for version in range(1, count + 1):
                begun = time.monotonic()
                # With little room a paused engine would hold it all.
                pauses = version % 7 == 0 and room > len(ASKS)
                if pauses:
                    assert server.post("/pause_generation", {"mode": ["retract", "in_place"][version % 2]})[0] == 200
                versions.load(version)
                if pauses:
                    assert server.post("/continue_generation", {})[0] == 200
                seconds.append(time.monotonic() - begun)
                if version % 5 == 0:
                    wait_for_answers(clients)
                    sizes.append(resident_bytes(server.process))
                if any(client.wrong for client in clients):
                    break
        finally:
            for client in clients:
                client.is_over.set()
            for client in clients:
                client.join(timeout=120)
        assert [client.wrong for client in clients] == [[]] * len(clients)
        status, reply = server.post("/generate", body_of("moving", 0.0))
        assert status == 200 and set(reply["output_ids"]) == {token_of(label_of(count))}
        names = ("num_answers", "num_tokens", "num_scores", "num_cached", "num_overtaken", "num_split", "num_refused")
        total = {name: sum(getattr(client, name) for client in clients) for name in names}
        growth = sizes[-1] - sizes[len(sizes) // 5]
        print(f"{count} updates in {time.monotonic() - started:.1f} s, median {1000 * sorted(seconds)[count // 2]:.1f} ms, "
              f"{versions.num_unloads} by unloading, {versions.num_retries} tried again; "
              f"memory {sizes[-1] / 2**20:.0f} MiB, {growth / 2**20:+.1f} MiB; {total}")
        assert total["num_overtaken"] > count // 5, "updates met running requests"
        assert total["num_split"] == 0, "all samples of a call are of one version"
        assert total["num_cached"] > 0, "prefixes of a version are found again"
        assert room < 16 or versions.num_retries == 0
        # A server that kept what it replaces would have 40 of them more, or 800.
        assert growth < 24 * ADAPTER_BYTES
