"""How the processes of the battery know where the simulated provider is."""

from __future__ import annotations

PROVIDER_VARIABLE = "PSP_URL"
"""The environment variable that names it, as a base URL."""
