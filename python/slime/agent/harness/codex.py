"""Codex, from npm archives of this machine; it speaks to an OpenAIAdapter."""

import os
import shlex
from pathlib import Path

from slime.agent.harness.common import BaseHarness, install_npm_cli, run_agent, with_settings

__all__ = ["CodexHarness"]


class CodexHarness(BaseHarness):
    name = "codex"
    node_tarball_env = "SLIME_AGENT_NODE_TARBALL"
    cli_tarball_env = "SLIME_AGENT_CODEX_TARBALL"
    extra_args_env = "SLIME_AGENT_CODEX_EXTRA_ARGS"
    extra_envs_env = "SLIME_AGENT_CODEX_EXTRA_ENVS"
    exec_flags = "--skip-git-repo-check"

    async def install_cli(self, sb):
        await install_npm_cli(
            sb,
            node_runtime=Path(os.environ[self.node_tarball_env]),
            npm_package=Path(os.environ[self.cli_tarball_env]),
            check_cmd="codex --version",
        )

    async def write_config(self, sb, ctx):
        """The address of a provider of one's own is read from this file only."""
        provider = {
            "name": "slime",
            "base_url": f"{ctx.adapter_url}/v1",
            "env_key": "OPENAI_API_KEY",
            "wire_api": "responses",
        }
        lines = [f'model = "{ctx.model_label}"', 'model_provider = "slime"', "", "[model_providers.slime]"]
        lines += [f'{name} = "{value}"' for name, value in provider.items()]
        await sb.write_file("/home/agent/.codex/config.toml", "\n".join(lines) + "\n", user="root")
        await sb.exec("chown -R agent:agent /home/agent/.codex", user="root", check=True, timeout=60)

    async def launch_and_wait(self, sb, ctx, prompt, time_budget_sec):
        # The key travels as a bearer token: it is the session.
        env = {"OPENAI_API_KEY": ctx.session_id, "OPENAI_BASE_URL": f"{ctx.adapter_url}/v1"}
        command = f"codex exec {self.exec_flags} {shlex.quote(prompt)}"
        command, env = with_settings(command, env, self.extra_args_env, self.extra_envs_env)
        return await run_agent(sb, workdir=ctx.workdir, start_cmd=command, env=env, time_budget_sec=time_budget_sec)
