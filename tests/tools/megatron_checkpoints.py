#!/usr/bin/env python3
"""Checkpoints that Megatron-Core itself writes on a CPU, against tools/convert_torch_dist_to_hf.py and back.

    pip install torch megatron-core
    python3 tests/tools/megatron_checkpoints.py [KIND...]

For each kind of model: a tiny GPTModel is saved by megatron.core.dist_checkpointing with two tensor-parallel ranks (gloo), converted to a
Hugging Face directory and compared weight by weight with what the ranks had; the directory is converted back, and Megatron-Core loads
that. Prints one line a kind. KEEP=FOLDER leaves the checkpoint, its config.json and the sums of the converted tensors' bytes there, as
tests/fixtures/torch_dist has them (of qwen3, Megatron-Core 0.16.1, torch 2.11).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HIDDEN, HEADS, GROUPS, LAYERS, VOCABULARY, WIDTH = 32, 4, 2, 2, 96, 48
KINDS = {
    "llama": {"model_type": "llama"},
    "qwen2": {"model_type": "qwen2", "bias": True},
    "qwen3": {"model_type": "qwen3", "norms": True, "ties": True},
    "qwen3_moe": {"model_type": "qwen3_moe", "norms": True, "experts": 4},
    "singleton": {"model_type": "qwen3_moe", "norms": True, "experts": 4, "singleton": True},
}


def model_of(kind):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig
    import torch

    more = {}
    if kind.get("experts"):
        more = {"num_moe_experts": kind["experts"], "moe_router_topk": 2, "moe_ffn_hidden_size": 16, "moe_token_dispatcher_type": "allgather"}
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=GROUPS, kv_channels=16, ffn_hidden_size=WIDTH,
        normalization="RMSNorm", gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
        add_qkv_bias=bool(kind.get("bias")), qk_layernorm=bool(kind.get("norms")), use_cpu_initialization=True,
        params_dtype=torch.bfloat16, tensor_model_parallel_size=2, **more,
    )  # fmt: skip
    spec = get_gpt_layer_local_spec(num_experts=kind.get("experts"), qk_layernorm=bool(kind.get("norms")), normalization="RMSNorm")
    return GPTModel(
        config, spec, vocab_size=128, max_sequence_length=64, position_embedding_type="rope",
        share_embeddings_and_output_weights=bool(kind.get("ties")),
    )  # fmt: skip


def state_of(kind, model):
    from megatron.core import parallel_state

    metadata = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    if kind.get("singleton"):
        metadata["singleton_local_shards"] = True
    return model.sharded_state_dict(metadata=metadata)


def rank(kind_name, folder, action):
    import torch
    from megatron.core import dist_checkpointing, parallel_state

    kind = KINDS[kind_name]
    torch.cuda.synchronize = lambda *device: None  # the writer asks for a GPU, and there is none
    torch.cuda.current_device = lambda: "cpu"
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    torch.manual_seed(7 + torch.distributed.get_rank())
    model = model_of(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    where = Path(folder)
    me = torch.distributed.get_rank()
    if action == "save":
        # What both ranks have alike is rank 0's.
        for name, parameter in model.named_parameters():
            if not getattr(parameter, "tensor_model_parallel", False) and "experts" not in name:
                torch.distributed.broadcast(parameter.data, 0)
        (where / "iter_0000003").mkdir(exist_ok=True)
        torch.distributed.barrier()
        dist_checkpointing.save(state_of(kind, model), where / "iter_0000003")
        torch.save({name: value.detach().clone() for name, value in model.state_dict().items() if torch.is_tensor(value)}, where / f"rank{me}.pt")
        if me == 0:
            (where / "latest_checkpointed_iteration.txt").write_text("3")
    else:
        # As --dist-ckpt-strictness ignore_all does: there are no states of FP8 (_extra_state).
        strict = dist_checkpointing.validation.StrictHandling.IGNORE_ALL
        loaded = dist_checkpointing.load(state_of(kind, model), where / "back" / "release", strict=strict)
        model.load_state_dict(loaded, strict=False)
        saved = torch.load(where / f"rank{me}.pt")
        rows = VOCABULARY - me * 64  # of this rank's part of the vocabulary
        for name, value in model.state_dict().items():
            # The specification with Transformer Engine has this name; the local one, which CPUs need, another.
            if torch.is_tensor(value) and not (kind.get("experts") and "pre_mlp_layernorm" in name):
                mine, theirs = value, saved[name]
                if "word_embeddings" in name or "output_layer" in name:
                    mine, theirs = mine[:rows], theirs[:rows]
                assert torch.equal(mine, theirs), name


def check(name):
    import torch

    kind = KINDS[name]
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517", __file__, "--rank", name, folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run([*run, "save"], check=True, env=environment)
        config = {
            "model_type": kind["model_type"], "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS,
            "num_key_value_heads": GROUPS, "head_dim": 16, "vocab_size": VOCABULARY, "tie_word_embeddings": bool(kind.get("ties")),
            "num_experts": kind.get("experts"), "intermediate_size": WIDTH,
        }  # fmt: skip
        (where / "origin").mkdir()
        (where / "origin" / "config.json").write_text(json.dumps(config))
        tool = [sys.executable, ROOT / "tools" / "convert_torch_dist_to_hf.py", "--input-dir", where, "--origin-hf-dir", where / "origin"]
        subprocess.run([*tool, "--output-dir", where / "hf"], check=True)
        sys.path.insert(0, str(ROOT / "python"))
        from slime.checkpoints.safetensors_file import ModelDirectory

        model = ModelDirectory(where / "hf")
        ranks = [torch.load(where / f"rank{i}.pt") for i in range(2)]

        def hf(tensor):
            dtype, shape, data = model.tensors[tensor]
            return torch.frombuffer(bytearray(data), dtype={"BF16": torch.bfloat16, "F32": torch.float32}[dtype]).reshape(shape)

        def halves(part, i):  # of a gated projection that is divided among the ranks
            return torch.cat([each[part].chunk(2)[i] for each in ranks])

        compared = 0
        for layer in range(LAYERS):
            here, there = f"decoder.layers.{layer}.", f"model.layers.{layer}."
            for what in ("weight", "bias") if kind.get("bias") else ("weight",):
                groups = [each[f"{here}self_attention.linear_qkv.{what}"] for each in ranks]  # a rank has one group: 2 x 16, 16, 16 rows
                for i, (begin, end) in enumerate(((0, 32), (32, 48), (48, 64))):
                    want = torch.cat([each[begin:end] for each in groups])
                    assert torch.equal(want, hf(f"{there}self_attn.{'qkv'[i]}_proj.{what}"))
                    compared += 1
            pairs = [("self_attention.linear_proj.weight", "self_attn.o_proj.weight")]
            if not kind.get("experts"):
                pairs.append(("mlp.linear_fc2.weight", "mlp.down_proj.weight"))
                for i, half in enumerate(("gate", "up")):
                    assert torch.equal(halves(f"{here}mlp.linear_fc1.weight", i), hf(f"{there}mlp.{half}_proj.weight"))
                    compared += 1
            for index in range(kind.get("experts") or 0):
                expert = f"{here}mlp.experts.local_experts.{index}."
                pairs.append((f"mlp.experts.local_experts.{index}.linear_fc2.weight", f"mlp.experts.{index}.down_proj.weight"))
                for i, half in enumerate(("gate", "up")):
                    assert torch.equal(halves(f"{expert}linear_fc1.weight", i), hf(f"{there}mlp.experts.{index}.{half}_proj.weight"))
                    compared += 1
            for one, other in pairs:  # divided by columns
                assert torch.equal(torch.cat([each[here + one] for each in ranks], dim=1), hf(there + other)), other
                compared += 1
        whole = torch.cat([each["embedding.word_embeddings.weight"] for each in ranks])[:VOCABULARY]
        assert torch.equal(whole, hf("model.embed_tokens.weight"))
        assert ("lm_head.weight" in model.tensors) != bool(kind.get("ties"))
        if os.environ.get("KEEP"):
            keep = Path(os.environ["KEEP"])
            shutil.copytree(where / "origin", keep / "origin")
            shutil.copytree(where / "iter_0000003", keep / "iter_0000003")
            (keep / "latest_checkpointed_iteration.txt").write_text("3")
            sums = {key: [dtype, list(shape), sum(data)] for key, (dtype, shape, data) in model.tensors.items()}
            (keep / "expected.json").write_text(json.dumps(sums))
        back = [sys.executable, ROOT / "tools" / "convert_hf_to_torch_dist.py", "--hf-checkpoint", where / "hf", "--save", where / "back"]
        subprocess.run(back, check=True)
        if not kind.get("singleton"):  # another form of the same; the tool writes the usual one
            subprocess.run([*run, "load"], check=True, env=environment)
        print(f"{name}: {len(model.tensors)} tensors, {compared + 1} compared; Megatron-Core loads what was converted back")


def main():
    if sys.argv[1:2] == ["--rank"]:
        return rank(*sys.argv[2:])
    for name in sys.argv[1:] or KINDS:
        check(name)


if __name__ == "__main__":
    main()
