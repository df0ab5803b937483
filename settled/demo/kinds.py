"""What the demo's workers get as --kinds. Where the provider is, is known only when it runs."""

from __future__ import annotations

import os

from settled.demo.refund import PROVIDER_VARIABLE, refund_at

refund = refund_at(os.environ[PROVIDER_VARIABLE])
