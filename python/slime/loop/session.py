"""A model that a script samples, scores and trains by verbs of its own. Made by ``slime.start(MODEL)``."""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from slime.loop.calls import Sample
from slime.loop.child import Child
from slime.loop.errors import Error, Refused, RunOver
from slime.loop.flags import DEFAULTS_OF_SCRIPTS, flag_words
from slime.loop.groups import Group, flat, read_rows
from slime.loop.grpo import Grpo
from slime.loop.passes import Pass, Update, custom_pass, data_of, reduction_of
from slime.loop.rewards import as_group_reward
from slime.loop.run import Config
from slime.loop.service import Pending, Service, beside

__all__ = ["Sampler", "Session"]

_LONGEST_END = 60.0  # seconds
_MOST_UNDER_WAY = 2048  # requests of one call; each has its samples


class Sampler:
    """Weights that stay as they are, to sample from. Made by ``Session.snapshot()`` and ``Session.base``.

    The newest four snapshots of a session can be sampled; older ones are gone, and say so.
    """

    def __init__(self, session: Session, sampling_session: str) -> None:
        self._session = session
        self._id = sampling_session
        self._lock = threading.Lock()
        self._next = 0

    def generate(
        self,
        prompts: Any,
        *,
        n: int = 1,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        stop: Sequence[str | int] | None = None,
        seed: int | None = None,
        first_index: int | None = None,
    ) -> list[Group]:
        """`n` samples of each prompt: one :class:`Group` a prompt, in their order.

        `prompts`: one text or a list of texts, lists of messages (the model's chat template renders them) or rows with "prompt",
        "label" and more.
        `max_tokens`: of a response; default: --rollout-max-response-len (512).
        `temperature`, `top_p`, `top_k`: default: those of the flags (1, 1, -1). Log-probs are those of the distribution that was
        sampled from; training evaluates at the flags' temperature.
        `stop`: texts and token ids that end a response, in the place of the model's end tokens; [] for none.
        `seed`: default --seed. Sample i of all draws as sample ``first_index + i`` of a run with that seed; the default goes on
        counting, so that the same session gives the same samples again.

        A sample has prompt, response, label, metadata, tokens (int, prompt and response), response_length, log_probs (natural
        logs, one a response token), status ("completed" or "truncated"), index, group_index.
        """
        rows = read_rows([prompts] if isinstance(prompts, str) else prompts)
        session = self._session
        config = session.config
        first = session._take_indices(len(rows) * n) if first_index is None else first_index
        params = {
            "max_tokens": config.rollout_max_response_len if max_tokens is None else max_tokens,
            "temperature": config.rollout_temperature if temperature is None else temperature,
            "top_p": config.rollout_top_p if top_p is None else top_p,
            "top_k": config.rollout_top_k if top_k is None else top_k,
            "seed": config.seed if seed is None else seed,
            "stop": None if stop is None else list(stop),
        }
        encoded = session.encode([row["prompt"] for row in rows])
        answers = self._answers(
            (tokens, n, {"sampling_params": params, "first_index": first + place * n, "wants_text": True})
            for place, tokens in enumerate(encoded)
        )
        groups = []
        for place, (row, tokens, answer) in enumerate(zip(rows, encoded, answers)):
            samples = [
                Sample(
                    index=first + place * n + i,
                    group_index=place,
                    prompt=row["prompt"],
                    response=sequence["text"],
                    label=row["label"],
                    metadata=row["metadata"],
                    tokens=[*tokens, *sequence["tokens"]],
                    prompt_length=len(tokens),
                    response_length=len(sequence["tokens"]),
                    log_probs=sequence["logprobs"],
                    loss_mask=[1] * len(sequence["tokens"]),
                    status="completed" if sequence["stop_reason"] == "stop" else "truncated",
                    reward=None,
                )
                for i, sequence in enumerate(answer["sequences"])
            ]
            groups.append(Group(samples))
        return groups

    async def agenerate(self, prompts: Any, **options: Any) -> list[Group]:
        """:meth:`generate` for an event loop, which goes on meanwhile."""
        return await beside(lambda: self.generate(prompts, **options), "slime-generate")

    def logprobs(self, samples: Any) -> list[list[float]]:
        """Log-probs of each sample's response tokens under these weights, at temperature 1: [response length] each."""
        each = flat(samples)
        fields = {"sampling_params": {"max_tokens": 0}, "prompt_logprobs": True}
        answers = self._answers((sample.tokens, 1, fields) for sample in each)
        return [answer["prompt_logprobs"][len(sample.tokens) - sample.response_length :] for sample, answer in zip(each, answers)]

    async def alogprobs(self, samples: Any) -> list[list[float]]:
        """:meth:`logprobs` for an event loop."""
        return await beside(lambda: self.logprobs(samples), "slime-logprobs")

    def _answers(self, requests: Iterable[tuple[Sequence[int], int, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
        """In the order of the requests. A bounded number is under way: the program keeps so many answers for who is late."""
        waiting: collections.deque[Pending[dict[str, Any]]] = collections.deque()
        for request in requests:
            waiting.append(self._ask(*request))
            if len(waiting) >= _MOST_UNDER_WAY:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _ask(self, tokens: Sequence[int], n: int, fields: Mapping[str, Any]) -> Pending[dict[str, Any]]:
        with self._lock:
            number, self._next = self._next, self._next + 1
        body = {
            "sampling_session_id": self._id,
            "seq_id": number,
            "num_samples": n,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]},
            **fields,
        }
        return self._session._pending("asample", body)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Session:
    """A model, its optimizer and an engine, in a process that ends with this one.

    >>> with slime.start("Qwen/Qwen3-0.6B") as s:                                     # doctest: +SKIP
    ...     groups = s.generate(["2+3=", "4+4="], n=8, max_tokens=16)
    ...     s.score(groups, lambda sample: sample.response.startswith("5"))
    ...     s.advantages(groups)
    ...     s.forward_backward(groups)
    ...     s.step(lr=1e-6)

    Each verb waits until it is done; ``agenerate``, ``ascore``, ``aforward_backward``, ``astep``, ``alogprobs``, ``asnapshot``,
    ``asave`` and ``aload`` are awaited instead. ``forward_backward`` and ``step`` take ``wait=False`` and then give a
    :class:`Pending`, so that one can be asked for while the other is computed. Any number of threads may call.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._over: RunOver | None = None
        self._asking = threading.Lock()
        self._next_seq = 0
        self._next_index = 0
        self._cursor = 0  # of grpo's prompts
        self._passes: list[tuple[Pending[Any], float]] = []  # since the last update, with what each adds to the divisor
        self._num_updates = 0
        self._newest: tuple[int, Sampler] | None = None
        self._base: Sampler | None = None
        address = child.wait_for_door()
        self._service = Service(address["url"], address["token"], self._end_of)
        try:
            self.config = Config(self._service.call("GET", "flags"))
            self._id = self._service.post("create_session", {"tags": [], "type": "create_session", "sdk_version": "slime"})["session_id"]
            created = self._pending("create_model", {"session_id": self._id, "model_seq_id": 0, "lora_config": {"rank": 0}})
            self._model = created.result()["model_id"]
        except BaseException:
            child.kill()
            raise
        _open.add(self)

    # Sampling.

    def snapshot(self) -> Sampler:
        """The weights as they are now, to sample from while training goes on. Free where they have not changed since the last one."""
        with self._lock:
            if self._newest is not None and self._newest[0] == self._num_updates:
                return self._newest[1]
            updates = self._num_updates
        answer = self._of_model("save_weights_for_sampler", {"kind": "snapshot"}).result()
        sampler = Sampler(self, answer["sampling_session_id"])
        with self._lock:
            self._newest = (updates, sampler)
        return sampler

    async def asnapshot(self) -> Sampler:
        """:meth:`snapshot` for an event loop."""
        return await beside(self.snapshot, "slime-snapshot")

    @property
    def base(self) -> Sampler:
        """The weights that the session was started with: a reference. They are loaded once more when this is first asked for."""
        if self._base is None:
            body = {"session_id": self._id, "base_model": self._service.call("GET", "get_server_capabilities")["supported_models"][0]["model_name"]}
            self._base = Sampler(self, self._service.post("create_sampling_session", body)["sampling_session_id"])
        return self._base

    def generate(self, prompts: Any, **options: Any) -> list[Group]:
        """Samples from the weights as they are now: ``snapshot().generate(prompts, ...)`` (:meth:`Sampler.generate`)."""
        return self.snapshot().generate(prompts, **options)

    async def agenerate(self, prompts: Any, **options: Any) -> list[Group]:
        """:meth:`generate` for an event loop."""
        return await beside(lambda: self.generate(prompts, **options), "slime-generate")

    # Rewards and advantages.

    def score(self, groups: Any, reward: Callable[..., Any]) -> Any:
        """Calls a reward of any form (slime.loop.rewards), an async one for all samples at once, and sets ``sample.reward``.

        `groups`: groups, or a list of samples; they are returned. Raises RewardError, which has the sample.
        """
        samples = flat(groups)
        for sample, value in zip(samples, as_group_reward(reward, self.config)(samples)):
            sample.reward = value
        return groups

    async def ascore(self, groups: Any, reward: Callable[..., Any]) -> Any:
        """:meth:`score` for an event loop."""
        return await beside(lambda: self.score(groups, reward), "slime-score")

    def advantages(self, groups: Sequence[Group], how: str = "grpo") -> Sequence[Group]:
        """Sets ``sample.advantage`` from the rewards of each group: "grpo", "mean", "rloo" or "none" (advantages_of)."""
        for group in groups:
            (group if isinstance(group, Group) else Group(group)).advantages(how)
        return groups

    # Training.

    def forward_backward(
        self,
        samples: Any,
        loss: str | Callable[..., Any] = "policy",
        *,
        clip: tuple[float, float] | None = None,
        beta: float | None = None,
        reduction: str | None = None,
        wait: bool = True,
    ) -> Any:
        """Adds the gradients of a loss on these samples to those that are there since the last ``step``. Gives a :class:`Pass`.

        `samples`: groups, samples, or mappings with tokens, response_length and what the loss needs: ``advantage`` (a number, or
        one for each response token), ``log_probs`` (of the sampler), ``loss_mask``; of "cross_entropy" ``weights``, by default
        the mask; of "policy" ``old_log_probs``, where the ratio is not to this very pass.
        `loss`: "policy", the loss that the flags describe (--eps-clip, --use-kl-loss, --use-tis, ...); "ppo",
        "importance_sampling", "cispo", "dro", "gspo", "cross_entropy" as Tinker defines them; or a function of the script,
        ``loss(logprobs, samples)`` (below).
        `clip`: (low, high) around 1, (0.2, 0.28) for a ratio between 0.8 and 1.28: of "ppo" and "gspo"; of "cispo" as well.
        `beta`: of "dro".
        `reduction`: "mean", tokens of a response are averaged, then responses (as in a run); "token", all tokens are averaged;
        "sum" (as Tinker). Default: "mean", and "sum" for "cross_entropy", "dro" and functions. ``step`` divides by what was
        added up.

        A function gets the log-probs of each sample's response tokens and the samples. Where the script has imported torch the
        log-probs are tensors with gradient, float32 [response length], and the function returns a scalar tensor, or that and a
        dictionary of metrics. Without torch they are lists, and it returns the loss and its gradients, a list for each sample.

        Raises Refused for what cannot be trained, and the gradients are as before.
        """
        each = flat(samples)
        if callable(loss):
            given = {"clip": clip, "beta": beta, "reduction": reduction}
            extra = [name for name, value in given.items() if value is not None]
            if extra:
                raise ValueError(f"{', '.join(extra)}: not with a function, whose loss is taken as it is; put it into the function")
            return custom_pass(self, each, loss, wait)
        how = reduction_of(loss, reduction)
        data, divisor = data_of(each, loss, how)
        config: dict[str, float] = {}
        if clip is not None:
            config = {"clip_low_threshold": 1 - clip[0], "clip_high_threshold": 1 + clip[1]}
        if beta is not None:
            config["beta"] = beta
        return self._add_gradients(data, loss, config, divisor, how, wait)

    async def aforward_backward(self, samples: Any, loss: str | Callable[..., Any] = "policy", **options: Any) -> Pass:
        """:meth:`forward_backward` for an event loop."""
        return await beside(lambda: self.forward_backward(samples, loss, **options), "slime-forward-backward")

    def step(
        self,
        lr: float | None = None,
        *,
        clip_norm: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        divisor: float | None = None,
        wait: bool = True,
        after: Pending[Any] | None = None,
    ) -> Any:
        """One AdamW update with the gradients that were added up, which are gone afterwards. Gives an :class:`Update`.

        Defaults are the flags': --lr, --clip-grad (L2 norm of the whole gradient; 0: none), --adam-beta1 and 2, --adam-eps,
        --weight-decay. `divisor`: of the gradients; default: the samples of the passes ("mean"), their tokens ("token"), or 1.
        Where a pass since the last update fails that nobody has waited for yet, or `after`, nothing is updated.
        """
        flags = self.config
        with self._lock:
            passes, self._passes = self._passes, []
            self._num_updates += 1
        given = sum(counted for each, counted in passes if not each.has_failed())
        beta1, beta2 = betas or (flags.adam_beta1, flags.adam_beta2)
        adam = {
            "learning_rate": flags.lr if lr is None else lr,
            "beta1": beta1,
            "beta2": beta2,
            "eps": flags.adam_eps if eps is None else eps,
            "weight_decay": flags.weight_decay if weight_decay is None else weight_decay,
            "grad_clip_norm": flags.clip_grad if clip_norm is None else clip_norm,
            "gradient_divisor": divisor or given or 1.0,
        }
        needed = [each for each, _ in passes] + ([] if after is None else [after])
        body = {"adam_params": adam, "requires": [each.request_id for each in needed if not each.done()]}

        def put_back() -> None:  # the gradients are there still
            for each, _ in passes:
                with contextlib.suppress(Error):
                    each.result()
            with self._lock:
                self._passes[:0] = passes

        try:
            pending = self._of_model("optim_step", body, Update, put_back)
        except Refused:
            put_back()
            raise
        return pending.result() if wait else pending

    async def astep(self, lr: float | None = None, **options: Any) -> Update:
        """:meth:`step` for an event loop."""
        return await beside(lambda: self.step(lr, **options), "slime-step")

    def logprobs(self, samples: Any) -> list[list[float]]:
        """Log-probs of each sample's response tokens by the trainer, under the weights as they are now: [response length] each."""
        data, _ = data_of(flat(samples), "logprobs", "sum")
        body = {"forward_only": True, "forward_backward_input": {"data": data, "loss_fn": "logprobs", "loss_fn_config": {}}}
        return self._of_model("forward_backward", body, lambda answer: Pass(answer, 1.0)).result().logprobs

    async def alogprobs(self, samples: Any) -> list[list[float]]:
        """:meth:`logprobs` for an event loop."""
        return await beside(lambda: self.logprobs(samples), "slime-logprobs")

    def grpo(self, prompts: Any, reward: Callable[..., Any], **options: Any) -> Grpo:
        """Trains by GRPO, an iterator of steps: ``for step in s.grpo(prompts, reward, groups=32, samples=8)``, and ``async for``.

        Leaving the loop leaves the weights as they are; another call goes on with them and with the next prompts. The options are
        those of :class:`Grpo`.
        """
        return Grpo(self, prompts, reward, **options)

    # Weights.

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes a model directory that transformers opens, with the optimizer's state beside it. Returns its path."""
        body = {"path": str(Path(path).absolute()), "overwrite": overwrite}
        return Path(self._of_model("save_weights", body).result()["path"])

    async def asave(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """:meth:`save` for an event loop."""
        return await beside(lambda: self.save(path, **options), "slime-save")

    def load(self, path: str | os.PathLike[str], *, optimizer: bool | None = None) -> None:
        """Takes the weights of a model directory. `optimizer`: its moments and step count too; default: where they are there."""
        directory = Path(path).absolute()
        restores = (directory / "optimizer").is_dir() if optimizer is None else optimizer
        with self._lock:
            passes, self._passes = self._passes, []
            self._num_updates += 1
        try:
            self._of_model("load_weights", {"path": str(directory), "optimizer": restores}).result()
        except Refused:  # nothing has changed
            with self._lock:
                self._passes[:0] = passes
            raise

    async def aload(self, path: str | os.PathLike[str], **options: Any) -> None:
        """:meth:`load` for an event loop."""
        await beside(lambda: self.load(path, **options), "slime-load")

    # Text.

    def encode(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Token ids of texts, and of lists of messages by the model's chat template, which end where an answer begins."""
        texts = [each for each in prompts if isinstance(each, str)]
        conversations = [each for each in prompts if not isinstance(each, str)]
        answer = self._service.post("encode", {"texts": texts, "conversations": conversations})["tokens"]
        of_texts, of_conversations = iter(answer[: len(texts)]), iter(answer[len(texts) :])
        return [next(of_texts if isinstance(each, str) else of_conversations) for each in prompts]

    def decode(self, tokens: Sequence[Sequence[int]], *, skip_special_tokens: bool = True) -> list[str]:
        """Texts of lists of token ids."""
        return self._service.post("decode", {"tokens": [list(each) for each in tokens], "skip_special_tokens": skip_special_tokens})["texts"]

    # The end.

    def close(self) -> None:
        """Ends the program. What was not saved is gone. Does nothing the second time."""
        if os.getpid() != self._owner or self not in _open:
            return
        _open.discard(self)
        self._over = self._over or RunOver("the session is closed")
        self._child.interrupt()
        if not self._child.has_ended(within=_LONGEST_END):
            self._child.kill()
        self._child.clean_up()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await beside(self.close, "slime-close")

    def __repr__(self) -> str:
        return f"<slime session of {self.config.hf_checkpoint}{': over' if self not in _open else ''}>"

    # For passes, samplers and Grpo.

    def _take_indices(self, count: int) -> int:
        with self._lock:
            first, self._next_index = self._next_index, self._next_index + count
            return first

    def _pending(
        self,
        route: str,
        body: Mapping[str, Any],
        read: Callable[[dict[str, Any]], Any] = lambda answer: answer,
        when_failed: Callable[[], None] = lambda: None,
    ) -> Pending[Any]:
        if self._over is not None:
            raise self._over
        return Pending(self._service, self._service.post(route, dict(body))["request_id"], read, when_failed)

    def _of_model(
        self,
        route: str,
        body: Mapping[str, Any],
        read: Callable[[dict[str, Any]], Any] = lambda answer: answer,
        when_failed: Callable[[], None] = lambda: None,
    ) -> Pending[Any]:
        with self._asking:  # numbers are without a gap, and in the order of asking
            numbered = {"model_id": self._model, "seq_id": self._next_seq + 1, **body}
            try:
                pending = self._pending(route, numbered, read, when_failed)
            except KeyboardInterrupt:  # it may have come, or not: asked for again it is the same request
                self._pending(route, numbered, read)
                self._next_seq += 1
                raise
            self._next_seq += 1
        return pending

    def _add_gradients(self, data: Any, loss: str, config: Mapping[str, float], divisor: float, how: str, wait: bool) -> Any:
        body = {"forward_backward_input": {"data": data, "loss_fn": loss, "loss_fn_config": dict(config)}}
        pending = self._of_model("forward_backward", body, lambda answer: Pass(answer, divisor))
        with self._lock:
            self._passes.append((pending, 0.0 if how == "sum" else divisor))
        return pending.result() if wait else pending

    def _end_of(self, error: OSError) -> RunOver:
        """Why nobody answers."""
        if not self._child.has_ended(within=5.0):
            return RunOver(f"the program (process {self._child.pid}) does not answer: {error}")
        died_of = self._child.end(statuses=(0,))
        _open.discard(self)
        self._over = died_of or RunOver("the session is closed")
        return self._over


_open: set[Session] = set()


@atexit.register
def _close_all() -> None:
    for session in list(_open):
        try:
            session.close()
        except Exception as error:
            print(f"slime: {error}", file=sys.stderr)


def start_session(
    model: str | os.PathLike[str], output: TextIO | bool | None, program: str | None, flags: Mapping[str, Any]
) -> Session:
    """A session with `model`, once it is loaded."""
    return Session(Child(flag_words(model, {**DEFAULTS_OF_SCRIPTS, **flags}), output, program, command="tinker"))
