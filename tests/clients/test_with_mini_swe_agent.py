"""mini-swe-agent: commands as tool calls, as text and over Responses."""

import os

import pytest
from served import KEY, MODEL, call, model, say, server, thought, training  # noqa: F401

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"
pytest.importorskip("minisweagent", reason="mini-swe-agent is not installed")
import yaml  # noqa: E402
from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.config import builtin_config_dir  # noqa: E402
from minisweagent.environments.local import LocalEnvironment  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402
from minisweagent.models.litellm_response_model import LitellmResponseModel  # noqa: E402
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel  # noqa: E402


def fenced(command):
    return f"I look.\n\n```mswea_bash_command\n{command}\n```"


SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo 42"
ANSWERS = {
    "calls": thought("What is here?", "I look.\n" + call("bash", command=f"echo {say('two calls')}")),
    "two calls": call("bash", command="true") + "\n" + call("bash", command=f"echo {say('submit')}"),
    "submit": call("bash", command=SUBMIT),
    "text": thought("What is here?", fenced(f"echo '{say('submit as text')}'")),
    "submit as text": fenced(SUBMIT),
}
KINDS = [(LitellmModel, "mini.yaml", "calls", 3), (LitellmResponseModel, "mini.yaml", "calls", 3), (LitellmTextbasedModel, "mini_textbased.yaml", "text", 2)]
MODES = pytest.mark.parametrize("kind, config, name, turns", KINDS, ids=["calls", "responses", "text"])


def run(kind, config, name, url, key, folder):
    settings = yaml.safe_load((builtin_config_dir / config).read_text())
    settings["agent"].pop("mode", None)
    settings["agent"]["step_limit"] = 5
    fields = {**settings["model"], "model_name": f"openai/{MODEL}", "cost_tracking": "ignore_errors"}
    fields["model_kwargs"] = {**settings["model"].get("model_kwargs", {}), "api_base": url + "/v1", "api_key": key, "num_retries": 0}
    agent = DefaultAgent(kind(**fields), LocalEnvironment(cwd=str(folder)), **settings["agent"])
    return agent.run(say(name)), agent.n_calls


@MODES
def test_agent(server, tmp_path, kind, config, name, turns):  # noqa: F811
    result, calls = run(kind, config, name, server.url, KEY, tmp_path)
    assert (result["exit_status"], result["submission"].strip(), calls) == ("Submitted", "42", turns)


@MODES
def test_training_is_exact(training, tmp_path, kind, config, name, turns):  # noqa: F811
    session = kind.__name__
    training.open(session)
    result, _ = run(kind, config, name, training.openai_url, session, tmp_path)
    figures = training.finish(session)
    assert (result["submission"].strip(), figures["turns"], figures["samples"]) == ("42", turns, 1)
