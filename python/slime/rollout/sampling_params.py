"""The engine's sampling parameters. NAMES is src/engine/sampling_fields.h as Python: a unit test of the engine
(SamplingFields.PythonHasTheSameNames) compares them. docs/adding_a_sampling_parameter.md says how one is added."""

__all__ = ["NAMES", "OPENAI_NAMES", "evaluation_params", "log_prob_fields", "rollout_params"]

# SGLang's name, which is the engine's: the name in OpenAI's protocols.
NAMES = {
    "max_new_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "repetition_penalty": "repetition_penalty",
    "min_new_tokens": "min_tokens",
    "stop": "stop",
    "stop_token_ids": "stop_token_ids",
    "logit_bias": "logit_bias",
    "ignore_eos": "ignore_eos",
    "skip_special_tokens": "skip_special_tokens",
    "spaces_between_special_tokens": "spaces_between_special_tokens",
    "no_stop_trim": "no_stop_trim",
    "json_schema": "json_schema",
    "regex": "regex",
    "ebnf": "ebnf",
    "structural_tag": "structural_tag",
    "allowed_token_ids": "allowed_token_ids",
    "bad_words": "bad_words",
    "sampling_seed": "seed",
}
OPENAI_NAMES = {openai: name for name, openai in NAMES.items()}

# What is drawn under these is not the model's own distribution.
_CONSTRAINTS = ("json_schema", "regex", "ebnf", "structural_tag", "allowed_token_ids", "bad_words")


def log_prob_fields(sampling_params):
    """Fields of /generate for log-probs to train on: under a constraint those without it, too."""
    fields = {"return_logprob": True}
    if any(sampling_params.get(name) for name in _CONSTRAINTS):
        fields["return_free_logprobs"] = True
    return fields


# The flags and the settings of evaluations say it otherwise.
_SETTINGS = {"max_new_tokens": "max_response_len"}
# Set by the loop, whatever the flags are.
_FIXED = {"no_stop_trim": True, "spaces_between_special_tokens": False}


def _first(name, *places):
    """The first of (object, prefix) that has the setting and a value for it; whether one has it at all."""
    has = False
    for place, prefix in places:
        attribute = prefix + _SETTINGS.get(name, name)
        if hasattr(place, attribute):
            has = True
            if (value := getattr(place, attribute)) is not None:
                return True, value
    return has, None


def rollout_params(args):
    """sampling_params of training: each parameter that has a flag --rollout-NAME."""
    params = {}
    for name in NAMES:
        has, value = _first(name, (args, "rollout_"))
        if has:
            params[name] = value
    return params | _FIXED


# Left out of the request where neither the data set nor a flag says them: the engine's default holds.
_GIVEN_EVEN_AS_NONE = ("stop", "stop_token_ids")


def evaluation_params(args, config):
    """Those of one data set of an evaluation: its own settings, else --eval-NAME, else --rollout-NAME."""
    params = dict(_FIXED)
    for name in NAMES:
        has, value = _first(name, (config, ""), (args, "eval_"), (args, "rollout_"))
        if value is not None or (has and name in _GIVEN_EVEN_AS_NONE):
            params[name] = value
    return params
