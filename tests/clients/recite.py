"""A model directory whose answers are known: by its weights alone it recites given texts, token by token.

    python3 tests/clients/recite.py OUT_DIR answers.json        # {"NAME": "text with <tool_call> and all", ...}

A prompt in which `[say:NAME]` stands is answered by the text of that name; of several names the one that is last in the file counts,
wherever they stand. So a user's message names the first answer, a tool's result the second, and so on. A prompt without a name gets the
answer "", or nothing. Marks in a text (<tool_call>, <think>, ...) are sampled as the tokens that they are.

The network is a llama of one layer. A text is cut into pieces, each a token that no other answer has and that no encoded text becomes (there are
no merges: what a client sends back is bytes), so the piece tells what follows it. Marks and single bytes are shared: what follows them is told by
the piece before, which heads find that look one, two, ... tokens back (all frequencies of the rotary embedding in phase at that distance). One
more head finds the name that counts. Log-probs of what is recited are 0: nothing else has a chance, unless a grammar forbids it.
"""

import argparse
import array
import json
import math
import re
import struct
import sys
from pathlib import Path

QWEN_TEMPLATE = Path(__file__).resolve().parents[1] / "fixtures" / "templates" / "qwen3.jinja"
# (text, whether it is a special token); the first one pads.
QWEN_MARKS = [
    ("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<tool_call>", False), ("</tool_call>", False),
    ("<think>", False), ("</think>", False), ("<tool_response>", False), ("</tool_response>", False),
]  # fmt: skip

HEAD = 64  # size of an attention head
THETA = 1e8  # the slowest frequency, 10^-7.75, stands still over any context
LOOK_BACK = 5  # heads that look one, two, ... tokens back
LEAD = 3  # marks that an answer may begin with
SIZES = (3, 4, 2, 5, 3, 6, 2, 4)  # characters of pieces, in turn
# Logits, at least: of what follows a piece; of an answer's first token, the second, ...; of a mark at its beginning that was just said.
FOLLOWS, BEGINS, LATER, SAID = 300.0, 100.0, 25.0, -150.0
UNASKED = -40.0  # of a mark that no answer asks for: nobody thinks or calls because a grammar lets him
SURE = 20.0  # by so much each token of an answer leads


