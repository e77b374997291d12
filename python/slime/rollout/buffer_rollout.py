"""A rollout function that takes its groups from a rollout buffer (`slime buffer`), where a generator put them.

    --rollout-function-path slime.rollout.buffer_rollout.generate_rollout
    --rollout-buffer-url http://127.0.0.1:8889 --rollout-task-type math

The first call starts the generator. A step takes exactly the groups that it trains; what else is finished waits in the
buffer. A step that a restart repeats asks under the same name and gets the same groups again.

An item is an object with uid, instance_id, messages, reward and extra_info. Its tokens are those of `tokens` and
`response_length` (with `loss_mask` and `rollout_log_probs` where it has them), or else `messages` in the chat template of
--hf-checkpoint, of which the assistant's turns are trained (--loss-mask-type).
"""

import asyncio
import hashlib
import logging

from slime.rollout.base_types import RolloutFnTrainOutput
from slime.rollout.buffer_client import BufferClient
from slime.rollout.buffer_generators import load_generator
from slime.utils.async_utils import run
from slime.utils.mask_utils import MultiTurnLossMaskGenerator
from slime.utils.native_tokenizer import NativeTokenizer
from slime.utils.types import Sample

__all__ = ["generate_rollout", "sample_of"]

logger = logging.getLogger(__name__)

REQUIRED = ("instance_id", "reward", "extra_info")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
MOST_STARTS = 5

_readers = {}


def _mask_generator(args):
    return MultiTurnLossMaskGenerator(NativeTokenizer(args.hf_checkpoint), tokenizer_type=args.loss_mask_type)


def sample_of(item, make_masks):
    """The sample of an item; `make_masks()` gives the MultiTurnLossMaskGenerator for one that has no tokens."""
    missing = [name for name in (*REQUIRED, *(() if "tokens" in item else ("messages",))) if name not in item]
    if missing:
        raise ValueError(f"an item of instance {item.get('instance_id')} has no {', '.join(missing)}")
    if "tokens" in item:
        tokens, length = list(item["tokens"]), int(item["response_length"])
        mask = item.get("loss_mask")
    else:
        tokens, mask = make_masks().get_loss_mask(item["messages"])
        length = len(mask) - mask.index(1) if 1 in mask else 0
        mask = mask[len(mask) - length :]
    if not 0 < length < len(tokens):
        raise ValueError(f"an item of instance {item['instance_id']} has {length} of {len(tokens)} tokens to train")
    extra = dict(item["extra_info"])
    return Sample(
        prompt=str(item.get("uid", item["instance_id"])),
        tokens=tokens,
        response_length=length,
        response=item["messages"][-1].get("content") or "" if item.get("messages") else "",
        label=extra.get("label"),
        reward=item["reward"],
        loss_mask=mask,
        rollout_log_probs=item.get("rollout_log_probs"),
        status=Sample.Status.TRUNCATED if extra.get("finish_reason") == "length" else Sample.Status.COMPLETED,
        metadata={**extra, "instance_id": item["instance_id"]},
    )


def _groups(items, group_size):
    if len(items) % group_size:
        raise ValueError(f"the buffer gave {len(items)} items, no multiple of --n-samples-per-prompt {group_size}")
    return [items[begin : begin + group_size] for begin in range(0, len(items), group_size)]


