"""Providers that are reached over HTTP."""
