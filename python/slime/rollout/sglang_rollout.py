"""The stock rollout as users' code sees it: one turn of generation, a sample with its reward, a group, a whole step.

In a run the program does all this itself; these functions are for rollout and generate functions of one's own that
build on them. They speak to the engine at args.sglang_router_ip:sglang_router_port.
"""

import asyncio
import copy
import inspect
import json
import logging
import random
import uuid
from contextlib import contextmanager

from slime import channel
from slime.observability.trace_utils import build_sglang_meta_trace_attrs, trace_function, trace_span
from slime.rollout.base_types import RolloutFnEvalOutput, RolloutFnTrainOutput
from slime.rollout.filter_hub.base_types import (
    MetricGatherer,
    call_dynamic_filter,
    should_drop_dynamic_filter_output,
)
from slime.rollout.generate_call import await_generate, cancel_requests
from slime.rollout.other_forms import as_generate
from slime.rollout.rm_hub import async_rm, batched_async_rm
from slime.rollout.sample_hooks import apply_rollout_sample_hooks
from slime.rollout.sampling_params import evaluation_params, log_prob_fields, rollout_params
from slime.utils import sampler_record
from slime.utils.async_utils import AsyncPacer, LoopSemaphore, run
from slime.utils.http_utils import get, get_rollout_num_engines, post
from slime.utils.misc import SingletonMeta, load_function
from slime.utils.processing_utils import (
    build_processor_kwargs,
    encode_image_for_rollout_engine,
    load_processor,
    load_tokenizer,
)
from slime.utils.types import Sample

__all__ = [
    "GenerateState",
    "abort",
    "eval_rollout",
    "eval_rollout_single_dataset",
    "generate",
    "generate_abortable_samples",
    "generate_and_rm",
    "generate_and_rm_group",
    "generate_rollout",
    "generate_rollout_async",
    "get_model_url",
]

logger = logging.getLogger(__name__)

# Their names up to 0.3.
_MetricGatherer = MetricGatherer
_call_dynamic_filter = call_dynamic_filter

_ABORT_AGAIN_SECONDS = 1.0


def get_model_url(args, model_name, endpoint="/generate"):
    """Address of a named model of --sglang-config, of the run's engine when there is none of that name."""
    routers = getattr(args, "sglang_model_routers", None) or {}
    ip, port = routers.get(model_name, (args.sglang_router_ip, args.sglang_router_port))
    return f"http://{ip}:{port}{endpoint}"


class GenerateState(metaclass=SingletonMeta):
    """What all generation of this process shares. There is one: the first arguments win."""

    def __init__(self, args):
        self.args = args
        self._tokenizer = None
        self._processor = self._NOT_LOADED
        concurrency = getattr(args, "sglang_server_concurrency", None) or 512
        self.semaphore = LoopSemaphore(concurrency * max(1, get_rollout_num_engines(args)))
        self.sampling_params = rollout_params(args)
        if args.rollout_top_p != 1.0:
            self.sampling_params["custom_params"] = {"return_top_p_token_ids": True}
        if getattr(args, "sglang_enable_deterministic_inference", False):
            self.group_sampling_seeds = [args.rollout_seed + i for i in range(args.n_samples_per_prompt)]
        self.dp_counts = [0] * (getattr(args, "sglang_dp_size", None) or 1)
        self.dp_rank = 0
        self._pacer = None
        self.reset()
        self.aborted = channel.is_aborted

    _NOT_LOADED = object()

    @property
    def tokenizer(self):
        """Loaded when it is first asked for: functions that never do need no package for it."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.args.hf_checkpoint, trust_remote_code=True)
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer):
        self._tokenizer = tokenizer

    @property
    def processor(self):
        if self._processor is self._NOT_LOADED:
            self._processor = load_processor(self.args.hf_checkpoint, trust_remote_code=True)
        return self._processor

    @processor.setter
    def processor(self, processor):
        self._processor = processor

    @property
    def generation_pacer(self):
        """Of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._pacer is None or self._pacer[0] is not loop:
            self._pacer = (loop, AsyncPacer())
        return self._pacer[1]

    @contextmanager
    def dp_rank_context(self):
        """Reserves the least busy data-parallel rank of an engine for the time of a call."""
        least = min(self.dp_counts)
        rank = random.choice([i for i, count in enumerate(self.dp_counts) if count == least])
        self.dp_counts[rank] += 1
        self.dp_rank = rank
        try:
            yield rank
        finally:
            self.dp_counts[rank] -= 1

    def reset(self):
        self.remaining_batch_size = 0  # groups given out, less those that were dropped
        self.pendings = set()
        self.cancellable_tasks = set()  # calls that an abort cancels (slime.rollout.generate_call)
        self.active_server_generations = 0  # calls that an abort of the engines ends
        self.aborted = False

    def submit_generate_tasks(self, samples):
        """Starts a task for each group."""
        for group in samples:
            coroutine = generate_and_rm_group(self.args, group, self.sampling_params.copy(), evaluation=False)
            self.pendings.add(asyncio.create_task(coroutine))
        self.remaining_batch_size += len(samples)


