"""How tests and demonstrations start a simulated provider and talk to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from settled.infrastructure.simulator.admin import Wait
from settled.infrastructure.simulator.plan import Conduct, Fault, Plan
from settled.infrastructure.simulator.record import Effect, SimulatorLog

_ADMIN_SECONDS = 30.0
_STOP_SECONDS = 10.0


class SimulatorClient:
    """Talks to the admin side of a running simulator.

    Raises `httpx2.HTTPStatusError` for what the simulator refuses.
    """

    def __init__(self, url: str, *, pid: int | None = None) -> None:
        self.url = url
        """The base URL, such as `http://127.0.0.1:40123`."""
        self.pid = pid
        self._client = httpx2.Client(base_url=url, trust_env=False, timeout=_ADMIN_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the simulator, which goes on."""
        self._client.close()

    @property
    def refunds_url(self) -> str:
        """Where refunds are requested."""
        return f"{self.url}/v1/refunds"

    def conduct(self, **switches: Any) -> None:
        """Change how the provider behaves as a rule: fields of `Conduct`; others stay."""
        self._change(Plan(conduct=Conduct(**switches)))

    def fault(self, **switches: Any) -> None:
        """Plan a fault: fields of `Fault`. It waits behind those that were planned before."""
        self._change(Plan(faults=(Fault(**switches),)))

    def clear_faults(self) -> None:
        """Drop the faults that have not struck yet."""
        self._change(Plan(clear_faults=True))

    def log(self) -> SimulatorLog:
        """Return what the provider saw and did since the last reset."""
        return SimulatorLog.model_validate_json(self._get("/admin/log").content)

    def effects(self) -> list[Effect]:
        """Return the effects that the provider holds, with their present status."""
        return list(self.log().effects)

    def wait(self, *, seconds: float = 10.0, key: str | None = None, **counts: int) -> SimulatorLog:
        """Return the log once it holds so much: fields of `Wait`, such as `calls=2` or `held=1`.

        Raises `TimeoutError`, which names what is there.
        """
        wait = Wait(seconds=seconds, key=key, **counts)
        query = {name: str(value) for name, value in wait.model_dump(exclude_none=True).items()}
        response = self._client.get("/admin/wait", params=query, timeout=seconds + _ADMIN_SECONDS)
        if response.status_code == 408:
            raise TimeoutError(f"waited {seconds} s for {counts}; the log is {response.text}")
        response.raise_for_status()
        return SimulatorLog.model_validate_json(response.content)

    def release(self, key: str | None = None) -> int:
        """Let held requests go on, all or those with one key; return how many."""
        return int(self._post("/admin/release", {"key": key})["released"])

    def advance_clock(self, seconds: float) -> None:
        """Move the provider's clock."""
        self._post("/admin/clock", {"advance_seconds": seconds})

    def settle(self, effect: str, status: str = "succeeded") -> None:
        """Give an effect its final status (`succeeded`, `failed`), or reverse it (`reversed`)."""
        self._post("/admin/settle", {"effect": effect, "status": status})

    def send_webhooks(self, url: str, *, effect: str | None = None, **switches: Any) -> int:
        """Send an event for each effect, or for one, now: fields of `Webhooks`."""
        webhooks = {"url": url, **switches}
        return int(self._post("/admin/webhooks", {"webhooks": webhooks, "effect": effect})["sent"])

    def reset(self) -> None:
        """Forget everything and return to the switches of the start."""
        self._post("/admin/reset", {})

    def _change(self, plan: Plan) -> None:
        self._post("/admin/plan", plan.model_dump(mode="json", exclude_unset=True))

    def _get(self, path: str) -> httpx2.Response:
        return self._client.get(path).raise_for_status()

    def _post(self, path: str, body: object) -> Any:
        return self._client.post(path, json=body).raise_for_status().json()


@contextmanager
def running_simulator(*, log: Path | None = None, **switches: Any) -> Generator[SimulatorClient]:
    """Run a simulator as a process of its own; `switches` are fields of `Conduct`.

    It is ready when the block begins and gone when the block ends, or when this process dies:
    it reads its standard input, which ends with us.
    """
    plan = Plan(conduct=Conduct(**switches)).model_dump_json(exclude_unset=True)
    command = [sys.executable, "-m", "settled.infrastructure.simulator", "--plan", plan]
    if log is not None:
        command += ["--log", str(log)]
    process = subprocess.Popen(
        [*command, "--until-stdin-ends"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        try:
            ready = process.stdout.readline()
            if not ready:
                raise RuntimeError(f"the simulator ended with status {process.wait()}")
            said = json.loads(ready)
            with SimulatorClient(said["url"], pid=said["pid"]) as client:
                yield client
        finally:
            process.stdin.close()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
