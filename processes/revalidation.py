"""Asking a kind's hook whether what was intended still holds, and what follows from its answer.

A hook is somebody else's code: it may raise, hang, or answer anything. Only a clear answer counts;
everything else leaves the operation unsent, to be asked about again later.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from settled.domain.clock import Stamp
from settled.domain.digest import same_request
from settled.domain.errors import SettledError
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.operation import deciding
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation
from settled.domain.params import Params, parse
from settled.processes.blocking import on_thread
from settled.processes.operations import Desk
from settled.processes.runner import ShutDown

MOST_HANGING = 20
"""How many hooks of this process may run at once beyond their time before no more are begun."""


class NoAnswer(Exception):
    """The hook said nothing that counts; why, in words."""


@dataclass(frozen=True)
class Revalidation:
    """Asks hooks, each on a thread of its own: one for an operation at a time, however it hangs."""

    desk: Desk
    _overdue: set[UUID] = field(default_factory=set[UUID])
    _running: set[UUID] = field(default_factory=set[UUID])
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, kind: Kind[Any], machine: Operation, stamp: Stamp) -> bool:
        """Tell whether the hook has to be asked before this claim may send."""
        if kind.revalidate is None or machine.revalidated:
            return False
        assert machine.intended_at is not None, "what is claimed was intended"
        return machine.found_absent or stamp.at - machine.intended_at >= kind.revalidate_after

    async def ask(self, kind: Kind[Any], machine: Operation) -> Any:
        """Return the hook's answer. Raises what it raises, NoAnswer and TimeoutError."""
        hook, stream, params = kind.revalidate, machine.id, self.desk.params(kind, machine)
        assert hook is not None, "it is asked only where there is one"
        with self._mutex:
            if stream in self._running:
                raise NoAnswer("an earlier question has not been answered yet")
            if len(self._overdue) >= MOST_HANGING:
                raise NoAnswer(f"{len(self._overdue)} questions hang in this worker already")
            self._running.add(stream)

        def asked() -> Any:
            try:
                return hook(params)
            finally:
                with self._mutex:
                    self._running.discard(stream)
                    self._overdue.discard(stream)

        try:
            return await on_thread(asked, seconds=kind.call_timeout.total_seconds())
        finally:
            with self._mutex:
                if stream in self._running:
                    self._overdue.add(stream)

    def conclude(self, machine: Operation, kind: Kind[Any], answer: Any, stamp: Stamp) -> None:
        """Record what follows: it holds, it is called off, or its terms have changed.

        Raises NoAnswer, and whatever is wrong with new parameters, where nothing follows.
        """
        if isinstance(answer, ShutDown):
            raise NoAnswer("the worker is stopping")
        if isinstance(answer, BaseException):
            raise NoAnswer(str(answer) or "no answer in time")
        if answer is None:
            machine.revalidated = True
        elif isinstance(answer, str) and answer:
            machine.record(ev.Cancelled, stamp, reason=f"no longer valid: {answer}")
        elif isinstance(answer, Params):
            self._change(machine, kind, answer, stamp)
        else:
            raise NoAnswer(f"it returned {answer!r:.80}, which is no answer")

    def _change(self, machine: Operation, kind: Kind[Any], given: Params, stamp: Stamp) -> None:
        keys = DerivedKeys(self.desk.secret)
        try:
            params = parse(kind.params, given)
            stored = machine.terms.digest
            key = keys.key(machine.tenant, stored.key_id)
            if same_request(stored, params, kind.mode, key):
                machine.revalidated = True
                return
            words = f"a revalidation changed its terms to: {kind.describe(params)}"
            if machine.attempts:  # what has been sent once never changes, even if it is not there
                reason = f"{words}; it was sent before, so that needs an operation of its own"
                machine.record(ev.Cancelled, stamp, reason=reason)
                return
            deciding.revise(machine, kind, params, keys, stamp, machine.provider_key, words)
        except SettledError as error:
            raise NoAnswer(f"its new terms cannot be used: {error.message}") from error