def _prepare_prompt_ids(sample, tokenizer, processor):
    """Tokens to send: those that the sample has already, else its prompt's."""
    media = sample.multimodal_inputs or {}
    has_media = any(value is not None for value in media.values())
    if sample.tokens and (sample.multimodal_train_inputs is not None or not has_media):
        return sample.tokens
    if processor and has_media:
        output = processor(text=sample.prompt, **build_processor_kwargs(media))
        if sample.multimodal_train_inputs is None:
            kept = {name: value for name, value in output.items() if name not in ("input_ids", "attention_mask")}
            sample.multimodal_train_inputs = kept or None
        return list(output["input_ids"][0])
    return tokenizer.encode(sample.prompt, add_special_tokens=False)


async def generate(args, sample, sampling_params):
    """One turn behind what the sample holds. The budget of new tokens is that of the whole response."""
    if sample.status not in (Sample.Status.PENDING, Sample.Status.ABORTED):
        raise ValueError(f"a sample that is {sample.status.value} has nothing left to generate")
    media = sample.multimodal_inputs or {}
    has_media = any(value is not None for value in media.values())
    state = None if sample.tokens and not has_media else GenerateState(args)
    prompt_ids = _prepare_prompt_ids(
        sample, state and state.tokenizer, state.processor if state is not None and has_media else None
    )
    sampling_params["max_new_tokens"] -= sample.response_length
    if sampling_params["max_new_tokens"] < 0:
        raise ValueError(f"the response is {-sampling_params['max_new_tokens']} tokens longer than it may be")
    if sampling_params["max_new_tokens"] == 0:
        sample.status = Sample.Status.TRUNCATED
        return sample

    payload = {"sampling_params": sampling_params, **log_prob_fields(sampling_params)}
    payload.update(sampler_record.request_fields(args, sampling_params))
    if getattr(args, "use_rollout_routing_replay", False):
        payload["return_routed_experts"] = True
    if media.get("images"):
        payload["image_data"] = [encode_image_for_rollout_engine(image) for image in media["images"]]
        payload["text"] = sample.prompt  # the engine puts the images' tokens in by itself
    else:
        payload["input_ids"] = prompt_ids
    if not sample.tokens:
        sample.tokens = list(prompt_ids)
    headers = None
    if sample.session_id and getattr(args, "router_policy", None) == "consistent_hashing":
        headers = {"X-SMG-Routing-Key": sample.session_id}
    with trace_span(sample, "sglang_generate", attrs={"max_new_tokens": sampling_params["max_new_tokens"]}) as span:
        url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
        output = await post(url, payload, headers=headers)
        meta_info = output["meta_info"]
        span.update(build_sglang_meta_trace_attrs(meta_info))
    drawn = meta_info.get("output_token_logprobs") or []
    sample.append_response_tokens(
        args,
        tokens=[entry[1] for entry in drawn],
        log_probs=[entry[0] for entry in drawn],
        meta_info=meta_info,
        text=output["text"],
    )
    return sample


def _takes_evaluation(function):
    return "evaluation" in inspect.signature(function).parameters


@trace_function("generate_and_rm", target="sample")
async def generate_and_rm(args, sample, sampling_params, evaluation=False):
    """Generates, applies the sample hooks, scores. A generate function may make several samples of one: a list."""
    if args.partial_rollout and args.mask_offpolicy_in_partial_rollout and sample.response_length > 0:
        sample.loss_mask = [0] * sample.response_length
    if sample.status in (Sample.Status.COMPLETED, Sample.Status.TRUNCATED):
        if not args.group_rm and sample.reward is None:
            raise ValueError(f"sample {sample.index} is {sample.status.value} and has no reward")
        return sample

    state = GenerateState(args)
    async with state.semaphore:
        if not state.aborted and hasattr(state, "generation_pacer"):
            await state.generation_pacer.wait()
        if state.aborted:
            sample.status = Sample.Status.ABORTED
            return sample
        with state.dp_rank_context():
            path = getattr(sample, "generate_function_path", None) or args.custom_generate_function_path
            if path is None:
                function, extra = generate, {}
            else:
                function = as_generate(load_function(path))
                extra = {"evaluation": evaluation} if _takes_evaluation(function) else {}
            own = sampler_record.of_evaluation(args) if evaluation else args
            call = function(own, sample, sampling_params, **extra)
            sample = await await_generate(state, function, sample, call)

    sample = await apply_rollout_sample_hooks(args, sample, evaluation=evaluation)
    if args.group_rm:
        return sample
    if isinstance(sample, list):
        if not any(part.status == Sample.Status.ABORTED for part in sample):
            unscored = [part for part in sample if part.reward is None]
            with trace_span(unscored, "reward_model"):
                rewards = await batched_async_rm(args, unscored) if unscored else []
            for part, reward in zip(unscored, rewards):
                part.reward = reward
    elif sample.status != Sample.Status.ABORTED and sample.reward is None:
        with trace_span(sample, "reward_model"):
            sample.reward = await async_rm(args, sample)
    return sample


