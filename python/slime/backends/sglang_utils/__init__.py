"""Talking to the engines' servers."""
