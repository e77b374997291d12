"""Files of other trainers: torch's zip files and torch_dist directories are read without torch, and nothing in them is run."""

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from slime.checkpoints import rollout_dump, torch_pickle  # noqa: E402
from slime.checkpoints.megatron_names import Names  # noqa: E402
from slime.checkpoints.safetensors_file import ModelDirectory  # noqa: E402
from slime.checkpoints.torch_dist import TorchDist, _place  # noqa: E402

FIXTURE = ROOT / "tests" / "fixtures" / "torch_dist"


def torch_file(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content if isinstance(content, bytes) else pickle.dumps(content, 2))
        archive.writestr("archive/byteorder", b"little")


class Attack:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder / "run"),)


def test_nothing_that_a_file_names_is_run(tmp_path):
    torch_file(tmp_path / "evil.pt", {"samples": [{"metadata": Attack(tmp_path)}]})
    with pytest.raises(torch_pickle.BadFile, match="object of a class"):
        rollout_dump.read_pt(tmp_path / "evil.pt")
    (tmp_path / "bare").write_bytes(pickle.dumps(Attack(tmp_path)))
    torch_pickle.load_pickle(tmp_path / "bare")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04" + bytes(60), b"no zip", pickle.dumps([1])])
def test_what_is_no_file_of_torch_says_so(tmp_path, content):
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(torch_pickle.BadFile, match="x.pt"):
        torch_pickle.load(tmp_path / "x.pt")


def test_dumps_go_to_json_lines_and_back(tmp_path):
    sample = {
        "group_index": 1, "index": 4, "prompt": "1+1=", "tokens": [5, 6, 7], "response": "2", "response_length": 1, "label": "2",
        "reward": 1.0, "loss_mask": [1], "weight_versions": ["3"], "rollout_log_probs": [-0.5], "status": "completed", "metadata": {},
        "remove_sample": False, "spec_info": {}, "prefix_cache_info": {"cached_tokens": 2, "total_prompt_tokens": 2},
    }  # fmt: skip
    torch_file(tmp_path / "rollout_7.pt", {"rollout_id": 7, "samples": [sample]})
    assert rollout_dump.convert(tmp_path / "rollout_7.pt", tmp_path / "rollout_7.jsonl") == 1
    line = json.loads((tmp_path / "rollout_7.jsonl").read_text())
    assert line["weight_versions"] == [[3, 1]] and line["tokens"] == [5, 6, 7] and line["cached_tokens"] == 2
    assert "spec_info" not in line  # there is nothing in it
    assert rollout_dump.convert(tmp_path / "rollout_7.jsonl", tmp_path / "back_7.pt") == 1
    content = torch_pickle.load(tmp_path / "back_7.pt")
    assert content["rollout_id"] == 7
    for key in ("tokens", "reward", "weight_versions", "loss_mask", "status", "prefix_cache_info"):
        assert content["samples"][0][key] == sample[key]


def test_counts_of_drafts_go_with_a_dump(tmp_path):
    info = {"spec_accept_token_num": 1, "spec_draft_token_num": 3, "spec_verify_ct": 2, "completion_token_num": 3}
    sample = {"group_index": 1, "index": 4, "prompt": "1+1=", "tokens": [5, 6], "response": "2", "response_length": 1, "status": "completed"}
    torch_file(tmp_path / "rollout_7.pt", {"rollout_id": 7, "samples": [{**sample, "spec_info": info}]})
    rollout_dump.convert(tmp_path / "rollout_7.pt", tmp_path / "rollout_7.jsonl")
    assert json.loads((tmp_path / "rollout_7.jsonl").read_text())["spec_info"] == info
    rollout_dump.convert(tmp_path / "rollout_7.jsonl", tmp_path / "back_7.pt")
    assert torch_pickle.load(tmp_path / "back_7.pt")["samples"][0]["spec_info"] == info


def test_boxes_are_laid_where_they_belong():
    whole = bytearray(2 * 3 * 4)
    _place(whole, (2, 3, 4), (0, 1, 2), (2, 2, 2), bytes(range(1, 9)), 1)
    rows = [list(whole[i : i + 4]) for i in range(0, 24, 4)]
    assert rows == [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 3, 4], [0, 0, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]]
    _place(whole, (2, 3, 4), (1, 0, 0), (1, 3, 4), bytes([9] * 12), 1)
    assert whole[12:] == bytes([9] * 12) and whole[4:8] == bytes([0, 0, 1, 2])


def test_rows_of_query_key_and_value_go_group_by_group():
    names = Names({"model_type": "qwen2", "num_hidden_layers": 1, "vocab_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2})
    assert names.rows("qkv", 16) == [[(0, 4), (8, 12)], [(4, 6), (12, 14)], [(6, 8), (14, 16)]]
    with pytest.raises(torch_pickle.BadFile, match="do not fit"):
        names.rows("qkv", 15)
    with pytest.raises(torch_pickle.BadFile, match="model_type 'gemma2' is not converted"):
        Names({"model_type": "gemma2"})


@pytest.mark.skipif(not FIXTURE.exists(), reason="no checkpoint of Megatron-Core here")
def test_a_checkpoint_that_megatron_core_wrote_becomes_a_model(tmp_path):
    tool = [sys.executable, ROOT / "tools" / "convert_torch_dist_to_hf.py", "--input-dir", FIXTURE, "--origin-hf-dir", FIXTURE / "origin"]
    done = subprocess.run([*tool, "--output-dir", tmp_path / "hf"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    model = ModelDirectory(tmp_path / "hf")
    expected = json.loads((FIXTURE / "expected.json").read_text())
    assert {name: [dtype, list(shape), sum(data)] for name, (dtype, shape, data) in model.tensors.items()} == expected
    again = subprocess.run([*tool, "--output-dir", tmp_path / "hf"], capture_output=True, text=True)
    assert again.returncode == 1 and "has files" in again.stderr


@pytest.mark.skipif(not FIXTURE.exists(), reason="no checkpoint of Megatron-Core here")
def test_a_checkpoint_that_lacks_a_file_or_is_another_models_is_refused_by_name(tmp_path):
    import shutil

    shutil.copytree(FIXTURE, tmp_path / "cut")
    next((tmp_path / "cut").glob("iter_*/*.distcp")).unlink()
    source = TorchDist(tmp_path / "cut")
    with pytest.raises(torch_pickle.BadFile, match="is missing; .metadata names it"):
        for name in source.tensors:
            source.read(name)
    config = json.loads((FIXTURE / "origin" / "config.json").read_text())
    with pytest.raises(torch_pickle.BadFile, match="2 layers; config.json says 3"):
        Names({**config, "num_hidden_layers": 3}).parts(TorchDist(FIXTURE).tensors)
