"""The record that travels the loop: a prompt, what was generated for it, what it scored."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, List, Optional, Union

from slime.utils import sampler_record
from slime.utils.int_arrays import IntTable, find_int32, flat_int32
from slime.utils.number_table import NumberTable, flat_numbers

__all__ = ["Sample", "ParamInfo", "RolloutBatch", "MultimodalType", "MultimodalTypes"]

TOP_P_IDS = ("top_p_token_ids", "top_p_kept_token_ids")
TOP_P_OFFSETS = ("top_p_token_offsets", "top_p_kept_token_offsets")


def _plain_list(values, kind):
    """A list of `kind` from a list, tuple, array, numpy array or tensor of any shape; None stays None."""
    if values is None:
        return None
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    if hasattr(values, "reshape"):
        values = values.reshape(-1)
    if hasattr(values, "tolist"):
        values = values.tolist()
    return [kind(value) for value in values]


def _array(typecode, default=None):
    """A field whose list travels as a column of numbers of this kind (array.array's)."""
    given = {"default_factory": list} if default is list else {"default": default}
    return field(**given, metadata={"array": typecode})


def _table(typecode):
    """The same of numbers [response_length, K]."""
    return field(default=None, metadata={"table": typecode})


def _watched(**default):
    """A field that counts also where a function changes it in a sample that it does not return."""
    return field(**default, metadata={"watched": True})


class _Counts:
    """Counters that travel as a plain dictionary of their fields."""

    def to_dict(self):
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, data):
        return cls(**{name: data.get(name, 0) for name in cls.__dataclass_fields__})


