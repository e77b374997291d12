"""One agent's conversation, turn by turn, as one sample: for generate functions that play a tool, a user or another agent.

    talk = Conversation(args, sample, [{"role": "user", "content": "cancel my order"}])
    said = await talk.say(sampling_params)      # the policy's message, drawn by the run's engine
    talk.hear("open", role="tool")              # not trained
    said = await talk.say(sampling_params)
    return talk.sample

What the engine drew is never encoded again: a prompt is the tokens so far and those of the text that the chat template
puts behind them.
"""

from slime.agent.continuation import text_behind, tokens_behind
from slime.rollout.sampling_params import log_prob_fields
from slime.rollout.sglang_rollout import GenerateState
from slime.utils.http_utils import post
from slime.utils.types import Sample

__all__ = ["Conversation", "text_behind"]


class Conversation:
    """Fills `sample`: prompt and tokens at the first turn, response, mask, log-probs and weight versions with each."""

    def __init__(self, args, sample, messages=(), *, tools=None):
        self.sample = sample
        self.messages = list(messages)
        self.tools = tools
        self.num_turns = 0
        self._tokenizer = GenerateState(args).tokenizer
        self._args = args
        self._output_ids = []
        self._depth = 0  # messages up to the last one that was drawn

    def hear(self, text, role="user"):
        """A message of somebody else."""
        self.messages.append({"role": role, "content": text})

    async def say(self, sampling_params):
        """Draws the policy's next message: its text, without the mark of its end; None when it was cut off or aborted, or
        when --rollout-max-context-len leaves no room for it. `sample.status` tells which."""
        heard, text = self._heard()
        params = dict(sampling_params)
        limit = getattr(self._args, "rollout_max_context_len", None)
        if limit:
            params["max_new_tokens"] = min(params["max_new_tokens"], limit - len(self.sample.tokens) - len(heard))
        if self.num_turns == 0:
            self.sample.prompt, self.sample.tokens = text, heard
        if params["max_new_tokens"] <= 0:
            self.sample.status = Sample.Status.TRUNCATED
            return None
        if self.num_turns > 0:
            self.sample.append_response_tokens(tokens=heard, trainable=False, text=text)
        url = f"http://{self._args.sglang_router_ip}:{self._args.sglang_router_port}/generate"
        request = {"input_ids": self.sample.tokens, "sampling_params": params, **log_prob_fields(params)}
        meta = (await post(url, request))["meta_info"]
        drawn = meta.get("output_token_logprobs") or []
        self._output_ids = [entry[1] for entry in drawn]
        text = self._tokenizer.decode(self._output_ids, skip_special_tokens=False)
        self.sample.append_response_tokens(
            self._args, tokens=self._output_ids, log_probs=[entry[0] for entry in drawn], meta_info=meta, text=text
        )
        if self.sample.status != Sample.Status.COMPLETED:
            return None
        said = text.removesuffix(self._tokenizer.eos_token or "")
        self.messages.append({"role": "assistant", "content": said})
        self._depth = len(self.messages)
        self.num_turns += 1
        return said

    def _heard(self):
        """(tokens, text) behind the last message that was drawn: the whole prompt before the first one."""
        if self.num_turns == 0:
            text = self._tokenizer.apply_chat_template(
                self.messages, tools=self.tools, tokenize=False, add_generation_prompt=True
            )
        else:
            text = text_behind(self._tokenizer, self._output_ids, self.messages, self._depth, self.tools)
        if text is None:
            raise ValueError(
                "the chat template shows an earlier message otherwise than it was drawn; "
                "the sessions of slime.agent.adapters fork there, a conversation cannot"
            )
        return tokens_behind(self._tokenizer, self._output_ids, text), text
