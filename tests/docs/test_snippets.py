"""Every Python snippet of the README and the docs runs: readers copy them before they read on.

The snippets of one document are one program, run in an empty folder as a reader would run it. Only
the addresses of the provider and of the server are put in.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from settled.infrastructure.simulator.client import SimulatorClient

ROOT = Path(__file__).resolve().parents[2]
PROVIDER = "https://psp.example"
SERVER = "postgresql://shop@db.example/shop"

VIEWED = """\
refund-request-9 ready Refund 30.00 USD for order-79 | a worker sends it
refund ready 2
0 unknown
"""
DECIDED = """\
policy refund 1
Refund 300.00 USD for order-72 ('support-lead',) 1 ['amount', 'order']
grace proposed or revised Refund 30.00 USD for order-72: somebody else must approve.
succeeded alan role support-lead ('ticket-81', 'photo-3')
the first decision stands: approved by alan
proposed 2 Refund 20.00 USD for order-73
{'amount': '20.00 USD'}
"""
RAN = """\
waiting for a decision on version 1 of refund refund-request-9
completed | succeeded re_1, satisfied: yes | {'tokens': 9300, 'calls': 18}
"""
PRINTED = {
    "README.md": "succeeded re_1\n",
    "docs/approvals.md": DECIDED,
    "docs/projections.md": VIEWED,
    "docs/runs.md": RAN,
    "docs/versions.md": "['acme/refund@1/stripe', 'acme/refund@2/stripe']\n",
}
"""What a document's snippets print, where it says so or leaves no doubt."""


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): blocks(path.read_text(encoding="utf-8"))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
WITH_SNIPPETS = [name for name, found in DOCUMENTS.items() if found]


def test_there_are_snippets() -> None:
    """A pattern that matches nothing would make every document hold."""
    assert {"README.md", "docs/getting-started.md"} <= set(WITH_SNIPPETS)


@pytest.mark.parametrize("name", WITH_SNIPPETS)
def test_document(name: str, tmp_path: Path, simulator: SimulatorClient, postgres_url: str) -> None:
    """The document's program ends without an error, and prints what it is said to print."""
    text = "\n".join(DOCUMENTS[name])
    text = text.replace(PROVIDER, simulator.url).replace(SERVER, postgres_url)
    (tmp_path / "snippets.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "snippets.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "SETTLED_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if name in PRINTED:
        assert PRINTED[name] in done.stdout  # beside the log of the embedded worker
