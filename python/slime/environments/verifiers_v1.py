"""Environments of verifiers 0.4: verifiers:NAME, a taskset that is installed.

The environment runs as it is, in the plug-in host; its client for training samples over the token route of the run's server, and its trace has
token ids and log-probs. A branch of a trace is a sample; a turn that several branches share is trained in the first.

Settings are those of verifiers' environment: {"taskset": {...}, "agent": {"max_turns": 4, "harness": {...}}, "renderer": {"name": "qwen3"}}.
"""

import asyncio
import importlib.metadata
import sys
from contextlib import AsyncExitStack

import renderers.base
import renderers.client
import verifiers.v1 as vf
from pydantic import ValidationError
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.types import SamplingConfig
from verifiers.v1.utils.loaders import default_harness_id, environment_class, env_config_type, load_environment, resolve_env_config

from slime import turns
from slime.environments import EnvironmentProblem, Score
from slime.environments.drawn_versions import DrawnVersions
from slime.utils.http_utils import post
from slime.utils.types import Sample

__all__ = ["Connector"]

HARNESS = "slime_chat"  # verifiers imports a harness by this name
_SAME_NAMES = ("temperature", "top_p", "top_k", "min_p", "stop", "repetition_penalty")
_versions = DrawnVersions()  # of answers of the token route


def _note_versions(parse):
    def parse_and_note(content):
        answer = parse(content)
        for choice in answer.get("choices") or []:
            runs = [[run["version"], run["end"] - run["start"]] for run in choice.get("weight_versions") or []]
            entries = (choice.get("logprobs") or {}).get("content") or []
            if runs and choice.get("token_ids"):
                _versions.note(choice["token_ids"], [each["logprob"] for each in entries], runs)
        return answer

    return parse_and_note


class Connector:
    def __init__(self, name, settings):
        self._renderer = settings.pop("renderer", None)
        try:
            settings = self._with_defaults(name, {**settings, "taskset": {**settings.get("taskset", {}), "id": name}})
            self._environment = load_environment(resolve_env_config(settings))
        except ModuleNotFoundError as error:
            raise EnvironmentProblem(f"{error}{self._installed()}") from None
        except (ValidationError, ValueError) as error:
            raise EnvironmentProblem(f"--environment-args: {error}") from None
        self._taskset = self._environment.taskset
        self.is_endless = not self._taskset.bounded
        self._stack, self._lock, self._is_serving = AsyncExitStack(), asyncio.Lock(), False

    @staticmethod
    def _installed():
        all_of_them = importlib.metadata.distributions()
        names = sorted({each.metadata["Name"] for each in all_of_them if any(need.startswith("verifiers") for need in each.requires or [])})
        return f" Installed packages that use verifiers: {', '.join(names) or 'none'}."

    @staticmethod
    def _with_defaults(name, settings):
        """Agents of this process, on this machine, where neither the settings nor the taskset say otherwise."""
        from slime.environments import verifiers_chat

        sys.modules.setdefault(HARNESS, verifiers_chat)
        own = default_harness_id(name) != "bash" or environment_class(name, settings.get("id", "")) is not vf.SingleAgentEnv
        for role, field in env_config_type(name, settings.get("id", "")).model_fields.items():
            if not isinstance(field.default, AgentConfig):
                continue
            agent = dict(settings.get(role) or {})
            agent.setdefault("runtime", {"type": "subprocess"})
            if not own:
                agent.setdefault("harness", {"id": HARNESS})
            settings[role] = agent
        return settings

    def tasks(self):
        for task in self._taskset:
            data = task.data
            prompt = data.prompt_text or data.name or f"task {data.idx}"
            yield prompt, data.model_dump(mode="json", exclude_none=True)

    async def _serve(self, model):
        async with self._lock:
            if not self._is_serving:
                await asyncio.to_thread(renderers.base.load_tokenizer, model)  # imports what takes long, off the host's loop
                renderers.client.parse_generate_response = _note_versions(renderers.client.parse_generate_response)
                await self._stack.enter_async_context(self._environment.serving())  # as long as this process lives
                self._is_serving = True

    async def play(self, task, sample, engine):
        await self._serve(engine.model)
        kind = type(self._taskset).task_type()
        built = kind(kind.data_type().model_validate(task), self._environment.config.taskset.task)
        asked = engine.sampling_params
        if asked.get("custom_params"):
            raise EnvironmentProblem("--rollout-top-p below 1: the trace of verifiers does not keep what the trainer needs for it; use 1")
        sampling = {name: asked[name] for name in _SAME_NAMES if asked.get(name) not in (None, [])}
        client = vf.TrainClientConfig(
            base_url=engine.url + "/v1", api_key_var="SLIME_NO_KEY", renderer=self._renderer, renderer_model_name=engine.model
        )
        context = vf.ModelContext(
            model="slime-actor", client=client, sampling=SamplingConfig(**sampling, max_tokens=asked.get("max_new_tokens"))
        )
        episode = await self._environment.run_slot(self._environment.slots(built)[0], context)
        try:
            return await self._trained_samples(episode, sample, engine)
        finally:
            _forget(episode.traces)  # of agents that are not trained, and of what failed

    @staticmethod
    async def _trained_samples(episode, sample, engine):
        errors = [*episode.errors, *(error for trace in episode.traces if not trace.ok for error in trace.errors)]
        if errors:
            raise RuntimeError(f"{errors[0].type}: {errors[0].message}\n{errors[0].traceback or ''}".rstrip())
        trained = [trace for trace in episode.traces if trace.agent.trainable]
        return [made for trace in trained for made in await _samples_of(trace, sample, engine)]


