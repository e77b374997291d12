"""Claude Code, the program that claude-agent-sdk ships: tools of its own, tools of the caller, a sub-agent."""

import asyncio
import os
import tempfile

import pytest
from served import KEY, MODEL, call, model, say, server, thought, training  # noqa: F401

sdk = pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed")

ANSWERS = {
    "hello": "Good day!",
    "bash": thought("What is here?", "I look.\n" + call("Bash", command=f"echo {say('done')}", description="say it")),
    "weather": thought("I do not know.", call("mcp__world__get_weather", city="Oslo") + "\n" + call("mcp__world__get_weather", city="Rome")),
    "delegates": call("Agent", description="say", prompt=say("helper's"), subagent_type="helper"),
    "helper's": f"I was asked {say('done')}",
    "done": "That is all.",
}


@sdk.tool("get_weather", "The weather of a city", {"city": str})
async def get_weather(arguments):
    return {"content": [{"type": "text", "text": f"4 degrees {say('done')}"}]}


def run(url, name, key=KEY, **fields):
    """The messages of a query, in a home of its own."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **{name: "" for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE"))},
            **kept, "HOME": home, "CLAUDE_CONFIG_DIR": home, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key, "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
            "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        }  # fmt: skip
        options = sdk.ClaudeAgentOptions(
            model=MODEL, cwd=home, env=environment, max_turns=6, permission_mode="bypassPermissions", setting_sources=[],
            **{"system_prompt": "You help.", "tools": [], **fields},
        )  # fmt: skip

        async def play():
            return [message async for message in sdk.query(prompt=say(name), options=options)]

        messages = asyncio.run(play())
    last = messages[-1]
    assert isinstance(last, sdk.ResultMessage) and not last.is_error, last
    return messages


def world():
    return {"mcp_servers": {"world": sdk.create_sdk_mcp_server("world", tools=[get_weather])}, "allowed_tools": ["mcp__world__get_weather"]}


def test_chat(server):  # noqa: F811
    assert run(server.url, "hello")[-1].result == ANSWERS["hello"]


def test_its_own_tools(server):  # noqa: F811
    messages = run(server.url, "bash", tools=["Bash"])
    assert messages[-1].result == ANSWERS["done"]
    kinds = [type(block).__name__ for message in messages if isinstance(message, sdk.AssistantMessage) for block in message.content]
    assert kinds == ["ThinkingBlock", "TextBlock", "ToolUseBlock", "TextBlock"]


def test_tools_of_the_caller(server):  # noqa: F811
    messages = run(server.url, "weather", **world())
    assert messages[-1].result == ANSWERS["done"]
    used = [block.input for message in messages if isinstance(message, sdk.AssistantMessage) for block in message.content if hasattr(block, "input")]
    assert used == [{"city": "Oslo"}, {"city": "Rome"}]


def helper():
    return {"tools": ["Agent", "Read"], "agents": {"helper": sdk.AgentDefinition(description="helps", prompt="You are the helper.", tools=["Read"])}}


def test_sub_agent(server):  # noqa: F811
    assert run(server.url, "delegates", **helper())[-1].result == ANSWERS["done"]


@pytest.mark.parametrize("name, fields, turns, samples", [("bash", {"tools": ["Bash"]}, 2, 1), ("weather", world(), 2, 1), ("delegates", helper(), 3, 2)])
def test_training_is_exact(training, name, fields, turns, samples):  # noqa: F811
    session = f"claude-{name}"
    training.open(session)
    assert run(training.anthropic_url, name, session, **fields)[-1].result == ANSWERS["done"]
    figures = training.finish(session)
    assert (figures["turns"], figures["samples"]) == (turns, samples)