@dataclass
class Sample:
    """One response to one prompt.

    `tokens` is the prompt and behind it `response_length` tokens of the response; loss_mask and rollout_log_probs have
    one entry for each of those. Samples with the same rollout_id are parts of one execution and count as one in the
    loss. Any other attribute may be set; it travels along and is in `to_dict`.
    """

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    @dataclass
    class SpecInfo(_Counts):
        """Speculative decoding, summed over the calls of the engine."""

        spec_accept_token_num: int = 0
        spec_draft_token_num: int = 0
        spec_verify_ct: int = 0
        completion_token_num: int = 0
        # With --rollout-verify-tokens: tokens that were compared with the trainer's arithmetic, and those drawn otherwise by it.
        verify_compared_token_num: int = 0
        verify_redrawn_token_num: int = 0

        def to_dict(self):
            counts = super().to_dict()
            if self.verify_compared_token_num == 0:
                del counts["verify_compared_token_num"], counts["verify_redrawn_token_num"]
            return counts

        @property
        def spec_accept_rate(self):
            return self.spec_accept_token_num / self.spec_draft_token_num if self.spec_draft_token_num > 0 else 0.0

        @property
        def spec_accept_length(self):
            return self.completion_token_num / self.spec_verify_ct if self.spec_verify_ct > 0 else 0.0

        def add(self, meta_info):
            for name, newer in (
                ("spec_accept_token_num", "spec_num_correct_drafts"),
                ("spec_draft_token_num", "spec_num_proposed_drafts"),
                ("spec_verify_ct", "spec_verify_ct"),
                ("verify_compared_token_num", ""),
                ("verify_redrawn_token_num", ""),
            ):
                setattr(self, name, getattr(self, name) + meta_info.get(name, meta_info.get(newer, 0)))
            self.completion_token_num += meta_info.get("completion_tokens", 0)

    @dataclass
    class PrefixCacheInfo(_Counts):
        """Prompt tokens that the engine had to read, and those that it had already."""

        cached_tokens: int = 0
        total_prompt_tokens: int = 0

        @property
        def prefix_cache_hit_rate(self):
            return self.cached_tokens / self.total_prompt_tokens if self.total_prompt_tokens > 0 else 0.0

        def add(self, meta_info):
            self.cached_tokens += meta_info.get("cached_tokens", 0)
            self.total_prompt_tokens += meta_info.get("prompt_tokens", 0)

    group_index: Optional[int] = None
    index: Optional[int] = None
    rollout_id: Optional[int] = _watched(default=None)
    prompt: Union[str, List[Dict[str, str]]] = ""
    tokens: List[int] = _array("i", list)
    multimodal_inputs: Optional[Dict[str, Any]] = None
    multimodal_train_inputs: Optional[Dict[str, Any]] = None
    multimodal_train_input_id: Optional[str] = None
    apply_chat_template_kwargs: dict = field(default_factory=dict)
    response: str = _watched(default="")
    response_length: int = 0
    label: Optional[str] = _watched(default=None)
    reward: Union[float, Dict[str, Any], None] = _watched(default=None)
    loss_mask: Optional[List[int]] = _array("B")
    weight_versions: List[str] = field(default_factory=list)
    rollout_log_probs: Optional[List[float]] = _array("f")
    rollout_constrained: Optional[List[int]] = _array("B")  # 1: a grammar bound the token
    rollout_top_p_token_ids: Any = _array("i")  # ids kept for response token i: ids[offsets[i]:offsets[i + 1]]
    rollout_top_p_token_offsets: Any = _array("i")
    rollout_top_p_log_probs: Any = _array("f")  # of those ids, in the distribution that the token was drawn from
    rollout_topk_token_ids: Any = _table("i")  # [response_length, K]: the sampler's likeliest ids at each token
    rollout_topk_log_probs: Any = _table("f")
    rollout_routed_experts: Any = None  # int32 [len(tokens) - 1, layers, topk]
    remove_sample: bool = _watched(default=False)
    teacher_log_probs: Optional[List[float]] = _array("f")
    status: Status = Status.PENDING
    metadata: dict = _watched(default_factory=dict)
    generate_function_path: Optional[str] = None
    custom_rm_path: Optional[str] = None
    train_metadata: Optional[dict] = _watched(default=None)
    session_id: Optional[str] = None
    non_generation_time: float = 0.0
    spec_info: SpecInfo = field(default_factory=SpecInfo)
    prefix_cache_info: PrefixCacheInfo = field(default_factory=PrefixCacheInfo)

    def to_dict(self):
        """All attributes, set ones of your own included."""
        record = dict(self.__dict__)
        record.update(
            status=self.status.value,
            spec_info=self.spec_info.to_dict(),
            prefix_cache_info=self.prefix_cache_info.to_dict(),
        )
        return record

    @staticmethod
    def from_dict(data):
        record = dict(data)
        status = record.pop("status")
        sample = Sample(
            status=Sample.Status(status),
            spec_info=Sample.SpecInfo.from_dict(record.pop("spec_info", {})),
            prefix_cache_info=Sample.PrefixCacheInfo.from_dict(record.pop("prefix_cache_info", {})),
        )
        for name, value in record.items():
            setattr(sample, name, value)
        return sample

    def get_reward_value(self, args):
        """The number that counts: the reward, or its field --reward-key."""
        return self.reward[args.reward_key] if args.reward_key else self.reward

    @property
    def effective_response_length(self):
        """Response tokens that are trained."""
        return self.response_length if self.loss_mask is None else sum(self.loss_mask)

    def get_rollout_routed_experts_length(self) -> int:
        """Rows of rollout_routed_experts: tokens, less the last one."""
        return 0 if self.rollout_routed_experts is None else len(self.rollout_routed_experts)

    def materialize_rollout_routed_experts(self, replace: bool = True):
        """They as a torch tensor, int32 [rows, layers, topk]; None without any. `replace` keeps the tensor as the field."""
        experts = self.rollout_routed_experts
        if experts is None:
            return None
        if hasattr(experts, "to_torch"):
            experts = experts.to_torch()
        elif not hasattr(experts, "detach"):
            import torch

            experts = torch.as_tensor(experts, dtype=torch.int32)
        if replace:
            self.rollout_routed_experts = experts
        return experts

    def append_response_tokens(
        self,
        args=None,
        *,
        tokens=None,
        log_probs=None,
        trainable=True,
        meta_info=None,
        text=None,
        update_terminal_info=True,
    ):
        """Appends tokens of the policy (`trainable`, with their log-probs and the engine's meta_info) or of a tool.

        Tool tokens get mask 0, log-prob 0 and keep nothing of the nucleus. With args.use_score_centering the policy's
        tokens bring what the sampler could have drawn (slime.utils.sampler_record). Of tokens that a grammar bound, training
        needs log-probs without it: those that meta_info has (the request's `return_free_logprobs`) count. Throws ValueError when lengths disagree,
        when the policy's tokens come without log-probs, and when a tool's come with some that are not 0.
        """
        tokens = _plain_list(tokens, int) or []
        meta_info = meta_info or {}
        if (free := meta_info.get("output_token_free_logprobs")) is not None and log_probs is not None:
            log_probs = [triple[0] for triple in free]
        log_probs = _plain_list(log_probs, float)
        if log_probs is not None and len(log_probs) != len(tokens):
            raise ValueError(f"{len(log_probs)} log-probs for {len(tokens)} tokens")
        if tokens and trainable and log_probs is None:
            raise ValueError("tokens of the policy need their log-probs")
        if tokens and not trainable:
            if any(log_probs or ()):
                raise ValueError("tokens that are not trained have no log-probs, or zeros")
            log_probs = [0.0] * len(tokens)
        before = self.response_length
        if log_probs is not None and self.rollout_log_probs is None and trainable and before:
            raise ValueError(f"log-probs cannot follow {before} response tokens that have none")

        if text is not None:
            self.response += text
        if tokens:
            self.tokens = self.tokens + tokens
            self.response_length += len(tokens)
            mask = [1] * before if self.loss_mask is None else self.loss_mask
            self.loss_mask = mask + [int(trainable)] * len(tokens)
        if log_probs is not None:
            known = [0.0] * before if self.rollout_log_probs is None else _plain_list(self.rollout_log_probs, float)
            self.rollout_log_probs = known + log_probs

        if tokens:
            self._append_nucleus(args, meta_info, len(tokens), trainable)
            self._append_sampler_head(args, meta_info, len(tokens), trainable)
            self._append_constrained(meta_info, len(tokens), trainable)
        self._take_routed_experts(args, meta_info)
        if update_terminal_info and "finish_reason" in meta_info:
            self._take_end(args, meta_info)
        self._check_lengths()

    def _append_constrained(self, meta_info, num_tokens, trainable):
        bound = int(meta_info.get("num_constrained_tokens", 0) or 0) if trainable else 0
        if not bound and self.rollout_constrained is None:
            return
        if bound > num_tokens:
            raise ValueError(f"a grammar bound {bound} tokens, and {num_tokens} are appended")
        if bound and "output_token_free_logprobs" not in meta_info:
            raise ValueError(
                "tokens that a grammar bound are trained with log-probs without it: send return_free_logprobs with "
                "the request"
            )
        before = self.response_length - num_tokens
        known = [0] * before if self.rollout_constrained is None else _plain_list(self.rollout_constrained, int)
        self.rollout_constrained = known + [0] * (num_tokens - bound) + [1] * bound

    def _append_nucleus(self, args, meta_info, num_tokens, trainable):
        ids, offsets = find_int32(meta_info, TOP_P_IDS), find_int32(meta_info, TOP_P_OFFSETS)
        sampler = sampler_record.support_log_probs(args, meta_info) if trainable else None
        if "score_centering_top_p" in meta_info:  # as post(score_centering_top_k=0) leaves it
            ids, offsets = (flat_int32(part) for part in meta_info["score_centering_top_p"][:2])
        if (ids is None) != (offsets is None):
            raise ValueError("top-p token ids and their offsets come together or not at all")
        if ids is None:
            is_first = self.rollout_top_p_token_offsets is None and not sampler_record.lists_support(args)
            if trainable or is_first:
                return
            ids, offsets = flat_int32([]), flat_int32([0] * (num_tokens + 1))
        if len(offsets) != num_tokens + 1 or offsets[0] != 0 or offsets[-1] != len(ids):
            raise ValueError(
                f"top-p offsets go from 0 to the number of ids ({len(ids)}) in {num_tokens + 1} entries; "
                f"these are {len(offsets)}, from {offsets[0] if offsets else 'nothing'} to "
                f"{offsets[-1] if offsets else 'nothing'}"
            )
        known_sampler = self.rollout_top_p_log_probs
        known_sampler = flat_numbers([] if known_sampler is None else known_sampler, "f")
        num_known = 0 if self.rollout_top_p_token_ids is None else len(self.rollout_top_p_token_ids)
        if len(ids):
            if sampler is not None and len(sampler) != len(ids):
                raise ValueError(f"{len(sampler)} top-p log-probs for {len(ids)} ids")
            if (sampler is None) != (len(known_sampler) == 0) and num_known:
                raise ValueError("log-probs of the top-p ids come with all of the policy's tokens or with none")
            if sampler is not None:
                self.rollout_top_p_log_probs = known_sampler + sampler
        known_ids = flat_int32([] if self.rollout_top_p_token_ids is None else self.rollout_top_p_token_ids)
        known = flat_int32([0] if self.rollout_top_p_token_offsets is None else self.rollout_top_p_token_offsets)
        self.rollout_top_p_token_ids = known_ids + ids
        self.rollout_top_p_token_offsets = known + flat_int32([known[-1] + offset for offset in offsets[1:]])

    def _append_sampler_head(self, args, meta_info, num_tokens, trainable):
        width = sampler_record.head_width(args)
        if not width:
            return
        before = self.response_length - num_tokens
        if before and self.rollout_topk_token_ids is None:
            raise ValueError(f"the sampler's likeliest ids cannot follow {before} response tokens that have none")
        if trainable:
            ids, log_probs = sampler_record.head_of(meta_info, num_tokens, width)
        else:
            ids, log_probs = sampler_record.head_of_others(num_tokens, width)
        known_ids = flat_numbers([] if self.rollout_topk_token_ids is None else self.rollout_topk_token_ids, "i")
        known = flat_numbers([] if self.rollout_topk_log_probs is None else self.rollout_topk_log_probs, "f")
        self.rollout_topk_token_ids = NumberTable(known_ids + ids, width)
        self.rollout_topk_log_probs = NumberTable(known + log_probs, width)

    def _take_routed_experts(self, args, meta_info):
        numbers = find_int32(meta_info, "routed_experts")
        if numbers is None:
            return
        if args is None:
            raise ValueError("routed experts need args: their shape is num_layers and moe_router_topk")
        first = int(meta_info.get("routed_experts_start_len", 0) or 0)
        rows = max(0, len(self.tokens) - 1 - first)
        if first < 0 or len(numbers) != rows * args.num_layers * args.moe_router_topk:
            raise ValueError(
                f"{len(numbers)} routed experts; {len(self.tokens)} tokens from row {first} on have "
                f"{rows} x {args.num_layers} x {args.moe_router_topk}"
            )
        table = IntTable(numbers, args.num_layers, args.moe_router_topk)
        if first:
            known = self.rollout_routed_experts
            if known is None or len(known) < first:
                raise ValueError(f"routed experts from row {first} on need the {first} rows before them")
            table.numbers = flat_int32(known[:first]) + table.numbers
        self.rollout_routed_experts = table

    def _take_end(self, args, meta_info):
        if getattr(args, "sglang_speculative_algorithm", None):
            self.spec_info.add(meta_info)
        self.prefix_cache_info.add(meta_info)
        if "weight_version" in meta_info:
            self.weight_versions.append(meta_info["weight_version"])
        ends = {"length": self.Status.TRUNCATED, "abort": self.Status.ABORTED, "stop": self.Status.COMPLETED}
        self.status = ends.get(meta_info["finish_reason"]["type"], self.status)

    def _check_lengths(self):
        for name in ("loss_mask", "rollout_log_probs", "rollout_constrained"):
            values = getattr(self, name)
            if values is not None and len(values) != self.response_length:
                raise ValueError(f"{name} has {len(values)} entries for {self.response_length} response tokens")
        ids, offsets = self.rollout_top_p_token_ids, self.rollout_top_p_token_offsets
        if (ids is None) != (offsets is None):
            raise ValueError("top-p token ids and their offsets come together or not at all")
        if offsets is not None and (len(offsets) != self.response_length + 1 or int(offsets[-1]) != len(ids)):
            raise ValueError(
                f"{len(offsets)} top-p offsets, the last {int(offsets[-1])}, for {self.response_length} response tokens "
                f"and {len(ids)} ids"
            )


RolloutBatch = Dict[str, Union[List[Any], List[int], List[float], List[str]]]


@dataclass(frozen=True)
class ParamInfo:
    name: str
    dtype: Any
    shape: Any
    attrs: dict
    size: int
    src_rank: int


@dataclass
class MultimodalType:
    name: str
    placeholder: str


class MultimodalTypes:
    """Media in a prompt, and the text that marks their place."""

    IMAGE = MultimodalType("image", "<image>")
    VIDEO = MultimodalType("video", "<video>")
    AUDIO = MultimodalType("audio", "<audio>")

    @classmethod
    def all(cls):
        return [cls.IMAGE, cls.VIDEO, cls.AUDIO]

    @classmethod
    def get(cls, name):
        return next((kind for kind in cls.all() if kind.name == name), None)
