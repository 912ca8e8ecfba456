"""Checks of a user's own model: how its quantities grow with width and depth, with a verdict."""