def _drawn_in(node):
    """The ids that the model drew in a node of a trace; none where it drew none."""
    count = sum(node.mask) if node.sampled else 0
    return node.token_ids[-count:] if count else []


def _forget(traces):
    for node in (node for trace in traces for branch in trace.branches for node in branch.nodes):
        if drawn := _drawn_in(node):
            _versions.take(drawn, node.logprobs)


async def _samples_of(trace, base, engine):
    metrics = {name: value for name, value in trace.metrics.items() if value is not None}
    rewards = {name: each.value for name, each in trace.rewards.items() if each is not None}
    score = Score(trace.reward, {**metrics, **rewards, "turns": trace.num_turns})
    samples, trained = [], set()
    for branch in trace.branches:
        tokens, mask = branch.token_ids, []
        for node in branch.nodes:
            is_first = id(node) not in trained
            drawn = _drawn_in(node)
            if drawn and is_first:
                runs = _versions.take(drawn, node.logprobs)
                if runs:
                    prompt = tokens[: len(mask) + len(node.mask) - len(drawn)]
                    turns.note({"output_ids": drawn, "meta_info": {"weight_version_runs": runs}, "prompt_ids": prompt})
            trained.add(id(node))
            mask += [int(each and is_first and branch.trainable) for each in node.mask]
        if not any(mask):
            continue
        begin = branch.sampled_mask.index(True)
        made = Sample(
            index=base.index, group_index=base.group_index, rollout_id=base.index if base.rollout_id is None else base.rollout_id,
            prompt=base.prompt, label=base.label, tokens=tokens, response_length=len(tokens) - begin, loss_mask=mask[begin:],
            rollout_log_probs=branch.logprobs[begin:], reward=score.record(), metadata=dict(base.metadata),
            status=Sample.Status.TRUNCATED if trace.is_truncated else Sample.Status.COMPLETED,
        )  # fmt: skip
        asked = {"tokens": tokens[begin:], "skip_special_tokens": False}
        made.response = (await post(f"{engine.url}/detokenize", asked, max_retries=1))["text"]
        samples.append(made)
    return samples
