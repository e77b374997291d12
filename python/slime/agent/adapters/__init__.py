"""Endpoints for agents that speak the protocols of OpenAI and Anthropic."""

from slime.agent.adapters.anthropic import AnthropicAdapter
from slime.agent.adapters.openai import OpenAIAdapter
from slime.agent.adapters.responses import ResponsesAdapter

__all__ = ["AnthropicAdapter", "OpenAIAdapter", "ResponsesAdapter"]
