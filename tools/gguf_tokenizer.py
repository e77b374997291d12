"""The tokenizer inside a GGUF file as Hugging Face's tokenizer.json and tokenizer_config.json. Used by gguf_to_hf.py.

Two kinds exist in Llama-family files. `gpt2`: byte-level BPE, where `tokenizer.ggml.pre` names how text is cut into words.
`llama`: SentencePiece, whose merges are not stored but follow from the scores.
"""

TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED = 2, 3, 4

# Words of the published tokenizers behind each `tokenizer.ggml.pre`.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLIT_PATTERNS = {
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "smaug-bpe": LLAMA3,
    "dbrx": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "tekken": TEKKEN,
}
SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"}
PLAIN_GPT2 = {"default", "gpt-2", "gpt2", "olmo", "mpt", "phi-2", "jina-es", "jina-de"}
# These take a word that is itself a token without merging.
IGNORES_MERGES = {"llama-bpe", "llama3", "llama-v3", "tekken"}
ADDS_BOS = {"llama-bpe", "llama3", "llama-v3", "tekken"}


class UnsupportedTokenizer(Exception):
    pass


def byte_level(**changes):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **changes}


def pre_tokenizer(name):
    if name in SPLIT_PATTERNS:
        split = {"type": "Split", "pattern": {"Regex": SPLIT_PATTERNS[name]}, "behavior": "Isolated", "invert": False}
        return {"type": "Sequence", "pretokenizers": [split, byte_level(use_regex=False)]}
    if name in SINGLE_DIGITS:
        return {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level()]}
    if name in PLAIN_GPT2:
        return byte_level()
    known = sorted({*SPLIT_PATTERNS, *SINGLE_DIGITS, *PLAIN_GPT2})
    raise UnsupportedTokenizer(f'tokenizer.ggml.pre is "{name}"; supported: {", ".join(known)}')


def added_tokens(tokens, types):
    """Control tokens are special, user-defined ones are matched in text but shown."""
    added = []
    for index, kind in enumerate(types):
        if kind in (TYPE_CONTROL, TYPE_USER_DEFINED) or (kind == TYPE_UNKNOWN and tokens[index].startswith("<")):
            added.append(
                {
                    "id": index,
                    "content": tokens[index],
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    # In text that is normalised already, blanks are written so.
                    "normalized": kind == TYPE_USER_DEFINED and "\u2581" in tokens[index],
                    "special": kind != TYPE_USER_DEFINED,
                }
            )
    return added


def bpe_model(tokens, merges, **changes):
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": merges,
        **changes,
    }


def merges_from_scores(tokens, scores):
    """SentencePiece joins the neighbours whose union has the best score. As a merge list: every way to cut a token into two
    tokens, better unions first; among the cuts of one union, longer left parts first, as in Hugging Face's conversion."""
    ids = {token: index for index, token in enumerate(tokens)}
    found = []
    for token, score in zip(tokens, scores):
        cuts = [
            (token[:cut], token[cut:]) for cut in range(1, len(token)) if token[:cut] in ids and token[cut:] in ids
        ]
        cuts.sort(key=lambda cut: (ids[cut[0]], ids[cut[1]]))
        found.extend((score, cut) for cut in cuts)
    found.sort(key=lambda entry: (entry[0], len(entry[1][0]), len(entry[1][1])), reverse=True)
    return [list(cut) for _, cut in found]


def begin_with(bos, bos_id):
    """A post-processor that puts one token in front."""
    special = {"SpecialToken": {"id": bos, "type_id": 0}}
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, {"SpecialToken": {"id": bos, "type_id": 1}}, second],
        "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
    }


def special_token_ids(meta):
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {short: meta.get(f"tokenizer.ggml.{long}_token_id") for short, long in names.items()}
    return {short: int(index) for short, index in ids.items() if index is not None}


def tokenizer_json(meta):
    """Raises UnsupportedTokenizer, with what is there and what is supported."""
    model = meta.get("tokenizer.ggml.model")
    tokens = meta.get("tokenizer.ggml.tokens")
    if not tokens:
        raise UnsupportedTokenizer("the file has no tokenizer.ggml.tokens")
    types = meta.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    ids = special_token_ids(meta)
    result = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(tokens, types),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
    }
    if model == "gpt2":
        pre = meta.get("tokenizer.ggml.pre", "default")
        merges = meta.get("tokenizer.ggml.merges")
        if not merges:
            raise UnsupportedTokenizer("a gpt2 tokenizer without tokenizer.ggml.merges")
        result["pre_tokenizer"] = pre_tokenizer(pre)
        if pre in ("qwen2", "deepseek-r1-qwen"):
            result["normalizer"] = {"type": "NFC"}
        result["decoder"] = byte_level(add_prefix_space=True)
        # A merge is two tokens with one blank between; tokens of a byte-level vocabulary hold none.
        result["model"] = bpe_model(tokens, [m.split(" ") for m in merges], ignore_merges=pre in IGNORES_MERGES)
        adds_bos = meta.get("tokenizer.ggml.add_bos_token", pre in ADDS_BOS)
    elif model == "llama":
        scores = meta.get("tokenizer.ggml.scores")
        if not scores:
            raise UnsupportedTokenizer("a SentencePiece tokenizer without tokenizer.ggml.scores")
        space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        prefixes = meta.get("tokenizer.ggml.add_space_prefix", True)
        steps = [{"type": "Prepend", "prepend": "\u2581"}] if prefixes else []
        result["normalizer"] = {"type": "Sequence", "normalizers": [*steps, space]}
        decoders = [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if prefixes:
            decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        result["decoder"] = {"type": "Sequence", "decoders": decoders}
        unknown = tokens[ids["unk"]] if "unk" in ids else None
        result["model"] = bpe_model(
            tokens, merges_from_scores(tokens, scores), unk_token=unknown, fuse_unk=True, byte_fallback=True
        )
        adds_bos = meta.get("tokenizer.ggml.add_bos_token", True)
    else:
        raise UnsupportedTokenizer(f'tokenizer.ggml.model is "{model}"; supported: gpt2, llama')
    if adds_bos and "bos" in ids:
        result["post_processor"] = begin_with(tokens[ids["bos"]], ids["bos"])
    return result


def tokenizer_config(meta, context_length):
    tokens = meta["tokenizer.ggml.tokens"]
    config = {
        # Not a class of one model: those may rebuild their own pre-tokenizer, and the file's is lost.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{name}_token": tokens[index] for name, index in special_token_ids(meta).items()},
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
    }
    if "tokenizer.chat_template" in meta:
        config["chat_template"] = meta["tokenizer.chat_template"]
    return config