class _Reader:
    """Of one run, for as long as its host lives."""

    def __init__(self, args):
        self.args = args
        self.buffer = BufferClient(args.rollout_buffer_url)
        self.num_starts = 0
        self.hooks = {}
        self._masks = None
        place = str(getattr(args, "run_dir", None) or getattr(args, "save", None) or id(self))
        self.name = hashlib.sha256(f"{args.rollout_buffer_url} {place}".encode()).hexdigest()[:16]

    def masks(self):
        if self._masks is None:
            self._masks = _mask_generator(self.args)
        return self._masks

    def payload(self, skipped):
        args = self.args
        prompt_data = args.prompt_data
        return {
            "task_type": args.rollout_task_type,
            "num_process": str(getattr(args, "rollout_num_process", None) or 100),
            "num_epoch": str(args.num_epoch or 3),
            "remote_engine_url": f"http://{args.sglang_router_ip}:{args.sglang_router_port}",
            "remote_buffer_url": args.rollout_buffer_url,
            "input_file": prompt_data[0] if isinstance(prompt_data, list) and len(prompt_data) == 1 else prompt_data,
            "input_key": args.input_key,
            "label_key": args.label_key,
            "num_repeat_per_sample": str(args.n_samples_per_prompt),
            "max_tokens": str(args.rollout_max_response_len),
            "sampling_params": {
                "max_tokens": args.rollout_max_response_len,
                "temperature": args.rollout_temperature,
                "top_p": args.rollout_top_p,
            },
            "tokenizer_path": args.hf_checkpoint,
            "skip_instance_ids": skipped,
            "max_waiting_groups": 2 * args.rollout_batch_size,
        }

    def start(self, data_source):
        """The generator, which ends the one that a run before left."""
        if self.num_starts >= MOST_STARTS:
            raise RuntimeError(f"the generator was started {MOST_STARTS} times; generator.log in the buffer's folder says why")
        metadata = data_source.get_metadata() if hasattr(data_source, "get_metadata") else {}
        self.buffer.start(self.payload([each for step in (metadata or {}).values() for each in step]))
        self.num_starts += 1  # a buffer that does not answer has started nothing
        task = self.buffer.status()["tasks"].get(self.args.rollout_task_type)
        if task:
            module = load_generator(task["file"]) if task["hooks"] else None
            self.hooks = {name: getattr(module, name) for name in task["hooks"]}

    def look_after(self, data_source):
        """Nothing is finished yet: somebody has to be drawing."""
        state = self.buffer.status()["generator"]
        if state == "running":
            return
        if state == "none":  # the buffer was started again
            self.start(data_source)
            return
        if self.buffer.status()["whole_groups"] == 0:
            raise RuntimeError(f"the generator {state} and no group is finished; generator.log in the buffer's folder says more")

    def passed(self, group):
        """The group as its generator's hooks want it, or None."""
        instance, args = group[0]["instance_id"], self.args
        if "is_valid_group" in self.hooks:
            if not self.hooks["is_valid_group"]((instance, group), args.n_samples_per_prompt, args.rollout_task_type):
                return None
        if "transform_group" in self.hooks:
            group = self.hooks["transform_group"]((instance, group), args.rollout_task_type)[1]
        return group

    async def in_thread(self, function, *arguments):
        """Fails for good after --fetch-trajectory-retry-times + 1 failures in a row; -1: never."""
        most, failures = self.args.fetch_trajectory_retry_times, 0
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
            except OSError as error:
                failures += 1
                if most != -1 and failures > most:
                    url = self.args.rollout_buffer_url
                    raise ConnectionError(f"the rollout buffer at {url} does not answer ({error}), {failures} calls in a row") from error
                logger.warning("the rollout buffer does not answer (%s), call %d", error, failures)
                await asyncio.sleep(min(failures, 10))

    async def collect(self, rollout_id, data_source):
        args = self.args
        if self.num_starts == 0:
            await self.in_thread(self.start, data_source)
        groups, finished, dropped, reads, pause = [], [], 0, 0, FIRST_PAUSE
        while len(groups) < args.rollout_batch_size:
            missing = args.rollout_batch_size - len(groups)
            items, meta = await self.in_thread(self.buffer.take, missing, f"{self.name}:{rollout_id}:{reads}")
            if not items:
                await self.in_thread(self.look_after, data_source)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            reads, pause = reads + 1, FIRST_PAUSE
            finished += meta.get("finished_groups", [])
            for group in _groups(items, args.n_samples_per_prompt):
                group = self.passed(group)
                try:
                    samples = [sample_of(item, self.masks) for item in group or ()]
                except ValueError as error:
                    logger.warning("a group is left out: %s", error)
                    samples = []
                groups += [samples] if samples else []
                dropped += not samples
        if hasattr(data_source, "update_metadata"):
            data_source.update_metadata({str(rollout_id): finished})
        return RolloutFnTrainOutput(samples=groups, metrics={"rollout/buffer/dropped_groups": dropped})


async def _collect(args, rollout_id, data_source):
    key = (args.rollout_buffer_url, getattr(args, "run_dir", None))
    if key not in _readers:
        _readers[key] = _Reader(args)
    return await _readers[key].collect(rollout_id, data_source)


def generate_rollout(args, rollout_id, data_source, evaluation=False):
    """The groups of one step."""
    if evaluation:
        raise NotImplementedError("a rollout buffer has nothing to evaluate: give --eval-function-path or no --eval-interval")
    if not args.rollout_buffer_url:
        raise ValueError("--rollout-buffer-url is missing: the address of `slime buffer`")
    return run(_collect(args, rollout_id, data_source))
