"""Updates of the weights under load: every token, score and label is of the weights that its answer says."""

import threading

from naming_model import LABELS, head_update, make_naming_model
from server_process import Server

CLIENTS = 6
FULL = 1000
SHORT = 50


def runs_of(meta: dict, count: int) -> list[str]:
    """The version of each token."""
    runs = meta.get("weight_version_runs", [[meta["weight_version"], count]])
    return [name for name, length in runs for _ in range(length)]


class Watcher(threading.Thread):
    """A client that never stops asking, and remembers what was wrong."""

    def __init__(self, server: Server, number: int, is_over: threading.Event):
        super().__init__()
        self.server, self.number, self.is_over = server, number, is_over
        self.wrong, self.num_tokens, self.num_scores, self.num_mixed = [], 0, 0, 0

    def run(self):
        try:
            while not self.is_over.is_set() and not self.wrong:
                self.score() if self.number % 3 == 0 else self.sample(streams=self.number % 3 == 1)
        except Exception as error:  # shown by the test
            self.wrong.append(repr(error))

    def sample(self, streams: bool):
        body = {"input_ids": [40, 41], "stream": streams, "return_logprob": True, "sampling_params": {"temperature": 1.0, "max_new_tokens": 60, "ignore_eos": True}}
        if streams:
            replies = list(self.server.frames("/generate", body))
        else:
            status, reply = self.server.post("/generate", body)
            assert status == 200, reply
            replies = [reply]
        for reply in replies:
            ids, meta = reply["output_ids"], reply["meta_info"]
            names = runs_of(meta, len(ids))
            if [int(name) % LABELS for name in names] != ids or (names and meta["weight_version"] != names[-1]):
                self.wrong.append(f"tokens {ids} of versions {names}")
        self.num_tokens += len(ids)
        self.num_mixed += len(set(names)) > 1

    def score(self):
        """Every label once: the one of the weights that scored has log-prob 0, the others have none."""
        body = {"input_ids": [LABELS, *range(LABELS)] * 8, "return_logprob": True, "logprob_start_len": 1, "sampling_params": {"max_new_tokens": 0}}
        status, reply = self.server.post("/generate", body)
        assert status == 200, reply
        if reply["meta_info"]["finish_reason"]["type"] == "abort":
            return
        likely = {token for log_prob, token, _ in reply["meta_info"]["input_token_logprobs"] if log_prob > -1}
        if likely != {int(reply["meta_info"]["weight_version"]) % LABELS}:
            self.wrong.append(f"scores of {likely}, label {reply['meta_info']['weight_version']}")
        self.num_scores += 1


def test_no_token_and_no_label_is_of_other_weights(tmp_path, nightly):
    model = make_naming_model(tmp_path / "model")
    with Server(str(model), "--weight-version", "0", "--skip-tokenizer-init", "--chunked-prefill-size", "32") as server:
        is_over = threading.Event()
        watchers = [Watcher(server, number, is_over) for number in range(CLIENTS)]
        for watcher in watchers:
            watcher.start()
        for version in range(1, (FULL if nightly else SHORT) + 1):
            if version % 7 == 0:
                server.post("/pause_generation", {"mode": ["retract", "in_place"][version % 2]})
            status, reply = server.post("/update_weights_from_tensor", {
                "serialized_named_tensors": [head_update(version)], "weight_version": str(version), "abort_all_requests": version % 10 == 0})
            assert status == 200, reply
            asked = server.get("/get_weight_version")[1]["weight_version"]
            assert asked == str(version)
            if version % 7 == 0:
                server.post("/continue_generation", {})
        is_over.set()
        for watcher in watchers:
            watcher.join(timeout=60)
        assert [watcher.wrong for watcher in watchers] == [[]] * CLIENTS
        assert sum(watcher.num_tokens for watcher in watchers) > 500
        assert sum(watcher.num_scores for watcher in watchers) > 5
        assert sum(watcher.num_mixed for watcher in watchers) > 3, "updates met running requests"
