"""Which tokens of a conversation are trained: those that the assistant wrote, the end of its turn included.

With the program's own tokenizer (slime.utils.native_tokenizer) this is the program's own renderer, which reads any
template. With one of transformers, `auto` finds the answers by what the template makes of the messages before them;
the other names are the ways of the original, one for each family of templates.
"""

__all__ = ["MultiTurnLossMaskGenerator", "get_response_lengths"]

_PROBE = "FOR TESTING ONLY"
_FILLER = {"role": "user", "content": "FOR CALCULATING LOSS MASK ONLY"}


def get_response_lengths(loss_masks):
    """Tokens from the first trained one to the end; 0 where nothing is trained."""
    return [len(mask) - mask.index(1) if 1 in mask else 0 for mask in loss_masks]


def _positions(tokens, part):
    return [i for i in range(len(tokens) - len(part) + 1) if tokens[i : i + len(part)] == part]


def _is_trained(message):
    return message["role"] == "assistant" and message.get("step_loss_mask", 1) == 1


class MultiTurnLossMaskGenerator:
    """Token ids and loss mask of a list of messages.

    A message with step_loss_mask 0 is not trained. `system_message_length` is the number of tokens of the system
    message that the template adds by itself, `gen_token_length` that of the header of an assistant's turn.
    """

    def __init__(self, tokenizer, tokenizer_type="qwen"):
        self.tokenizer = tokenizer
        self.tokenizer_type = tokenizer_type
        self.system_message_length = 0
        self.gen_token_length = 0
        if tokenizer_type in ("qwen", "qwen3") and not hasattr(tokenizer, "conversation_mask"):
            self.system_message_length, self.gen_token_length = self.get_system_message_length()

    def _ids(self, messages, **kwargs):
        return self.tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **kwargs)

    def _plain_ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def get_response_lengths(self, loss_masks):
        return get_response_lengths(loss_masks)

    def find_all_sublist_indices(self, main_list, sublist):
        return _positions(main_list, sublist)

    def get_system_message_length(self):
        """Two equal user turns tell where the first begins and how long one is; what stands before is the system's."""
        probe = self._plain_ids(_PROBE)
        turns = [{"role": "user", "content": _PROBE}] * 2
        text = self.tokenizer.apply_chat_template(turns, add_special_tokens=False, tokenize=False)
        ids = self._plain_ids(text)
        places = _positions(ids, probe)
        if len(places) != 2:
            raise ValueError(f"the chat template shows a user's words {len(places)} times where they were said twice")
        first, second = places
        tail = len(ids) - second - len(probe)
        turn_head = second - first - len(probe) - tail
        with_header = self._ids(turns, add_special_tokens=False, add_generation_prompt=True)
        return first - turn_head, len(with_header) - len(ids)

    def _turn_mask(self, message, ids):
        if not _is_trained(message):
            return [0] * len(ids)
        return [0] * self.gen_token_length + [1] * (len(ids) - self.gen_token_length)

    def gen_multi_turn_loss_mask_qwen(self, messages, tools=None):
        """Each message is rendered by itself; the template's own system message is cut off behind the first."""
        token_ids, mask = [], []
        for i, message in enumerate(messages):
            ids = self._ids([message], **({"tools": tools} if i == 0 else {}))
            if i > 0 and message["role"] != "system":
                ids = ids[self.system_message_length :]
            token_ids += ids
            mask += self._turn_mask(message, ids)
        return token_ids, mask

    def gen_multi_turn_loss_mask_qwen3(self, messages, tools=None):
        """As qwen, beside a user's turn that is cut off again: this template refuses some messages by themselves and
        puts answers of tools that follow one another into one turn."""
        filler = self._ids([_FILLER])
        token_ids, mask = [], []
        i = 0
        while i < len(messages):
            end = i + 1
            while messages[i]["role"] == "tool" and end < len(messages) and messages[end]["role"] == "tool":
                end += 1
            turn = messages[i:end]
            if i == 0:
                ids = self._ids(turn + [_FILLER], tools=tools)[: -len(filler)]
            else:
                ids = self._ids([_FILLER] + turn)[len(filler) :]
                if messages[i]["role"] != "system":
                    ids = ids[self.system_message_length :]
            token_ids += ids
            mask += self._turn_mask(messages[i], ids)
            i = end
        return token_ids, mask

    def gen_multi_turn_loss_mask_qwen3_5(self, messages, tools=None):
        """The conversation is rendered once, and characters are found by the marks of turns in its text."""
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, tools=tools, return_dict=False)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        token_ids, offsets = encoded["input_ids"], encoded.get("offset_mapping")
        if offsets is None:
            raise ValueError("qwen3_5 needs a tokenizer that tells the characters of its tokens (a fast one)")
        if token_ids != self._ids(messages, tools=tools):
            raise ValueError("the rendered text has other tokens than the template gives by itself")
        header, think, end_mark = "<|im_start|>assistant\n", "<think>\n", "<|im_end|>"
        spans, cursor = [], 0
        for message in messages:
            if message["role"] != "assistant":
                continue
            head = text.find(header, cursor)
            end = text.find(end_mark, head + len(header)) if head >= 0 else -1
            if end < 0:
                raise ValueError("an assistant's turn is not to be found in the rendered conversation")
            begin, end = head + len(header), end + len(end_mark)
            end += text[end : end + 1] == "\n"
            cursor = end
            if _is_trained(message):
                spans.append((begin + len(think) if text.startswith(think, begin) else begin, end))
        mask = [
            int(end > begin and any(begin < last and end > first for first, last in spans)) for begin, end in offsets
        ]
        return token_ids, mask

    def gen_multi_turn_loss_mask_distill_qwen(self, messages, tools=None):
        """The first message is the prompt, the last one the response, without an end of turn."""
        prompt = self.tokenizer.apply_chat_template(
            messages[:1], tokenize=False, add_generation_prompt=True, tools=tools
        )
        prompt_ids, response_ids = self._plain_ids(prompt), self._plain_ids(messages[-1]["content"])
        trained = int(messages[-1].get("step_loss_mask", 1) == 1)
        return prompt_ids + response_ids, [0] * len(prompt_ids) + [trained] * len(response_ids)

    def gen_multi_turn_loss_mask_auto(self, messages, tools=None):
        """The conversation is rendered once; an answer begins where the prompt made of the messages before it ends, and
        ends where the messages up to it do."""

        def text_of(of, header=False):
            return self.tokenizer.apply_chat_template(of, tokenize=False, tools=tools, add_generation_prompt=header)

        text = text_of(messages)
        spans = []
        for i, message in enumerate(messages):
            if not _is_trained(message):
                continue
            before = text_of(messages[:i], header=True) if i else ""
            behind = text_of(messages[: i + 1])
            if not (text.startswith(before) and text.startswith(behind)):
                raise ValueError(
                    f"message {i}: this template rewrites earlier messages, so the answer's place cannot be told from "
                    "outside; slime.utils.native_tokenizer.NativeTokenizer can"
                )
            spans.append((len(before), len(behind)))
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]
        mask = [
            int(end > begin and any(begin < last and end > first for first, last in spans)) for begin, end in offsets
        ]
        return encoded["input_ids"], mask

    def get_loss_mask(self, messages, tools=None):
        """(token ids, mask), equally long."""
        if hasattr(self.tokenizer, "conversation_mask"):
            return self.tokenizer.conversation_mask(messages, tools, self.tokenizer_type)
        ways = {
            "auto": self.gen_multi_turn_loss_mask_auto,
            "qwen": self.gen_multi_turn_loss_mask_qwen,
            "qwen3": self.gen_multi_turn_loss_mask_qwen3,
            "qwen3_5": self.gen_multi_turn_loss_mask_qwen3_5,
            "distill_qwen": self.gen_multi_turn_loss_mask_distill_qwen,
        }
        if self.tokenizer_type not in ways:
            raise ValueError(f"no loss mask of type {self.tokenizer_type!r}; there are: {', '.join(ways)}")
        way = ways[self.tokenizer_type]
        if self.tokenizer_type == "qwen" and "<\uff5cAssistant\uff5c>" in self.tokenizer.get_added_vocab():
            way = self.gen_multi_turn_loss_mask_distill_qwen
        return way(messages, tools)

    def get_loss_mask_with_multimodal_alignment(self, messages, input_ids, tools=None):
        """(input_ids, mask) where a processor made more tokens of the media before the text."""
        texts = []
        for message in messages:
            content = message.get("content")
            if isinstance(content, list):
                parts = [
                    part if isinstance(part, str) else part.get("text", "")
                    for part in content
                    if isinstance(part, str) or (isinstance(part, dict) and part.get("type") == "text")
                ]
                message = {"role": message["role"], "content": " ".join(parts)}
            texts.append(message)
        mask = self.get_loss_mask(texts, tools=tools)[1]
        if len(mask) > len(input_ids):
            raise ValueError(f"{len(input_ids)} ids, but the text alone has {len(mask)}: tokenizer and processor differ")
        return input_ids, [0] * (len(input_ids) - len(mask)) + mask

    def get_text_from_loss_mask(self, token_ids, loss_masks):
        """The trained passages as text."""
        passages, current = [], []
        for token, trained in zip(token_ids, loss_masks):
            if trained == 1:
                current.append(token)
            elif current:
                passages.append(self.tokenizer.decode(current))
                current = []
        if current:
            passages.append(self.tokenizer.decode(current))
        return passages