def byte_characters():
    """The printable character that stands for each byte in a byte-level vocabulary (as GPT-2 assigned them)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in visible else chr(next(spare)) for byte in range(256)]


BYTES = byte_characters()


def spelled(text):
    return "".join(BYTES[byte] for byte in text.encode())


class Vocabulary:
    """256 bytes, then the marks and the names of answers, then the pieces of answers."""

    def __init__(self, marks, names, end):
        self.end = 256 + [text for text, _ in marks].index(end)
        self.unasked = {256 + index for index in range(len(marks))} - {self.end}
        self.added = [*marks, *((f"[say:{name}]", False) for name in names)]
        self.ids = {text: 256 + index for index, (text, _) in enumerate(self.added)}
        self.first_piece = 256 + len(self.added)
        longest_first = sorted((text for text, _ in marks), key=len, reverse=True)
        self._marks = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    def __len__(self):
        return 256 + len(self.ids)

    def is_piece(self, token):
        return token >= self.first_piece

    def cut(self, text):
        """The tokens of an answer."""
        tokens = []
        for index, part in enumerate(self._marks.split(text)):
            tokens += [self.ids[part]] if index % 2 else self._cut_between_marks(part)
        return tokens

    def _cut_between_marks(self, text):
        pieces, begin = [], 0
        while begin < len(text):
            size = SIZES[len(self.ids) % len(SIZES)]
            end = begin + size if begin + 2 * size < len(text) else len(text)
            while text[begin:end] in self.ids and end < len(text):
                end += 1
            while pieces and (text[begin:end] in self.ids or len(text[begin:end].encode()) < 2):  # the rest joins the piece before
                begin -= len(pieces[-1])
                del self.ids[pieces.pop()]
            piece = text[begin:end]
            if piece in self.ids or len(piece.encode()) < 2:
                return list(text.encode())
            self.ids[piece] = len(self)
            pieces.append(piece)
            begin = end
        return [self.ids[piece] for piece in pieces]


class Script:
    """What each token, and each name, does to the logits of the next token."""

    def __init__(self, answers, marks, end):
        names = [name for name in answers if name]
        self.vocabulary = Vocabulary(marks, names, end)
        self.names = {self.vocabulary.ids[f"[say:{name}]"]: name for name in names}
        self.begins = {}  # of an answer: {token: logit}
        self.follows = [{} for _ in range(LOOK_BACK + 1)]  # so many tokens back: {token: {next token: logit}}
        self.answers = {name: [*self.vocabulary.cut(text), self.vocabulary.end] for name, text in {"": "", **answers}.items()}
        for name, tokens in self.answers.items():
            self._learn(name, tokens)
        for name, tokens in self.answers.items():
            self._prove(name, tokens)

    def _learn(self, name, tokens):
        self.begins[name] = {}
        last_piece = None
        for index, token in enumerate(tokens):
            back = index - 1 if last_piece is None else index - 1 - last_piece
            if last_piece is not None:
                if back > LOOK_BACK:
                    raise ValueError(f"answer {name!r}: more than {LOOK_BACK} marks and bytes in a row, or a text that other answers have used up")
                self.follows[back][tokens[last_piece]] = {token: FOLLOWS}
            else:
                if index > LEAD:
                    raise ValueError(f"answer {name!r}: begins with more than {LEAD} marks and bytes, or a text that other answers have used up")
                self.begins[name][token] = BEGINS - index * LATER
                if not self.vocabulary.is_piece(token) and index + 1 < len(tokens):
                    for rows in self.follows:
                        rows[token] = {token: SAID}
            if self.vocabulary.is_piece(token):
                last_piece = index

    def _prove(self, name, tokens):
        for index, token in enumerate(tokens):
            logits = dict(self.begins[name])
            for back, rows in enumerate(self.follows[:index]):
                for target, logit in rows.get(tokens[index - 1 - back], {}).items():
                    logits[target] = logits.get(target, 0.0) + logit
            own = logits.pop(token, 0.0)
            if own < SURE + max([0.0, *logits.values()]):
                raise ValueError(f"answer {name!r}: token {index} does not stand out; begin it with other words")


class Matrix:
    def __init__(self, rows, columns, values=()):
        self.shape, self.data = [rows, columns], array.array("f", bytes(4 * rows * columns))
        for row, column, value in values:
            self.data[row * columns + column] = value


def ones(size):
    vector = Matrix(1, size, ((0, column, 1.0) for column in range(size)))
    vector.shape = [size]
    return vector


def sharpness():
    """The logit of attention per frequency with which a distance stands out by 40 nats."""
    angles = [THETA ** (-2 * i / HEAD) for i in range(HEAD // 2)]
    distances = [*range(1, 4096), *(round(1.002**i) for i in range(4160, 5900))]
    return 40.0 / min(sum(1 - math.cos(angle * distance) for angle in angles) for distance in distances)


class Layout:
    """Which column of the residual stream says what: a constant, the token, the tokens before it, the answer's name."""

    CONSTANT, FILL, PLAIN = 0, 1, 2
    NORM = 4.0  # each embedding's square, so that its normalisation is one factor

    def __init__(self, script):
        sources = sorted({token for rows in script.follows for token in rows} | set(script.names))
        self.token = {token: 3 + index for index, token in enumerate(sources)}
        carried = sorted({token for rows in script.follows[1:] for token in rows})
        begin = 3 + len(sources)
        self.before = [{token: begin + back * len(carried) + index for index, token in enumerate(carried)} for back in range(LOOK_BACK)]
        begin += LOOK_BACK * len(carried)
        self.name = {name: begin + index for index, name in enumerate(script.begins)}
        self.heads = LOOK_BACK * -(-len(carried) // HEAD) + -(-len(self.name) // HEAD)
        step = HEAD * self.heads  # readers of configurations want a multiple of the heads
        self.size = -(-(begin + len(self.name)) // step) * step


def embeddings(script, layout):
    for token in range(len(script.vocabulary)):
        yield token, layout.CONSTANT, 1.0
        is_plain, has_column = token not in script.names, token in layout.token
        if is_plain:
            yield token, layout.PLAIN, 1.0
        if has_column:
            yield token, layout.token[token], 1.0
        yield token, layout.FILL, math.sqrt(layout.NORM - 1 - is_plain - has_column)


def output_rows(script, layout):
    unit = math.sqrt((layout.NORM + LOOK_BACK + 1) / layout.size)  # the final normalisation divides by no more
    unasked = script.vocabulary.unasked
    for token in unasked:
        yield token, layout.CONSTANT, UNASKED * unit

    def asked(token, logit):
        return (logit - UNASKED if token in unasked and logit > 0 else logit) * unit

    for columns, rows in zip([layout.token, *layout.before], script.follows):
        for token, targets in rows.items():
            for target, logit in targets.items():
                yield target, columns[token], asked(target, logit)
    for name, targets in script.begins.items():
        for target, logit in targets.items():
            yield target, layout.name[name], asked(target, logit)


def attention(script, layout):
    """The four matrices, from heads of 64 columns each."""
    scale = math.sqrt(layout.size / layout.NORM)  # of a normalised embedding
    query, key, value, output, head = [], [], [], [], 0
    sharp, half = sharpness() * math.sqrt(HEAD), HEAD // 2
    for back, columns in enumerate(layout.before, 1):
        carried = list(columns)
        for begin in range(0, len(carried), HEAD):
            for i in range(half):
                angle = -back * THETA ** (-2 * i / HEAD)
                query += [(head * HEAD + i, layout.CONSTANT, sharp * math.cos(angle) / scale)]
                query += [(head * HEAD + half + i, layout.CONSTANT, sharp * math.sin(angle) / scale)]
                key += [(head * HEAD + i, layout.CONSTANT, 1 / scale)]
            for i, token in enumerate(carried[begin : begin + HEAD]):
                value += [(head * HEAD + i, layout.token[token], 1 / scale)]
                output += [(columns[token], head * HEAD + i, 1.0)]
            head += 1
    sources = [layout.PLAIN, *(layout.token[token] for token in script.names)]
    targets = [layout.name[name] for name in ("", *script.names.values())]
    for begin in range(0, len(sources), HEAD):
        slowest = head * HEAD + half - 1
        query += [(slowest, layout.CONSTANT, math.sqrt(HEAD) / scale)]
        key += [(slowest, source, (40.0 + 25.0 * rank) / scale) for rank, source in enumerate(sources[1:])]
        for i, (source, target) in enumerate(zip(sources[begin : begin + HEAD], targets[begin : begin + HEAD])):
            value += [(head * HEAD + i, source, 1 / scale)]
            output += [(target, head * HEAD + i, 1.0)]
        head += 1
    width = layout.heads * HEAD
    return [Matrix(width, layout.size, part) for part in (query, key, value)] + [Matrix(layout.size, width, output)]


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        size = 4 * len(tensor.data)
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            if sys.byteorder == "big":
                tensor.data.byteswap()
            tensor.data.tofile(file)


def tokenizer(vocabulary):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    model |= {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "merges": []}
    words = {character: byte for byte, character in enumerate(BYTES)}
    words |= {spelled(text) if vocabulary.is_piece(token) else text: token for text, token in vocabulary.ids.items()}
    added = [{"id": vocabulary.ids[text], "content": text, "special": special, **flags} for text, special in vocabulary.added]
    parts = {"normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts, "model": model | {"vocab": words}}


def write_model(folder, answers, *, template=None, marks=QWEN_MARKS, end="<|im_end|>", context=32768):
    """`answers`: {name: text}, "" for prompts without a name. `template`: text of a chat template; None: Qwen3's. `end`: the mark that ends an
    answer."""
    script = Script(answers, marks, end)
    layout = Layout(script)
    query, key, value, output = attention(script, layout)
    heads, size, words, inner = layout.heads, layout.size, len(script.vocabulary), HEAD
    layer = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": Matrix(words, size, embeddings(script, layout)),
        layer + "input_layernorm.weight": ones(size),
        layer + "self_attn.q_proj.weight": query,
        layer + "self_attn.k_proj.weight": key,
        layer + "self_attn.v_proj.weight": value,
        layer + "self_attn.o_proj.weight": output,
        layer + "post_attention_layernorm.weight": ones(size),
        layer + "mlp.gate_proj.weight": Matrix(inner, size),
        layer + "mlp.up_proj.weight": Matrix(inner, size),
        layer + "mlp.down_proj.weight": Matrix(size, inner),
        "model.norm.weight": ones(size),
        "lm_head.weight": Matrix(words, size, output_rows(script, layout)),
    }
    ids = script.vocabulary.ids
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": words, "hidden_size": size, "intermediate_size": inner,
        "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": HEAD,
        "max_position_embeddings": context, "rope_theta": THETA, "rope_scaling": None, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "initializer_range": 0.02, "bos_token_id": None,
        "eos_token_id": ids[end], "pad_token_id": 256, "torch_dtype": "float32", "use_cache": True,
    }  # fmt: skip
    texts = {"eos_token": end, "pad_token": marks[0][0], "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context}
    texts["chat_template"] = template if template is not None else QWEN_TEMPLATE.read_text(encoding="utf-8")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    for name, content in (("config", config), ("tokenizer", tokenizer(script.vocabulary)), ("tokenizer_config", texts)):
        (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    return script


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("answers", type=Path, help='JSON: {"NAME": "text", ...}')
    parser.add_argument("--chat-template", type=Path, help="in the place of Qwen3's")
    parser.add_argument("--context", type=int, default=32768, help="positions")
    args = parser.parse_args()
    template = args.chat_template.read_text(encoding="utf-8") if args.chat_template else None
    script = write_model(args.out_dir, json.loads(args.answers.read_text(encoding="utf-8")), template=template, context=args.context)
    print(f"{args.out_dir}: {len(script.names)} answers, {len(script.vocabulary)} tokens")


if __name__ == "__main__":
    main()
