"""Claude Code, from npm archives of this machine; it speaks to an AnthropicAdapter."""

import json
import os
import shlex
from pathlib import Path

from slime.agent.harness.common import BaseHarness, install_npm_cli, run_agent, with_settings

__all__ = ["ClaudeCodeHarness"]


class ClaudeCodeHarness(BaseHarness):
    name = "claude_code"
    node_tarball_env = "SLIME_AGENT_NODE_TARBALL"
    cli_tarball_env = "SLIME_AGENT_CC_TARBALL"
    extra_args_env = "SLIME_AGENT_CC_EXTRA_ARGS"
    extra_envs_env = "SLIME_AGENT_CC_EXTRA_ENVS"
    launch_flags = "--permission-mode bypassPermissions --output-format stream-json --verbose"
    static_env = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    }

    async def install_cli(self, sb):
        await install_npm_cli(
            sb,
            node_runtime=Path(os.environ[self.node_tarball_env]),
            npm_package=Path(os.environ[self.cli_tarball_env]),
            check_cmd="/usr/local/bin/claude --version",
        )

    async def write_config(self, sb, ctx):
        """Answers the questions of a first start."""
        settings = json.dumps({"hasCompletedOnboarding": True, "bypassPermissionsModeAccepted": True})
        files = "/home/agent/.claude.json /home/agent/.claude/settings.json"
        await sb.exec(
            f"mkdir -p /home/agent/.claude && echo {shlex.quote(settings)} | tee {files} > /dev/null && "
            "chown -R agent:agent /home/agent/.claude /home/agent/.claude.json",
            user="root",
            check=True,
            timeout=60,
        )

    async def launch_and_wait(self, sb, ctx, prompt, time_budget_sec):
        env = {
            "ANTHROPIC_BASE_URL": ctx.adapter_url,
            "ANTHROPIC_AUTH_TOKEN": ctx.session_id,
            "ANTHROPIC_MODEL": ctx.model_label,
            **self.static_env,
        }
        command = f"/usr/local/bin/claude -p {shlex.quote(prompt)} {self.launch_flags}"
        command, env = with_settings(command, env, self.extra_args_env, self.extra_envs_env)
        return await run_agent(sb, workdir=ctx.workdir, start_cmd=command, env=env, time_budget_sec=time_budget_sec)
