"""Endpoints for agents that speak the protocols of OpenAI and Anthropic."""

from slime.agent.adapters.anthropic import AnthropicAdapter
from slime.agent.adapters.openai import OpenAIAdapter

__all__ = ["AnthropicAdapter", "OpenAIAdapter"]