async def generate_and_rm_group(args, group, sampling_params, evaluation=False):
    """All samples of a prompt at once, scored one by one or, with --group-rm, together."""
    state = GenerateState(args)
    if state.aborted:
        return group
    tasks = []
    for i, sample in enumerate(group):
        if sample.session_id is None:
            sample.session_id = str(uuid.uuid4())
        params = sampling_params.copy()
        if getattr(args, "sglang_enable_deterministic_inference", False):
            params["sampling_seed"] = state.group_sampling_seeds[i]
        tasks.append(asyncio.create_task(generate_and_rm(args, sample, params, evaluation=evaluation)))
    try:
        group = list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        raise
    if args.group_rm and not state.aborted:
        with trace_span(group, "group_reward_model"):
            rewards = await batched_async_rm(args, group)
        for sample, reward in zip(group, rewards):
            sample.reward = reward
    return group


def _leaves(group):
    for member in group:
        yield from member if isinstance(member, list) else (member,)


def _first_index(group):
    return next(_leaves(group)).index or 0


async def _abort_engines(args):
    base = f"http://{args.sglang_router_ip}:{args.sglang_router_port}"
    try:
        urls = [worker["url"] for worker in (await get(base + "/workers"))["workers"]]
    except Exception:  # an engine by itself knows no workers
        urls = [base]
    calls = [post(url + "/abort_request", {"abort_all": True}, max_retries=1) for url in urls]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, Exception):
            logger.warning("an engine did not take the abort: %s", outcome)


async def abort(args, rollout_id):
    """Ends what is in flight. With --partial-rollout the groups come back, to be gone on with later."""
    state = GenerateState(args)
    state.aborted = True
    groups = []
    while state.pendings:
        cancel_requests(state)
        if state.active_server_generations:
            await _abort_engines(args)  # again: a turn of a conversation may have begun meanwhile
        done, state.pendings = await asyncio.wait(state.pendings, timeout=_ABORT_AGAIN_SECONDS)
        for task in done:
            if not args.partial_rollout:
                task.exception()  # looked at, so that nothing complains; its samples are not wanted
                continue
            group = task.result()
            for sample in _leaves(group):
                if sample.response:
                    sample.metadata.setdefault("start_rollout_id", rollout_id)
            groups.append(group)
    return groups


class _PromptSource:
    """What the process function gets: a data source, and, as the original's is, its get_samples."""

    def __init__(self, get_samples):
        self.get_samples = get_samples
        self._owner = getattr(get_samples, "__self__", None)

    def __call__(self, num_samples):
        return self.get_samples(num_samples)

    def __len__(self):
        return len(self._owner)

    def __getattr__(self, name):
        return getattr(self._owner, name)


