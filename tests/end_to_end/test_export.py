"""`slime export`: a clean directory in bf16, fp32 and fp8 that the program reads, with a card of the run."""

import json
import struct
import subprocess

import pytest
from conftest import SLIME, run_slime


def tensors(folder):
    """Name to (dtype, shape) of every weight file."""
    found = {}
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        found.update({name: (t["dtype"], tuple(t["shape"])) for name, t in header.items() if name != "__metadata__"})
    return found


def export(*words):
    return run_slime([str(SLIME), "export", *map(str, words)])


def greedy(folder):
    line = json.dumps({"text": "12+34=", "sampling_params": {"temperature": 0, "max_new_tokens": 8}})
    command = [str(SLIME), "generate", "--model", str(folder), "--device", "cpu"]
    done = subprocess.run(command, input=line, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["text"]


@pytest.fixture(scope="module")
def plain(reference, tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "my-model"
    done = export(reference, out)
    assert done.returncode == 0, done.stderr
    return out


def test_the_directory_holds_the_model_and_nothing_of_the_run(reference, plain):
    names = {path.name for path in plain.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
    assert not names & {"run.json", "COMMITTED", "optimizer"}
    assert not [name for name in names if "ledger" in name or "rollout" in name]
    assert tensors(plain) == tensors(reference / "latest")
    assert greedy(plain) == greedy(reference / "latest")


def test_the_card_tells_how_and_names_no_place(reference, work, plain):
    card = (plain / "README.md").read_text()
    assert "# my-model" in card and "after rollout step 19" in card
    assert "| `--lr` | 0.001 |" in card and "| `--rm-type` | random |" in card
    assert "`rl.jsonl`, SHA-256 `" in card and "CRC-32C `" in card
    assert "| step | rollout/raw_reward |" in card and "\n| 19 |" in card
    assert str(work) not in card and "/tmp" not in card


@pytest.mark.parametrize("step", [19, 18])
def test_steps_are_chosen(reference, tmp_path, step):
    done = export(f"{reference}@{step}", tmp_path / "out", "--dtype", "bf16")
    assert done.returncode == 0 and f"rollout step {step}" in done.stdout, done.stderr
    assert {dtype for dtype, _ in tensors(tmp_path / "out").values()} == {"BF16"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16"
    assert f"after rollout step {step}, written in bf16" in (tmp_path / "out" / "README.md").read_text()


def test_fp8_is_in_blocks_that_the_program_reads(reference, tmp_path):
    out = tmp_path / "fp8"
    done = export(reference, out, "--dtype", "fp8")
    assert done.returncode == 0, done.stderr
    written = tensors(out)
    name = "model.layers.0.self_attn.q_proj.weight"
    rows, columns = written[name][1]
    assert written[name][0] == "F8_E4M3"
    assert written[f"{name}_scale_inv"] == ("F32", (-(-rows // 128), -(-columns // 128)))
    assert {written[n][0] for n in written if "norm" in n or "embed" in n} == {"BF16"}
    told = json.loads((out / "config.json").read_text())["quantization_config"]
    assert (told["quant_method"], told["weight_block_size"]) == ("fp8", [128, 128])
    assert greedy(out), "the program reads it"
    again = export(out, tmp_path / "again", "--dtype", "fp8")
    assert again.returncode == 2 and "in low precision already" in again.stderr


def test_a_run_without_a_checkpoint_says_what_makes_one(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    done = run_slime([str(SLIME), "export", str(tmp_path / "run"), str(tmp_path / "out")])
    assert done.returncode == 2 and f"{tmp_path / 'run'}: no checkpoint yet. A run saves one at its end" in done.stderr
    assert "--save-interval N" in done.stderr and not (tmp_path / "out").exists()


def test_nothing_is_replaced_and_nothing_is_left_half(reference, plain, tmp_path):
    refused = export(reference, plain)
    assert refused.returncode == 2 and "is not replaced" in refused.stderr
    for words, message in [
        ((f"{reference}@3", tmp_path / "out"), "there is no checkpoint of step 3; there are those of 18, 19"),
        ((reference, tmp_path / "out", "--dtype", "int4"), "bf16, fp32 or fp8"),
        ((reference, tmp_path / "no" / "out"), "there is no folder"),
        ((reference, ""), "OUT: should be the new directory"),
        ((reference, reference / "checkpoints" / "out"), "which holds the run's checkpoints"),
        ((reference, reference / "latest" / "out"), "which holds the run's checkpoints"),
    ]:
        done = export(*words)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == [] and not list((reference / "checkpoints").rglob("out*"))


def test_transformers_reads_configuration_and_tokenizer(plain):
    transformers = pytest.importorskip("transformers", reason="needs transformers: tools/build/requirements/tests.txt")
    tokenizer = transformers.AutoTokenizer.from_pretrained(plain)
    line = json.dumps({"text": "12+34="})
    own = subprocess.run([str(SLIME), "tokenize", "--model", str(plain)], input=line, capture_output=True, text=True, timeout=300)
    assert tokenizer.encode("12+34=", add_special_tokens=False) == json.loads(own.stdout)["ids"], own.stderr
    assert transformers.AutoConfig.from_pretrained(plain).vocab_size


def test_transformers_opens_the_weights(plain):
    transformers = pytest.importorskip("transformers", reason="needs transformers: tools/build/requirements/tests.txt")
    torch = pytest.importorskip("torch", reason="weights need torch in the environment of the tests")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(plain, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model(torch.tensor([[1, 2, 3]])).logits.shape[-1] == model.config.vocab_size
