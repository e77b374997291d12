"""Fields of a request: those that are acted on, those that would change the answer and are refused, and the others, which
are named to the client and in the log."""

from slime.agent.http_app import HttpProblem
from slime.rollout.sampling_params import OPENAI_NAMES

__all__ = ["check_fields", "template_options"]

# Read by the adapter with rules of its own, or asking for what the endpoint cannot keep.
_NOT_PASSED_ON = {
    "max_new_tokens",
    "stop",
    "logit_bias",
    "sampling_seed",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
}
# OpenAI's name of a sampling parameter: the engine's.
SAMPLING = {openai: name for openai, name in OPENAI_NAMES.items() if name not in _NOT_PASSED_ON}
# A constraint on the text, which the endpoint cannot keep; with the values that ask for none.
_CONSTRAINTS = {
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
    "grammar": (),
    "structural_tag": (),
    "output_format": (),
    "logit_bias": ({},),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "best_of": (1,),
    "n": (1,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "echo": (False,),
    "suffix": ("",),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "prediction": (),
    "background": (False,),
    "previous_response_id": (),
    "conversation": (),
}
# Said of the request rather than of its answer: nothing is to be done.
_SILENT = {
    "model",
    "messages",
    "input",
    "instructions",
    "system",
    "stream",
    "stream_options",
    "tools",
    "metadata",
    "user",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "cache_salt",
    "request_id",
    "rid",
    "client_metadata",
    "include",
    "truncation",
    "context_management",
    "betas",
    "cache_control",
    "container",
    "mcp_servers",
    "chat_template_kwargs",
    "add_generation_prompt",
    "logprobs",
}


def check_fields(body, *, acted_on, free_tool_choice=False):
    """Names of fields that are ignored; HttpProblem for those that cannot be. `free_tool_choice`: a choice that cannot be
    kept is among the ignored."""
    for name, harmless in _CONSTRAINTS.items():
        value = body.get(name)
        if value is not None and value not in harmless:
            raise HttpProblem(400, f"{name} is not supported by this endpoint", code="unsupported_parameter", param=name)
    text_format = (body.get("text") or {}).get("format") if isinstance(body.get("text"), dict) else None
    output_format = (body.get("output_config") or {}).get("format") if isinstance(body.get("output_config"), dict) else None
    for name, value in (("text.format", text_format), ("output_config.format", output_format)):
        if value is not None and value != {"type": "text"}:
            raise HttpProblem(400, f"{name} is not supported by this endpoint", code="unsupported_parameter", param=name)
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    is_kept = kind in (None, "auto", "none")
    if not is_kept and not free_tool_choice:
        raise HttpProblem(
            400,
            f"tool_choice {kind!r} is not supported by this endpoint: the model decides (auto, none); an adapter made with "
            "free_tool_choice=True takes it as auto",
            code="unsupported_parameter",
            param="tool_choice",
        )
    known = {*SAMPLING, *_CONSTRAINTS, *_SILENT, *acted_on} | ({"tool_choice"} if is_kept else set())
    return sorted(name for name, value in body.items() if name not in known and value not in (None, {}, [], False, ""))


_OWN_OPTIONS = ("messages", "conversation", "tools", "tokenize", "add_generation_prompt", "chat_template", "return_dict")


def template_options(body, defaults):
    """chat_template_kwargs of the request over those of the adapter."""
    own = body.get("chat_template_kwargs")
    if own is None:
        return dict(defaults)
    if not isinstance(own, dict) or any(name in _OWN_OPTIONS for name in own):
        raise HttpProblem(400, f"chat_template_kwargs is an object without {', '.join(_OWN_OPTIONS)}")
    return {**defaults, **own}