async def generate_rollout_async(args, rollout_id, data_source):
    """(RolloutFnTrainOutput, groups to give back). `data_source` is a function: a number of groups to groups."""
    state = GenerateState(args)
    path = args.dynamic_sampling_filter_path
    dynamic_filter = load_function(path) if path is not None else None
    dropped = MetricGatherer()
    target = args.rollout_batch_size
    kept, finished = [], []
    while len(kept) < target:
        while state.remaining_batch_size < target:
            groups = data_source(args.over_sampling_batch_size)
            if not groups:
                raise RuntimeError(f"the data source has no prompts left; {len(kept)} of {target} groups are there")
            state.submit_generate_tasks(groups)
        done, state.pendings = await asyncio.wait(state.pendings, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            group = task.result()
            if len(group) != args.n_samples_per_prompt:
                raise ValueError(f"a group of {len(group)}; there are {args.n_samples_per_prompt} samples to a prompt")
            if not finished:
                first = next(_leaves(group))
                logger.info("First rollout sample: %s reward: %s", [str(first.prompt) + first.response], first.reward)
            finished.append(group)
            verdict = call_dynamic_filter(dynamic_filter, args, group)
            if should_drop_dynamic_filter_output(
                verdict, remaining_batch_size=state.remaining_batch_size, target_data_size=target
            ):
                dropped.on_dynamic_filter_drop(verdict.reason)
                state.remaining_batch_size -= 1
            elif len(kept) < target:
                kept.append(group)
    unfinished = await abort(args, rollout_id)
    kept.sort(key=_first_index)
    finished.sort(key=_first_index)
    state.reset()
    if args.rollout_sample_filter_path is not None:
        load_function(args.rollout_sample_filter_path)(args, kept)
    if args.rollout_all_samples_process_path is not None:
        load_function(args.rollout_all_samples_process_path)(args, finished, _PromptSource(data_source))
    return RolloutFnTrainOutput(samples=kept, metrics=dropped.collect()), unfinished


EVAL_PROMPT_DATASET = {}


async def eval_rollout(args, rollout_id):
    """(RolloutFnEvalOutput, []) over args.eval_datasets, all at once."""
    if args.group_rm:
        raise ValueError("--group-rm scores groups of a training step; an evaluation has none")
    datasets = getattr(args, "eval_datasets", None) or []
    results = await asyncio.gather(*(eval_rollout_single_dataset(args, rollout_id, each) for each in datasets))
    return RolloutFnEvalOutput(data={name: result for each in results for name, result in each.items()}), []


def _eval_dataset(args, config):
    from slime.utils.data import Dataset

    def own_or(name):
        value = getattr(config, name, None)
        return getattr(args, name, None) if value is None else value

    keys, template, kwargs = (
        own_or(name) for name in ("multimodal_keys", "apply_chat_template", "apply_chat_template_kwargs")
    )
    identity = config.cache_key + (args.hf_checkpoint, template, json.dumps([keys, kwargs], sort_keys=True))
    if identity not in EVAL_PROMPT_DATASET:
        max_length = getattr(args, "eval_max_prompt_len", None)
        needs_tokenizer = template or keys is not None or max_length is not None
        EVAL_PROMPT_DATASET[identity] = Dataset(
            config.path,
            tokenizer=load_tokenizer(args.hf_checkpoint, trust_remote_code=True) if needs_tokenizer else None,
            processor=load_processor(args.hf_checkpoint, trust_remote_code=True) if keys is not None else None,
            max_length=max_length,
            prompt_key=config.input_key,
            label_key=config.label_key,
            multimodal_keys=keys,
            metadata_key=config.metadata_key,
            tool_key=config.tool_key,
            apply_chat_template=template,
            apply_chat_template_kwargs=kwargs,
        )
    return EVAL_PROMPT_DATASET[identity]


async def eval_rollout_single_dataset(args, rollout_id, dataset_cfg):
    """{name: {"rewards", "truncated", "samples"}}, in the order of the rows."""
    dataset = _eval_dataset(args, dataset_cfg)
    params = evaluation_params(args, dataset_cfg)
    tasks = []
    for row in dataset.samples:
        for j in range(dataset_cfg.n_samples_per_eval_prompt):
            sample = copy.deepcopy(row)
            sample.index = len(tasks)
            sample.metadata = dataset_cfg.inject_metadata(sample.metadata)
            sample.custom_rm_path = dataset_cfg.custom_rm_path
            sample.generate_function_path = getattr(dataset_cfg, "custom_generate_function_path", None)
            own = params.copy()
            if getattr(args, "sglang_enable_deterministic_inference", False):
                own["sampling_seed"] = args.rollout_seed + j
            tasks.append(asyncio.create_task(generate_and_rm(args, sample, own, evaluation=True)))
    samples = list(_leaves(await asyncio.gather(*tasks)))
    samples.sort(key=lambda sample: sample.index)
    key = getattr(args, "eval_reward_key", None) or args.reward_key
    return {
        dataset_cfg.name: {
            "rewards": [sample.reward[key] if key else sample.reward for sample in samples],
            "truncated": [sample.status == Sample.Status.TRUNCATED for sample in samples],
            "samples": samples,
        }
    }


def generate_abortable_samples(args, rollout_id, data_source, evaluation=False):
    """(output, groups that were ended early); `data_source` is a function. Of slime before 0.1."""
    return run(eval_rollout(args, rollout_id) if evaluation else generate_rollout_async(args, rollout_id, data_source))


def generate_rollout(args, rollout_id, data_source, evaluation=False):
    """The stock rollout function: a step's groups, or with `evaluation` all evaluation data sets."""
    if evaluation:
        return run(eval_rollout(args, rollout_id))[0]
    output, unfinished = run(generate_rollout_async(args, rollout_id, data_source.get_samples))
    if unfinished:
        data_source.add_samples(unfinished)
    return output
