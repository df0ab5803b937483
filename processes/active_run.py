"""A run in the hands of its owner: what the function of a run kind is given.

Each step is recorded before the next one begins, under the owner's epoch and the fence of its
worker's membership. When the run belongs to somebody else by now, the step is refused and the
function is ended there, before anything that depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol, TypeVar

from settled.domain.clock import Stamp
from settled.domain.errors import (
    BudgetExceeded,
    CallFailed,
    DeadlineOver,
    InvalidInput,
    NotPossible,
    SettledError,
)
from settled.domain.identity import Identity, Principal
from settled.domain.operation.operation import Operation
from settled.domain.run import events as ev
from settled.domain.run.kind import RunKind
from settled.domain.run.records import (
    Bound,
    CallRecord,
    OnRecovery,
    Sort,
    Usage,
    Wait,
    add,
    checkpoint,
    digest_of,
    read_value,
    text_of,
)
from settled.domain.run.recovery import Recovered, recovered
from settled.domain.run.run import SESSION, TURN, Run
from settled.processes.faults import FaultPoint, reach
from settled.processes.ledger import ForeignReference, Ledger
from settled.processes.owned_run import GivenUp, OwnedRun, Parked

T = TypeVar("T")
Ask = Callable[[], Awaitable[Any]]


class OperationSnapshot(Protocol):
    """What a run reads of an operation that it is bound to."""

    @property
    def state(self) -> str:
        """Where it stands."""
        ...

    @property
    def settled(self) -> bool:
        """Whether that is final."""
        ...

    @property
    def reference(self) -> str | None:
        """The provider's name for the effect."""
        ...

    @property
    def proposal_version(self) -> int:
        """Which version of a proposal waits for a decision, or was decided."""
        ...


class Acts(Protocol):
    """The way to operations, as a service has it: by the business's identity."""

    def begin(
        self, kind: str, operation_id: str, params: Any, by: Principal, origin: Mapping[str, str]
    ) -> Any:
        """Intend an operation, or propose it where its kind needs a decision; or find it."""
        ...

    def get(self, kind: str, operation_id: str, by: Principal) -> Any:
        """Return an operation as it stands. Raises NotFound."""
        ...


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model answered, and what that used; without it, all that was reserved counts."""

    value: Any
    used: Usage


class ActiveRun(OwnedRun):
    """What a run can do. Its `await`s may be many at once; each call has a name of its own."""

    def __init__(
        self, run: Run, kind: RunKind, ledger: Ledger, acts: Acts, membership: int, source: Run
    ) -> None:
        """`source` is the run whose recorded calls answer: another one in a historical replay."""
        super().__init__(run, ledger, membership)
        self._kind = kind
        self._acts = acts
        self._source = source
        self._by = Principal(run.tenant, run.kind)
        self._turn: str | None = None
        self._in_flight: set[str] = set()

    # What is read.

    @property
    def tenant(self) -> str:
        """Whose run it is."""
        return self._run.tenant

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self._run.run_id

    @property
    def epoch(self) -> int:
        """The number under which this worker owns the run; it counts the owners it has had."""
        return self._epoch

    @property
    def given(self) -> Any:
        """What the run was started with."""
        return read_value(self._run.started.input)

    @property
    def state(self) -> Any:
        """The state of the last checkpoint; None before the first."""
        return None if self._run.checkpoint is None else self._run.checkpoint.value

    @property
    def left(self) -> Mapping[str, int]:
        """What is left of each budget: tokens, calls, and money in its smallest unit."""
        return self._run.left

    @property
    def until(self) -> datetime:
        """When the session ends."""
        return self._run.started.session_until

    # What is done.

    async def model(
        self,
        call_id: str,
        ask: Ask,
        *,
        on_recovery: OnRecovery | str,
        request: Any = None,
        reserve: Usage | None = None,
        within: timedelta | None = None,
        name: str = "model",
    ) -> Any:
        """Ask a model, and return what it answered, or what it answered before.

        `ask` returns a JSON value or a `ModelReply`. `request` is what is asked: the same name with
        another request is refused. `reserve` is the most that it may use. Raises CallFailed,
        DeadlineOver, BudgetExceeded, TooLarge; each is recorded.
        """
        return await self._call(
            Sort.MODEL, call_id, ask, name, on_recovery, request, reserve, within
        )

    async def lookup(
        self,
        call_id: str,
        look: Ask,
        *,
        on_recovery: OnRecovery | str,
        request: Any = None,
        within: timedelta | None = None,
        name: str = "lookup",
    ) -> Any:
        """Look something up whose answer depends on the time; the time is recorded with it."""
        return await self._call(
            Sort.LOOKUP, call_id, look, name, on_recovery, request, None, within
        )

    async def tool(
        self,
        call_id: str,
        use: Ask,
        *,
        on_recovery: OnRecovery | str,
        request: Any = None,
        within: timedelta | None = None,
        name: str = "tool",
        model_call_id: str | None = None,
        rpc_id: str | None = None,
    ) -> Any:
        """Call a tool that has no effect outside. What has one is an `operation`."""
        ids = {"model_call_id": model_call_id, "rpc_id": rpc_id}
        return await self._call(
            Sort.TOOL, call_id, use, name, on_recovery, request, None, within, ids
        )

    async def operation(
        self,
        call_id: str,
        kind: Any,
        operation_id: str,
        params: Any,
        *,
        until: str = "settled",
        within: timedelta | None = None,
        model_call_id: str | None = None,
        rpc_id: str | None = None,
    ) -> Any:
        """Have something done outside, once, and return the operation as it then stands.

        The operation is named by the business: another call id, another run, another attempt with
        the same identity is the same operation. Waits until it is settled, or with
        `until="decided"` only until somebody has decided on it. `model_call_id` and `rpc_id` keep
        the model's and the protocol's own names of the call beside it.

        Raises DeadlineOver when the call's time is over; the operation goes on without it. Raises
        what intending raises, such as ParametersChanged and InvalidParams.
        """
        kind_name = kind if isinstance(kind, str) else kind.name
        identity = Identity(self.tenant, kind_name, operation_id)
        if self._source is not self._run:
            return await asyncio.to_thread(self._acts.get, kind_name, operation_id, self._by)
        ids = {"model_call_id": model_call_id, "rpc_id": rpc_id}
        call = await self._bind(call_id, identity, within, ids)
        origin = {"run": self.run_id, "call": call_id}
        origin |= {name: value for name, value in ids.items() if value is not None}
        try:
            found = await asyncio.to_thread(
                self._acts.begin, kind_name, operation_id, params, self._by, origin
            )
        except (InvalidInput, NotPossible) as error:
            reason = error.message
            await self._do(lambda run, at: self._record_failure(run, at, call_id, reason))
            raise
        return await self._followed(call, found, until)

    async def input(
        self, name: str, *, within: timedelta | None = None, rpc_id: str | None = None
    ) -> Any:
        """Wait for somebody to answer, and return the answer. It may have come long before.

        `rpc_id` is the name under which another protocol asks. Raises DeadlineOver.
        """
        if name in self._source.inputs:
            return read_value(self._source.inputs[name])
        await self._park("input", name, within, rpc_id=rpc_id)

    async def sleep(self, name: str, length: timedelta) -> None:
        """Wait until `length` after this was first reached; a worker is not kept meanwhile."""
        self._must_go_on()
        before = self._source.waits.get(name)
        now = self._ledger.clock.now()
        at = before.at if before is not None and before.at is not None else now + length
        if now < at:
            await self._park("timer", name, None, at=at)

    @asynccontextmanager
    async def turn(self, name: str, within: timedelta | None = None) -> AsyncGenerator[None]:
        """Bound what is called inside; a turn that was begun before keeps its deadline."""
        length = within or self._kind.turn
        await self._do(lambda run, at: run.begin_turn(at, name, length))
        before, self._turn = self._turn, name
        try:
            yield
        finally:
            self._turn = before

    async def mark(
        self, boundary: str, state: Any, references: Mapping[str, str] | None = None
    ) -> None:
        """Mark a checkpoint of at most 64 KiB; `references` name what is kept elsewhere.

        Raises TooLarge, and InvalidInput for what is no boundary.
        """
        marked = checkpoint(boundary, state, references or {})

        def command(run: Run, stamp: Stamp) -> None:
            if run.checkpoint != marked:
                run.record(
                    ev.CheckpointMarked,
                    stamp,
                    boundary=boundary,
                    size_bytes=marked.size_bytes,
                    checkpoint=marked,
                )

        await self._do(command)

    def fail(self, reason: str) -> NoReturn:
        """End the run as failed, such as for a model that refuses: nothing is tried again."""
        raise GivenUp(reason)

    # Calls.

    async def _call(
        self,
        sort: Sort,
        call_id: str,
        ask: Ask,
        name: str,
        on_recovery: OnRecovery | str,
        request: Any,
        reserve: Usage | None,
        within: timedelta | None,
        ids: Mapping[str, str | None] | None = None,
    ) -> Any:
        policy = OnRecovery(on_recovery)
        digest = digest_of(text_of("The request", request))
        call = self._source.calls.get(call_id)
        if call is not None and (call.sort, call.digest) != (sort, digest):
            raise InvalidInput(
                f"The call {call_id} was made before with another request.",
                hint="Give another request another call id.",
            )
        match self._recovered(call, policy):
            case Recovered.RECORDED:
                assert call is not None, "what is recorded is there"
                return self._answer(call)
            case Recovered.LOST:
                await self._do(lambda run, at: self._record_failure(run, at, call_id, lost=True))
                raise CallFailed(
                    f"The call {call_id} was made by an owner that is gone: its answer is lost.",
                    hint='It is not made again; on_recovery="retry" would.',
                )
            case Recovered.ASK:
                if call_id in self._in_flight:
                    raise InvalidInput(f"The call {call_id} is in flight already.")
                self._in_flight.add(call_id)
                try:
                    await self._request(
                        sort, call_id, name, policy, digest, reserve, within, ids or {}
                    )
                    return await self._asked(sort, call_id, ask)
                finally:
                    self._in_flight.discard(call_id)

    def _recovered(self, call: CallRecord | None, policy: OnRecovery) -> Recovered:
        self._must_go_on()
        if self._source is self._run:
            return recovered(call, policy, self._epoch)
        if call is None or call.state == "pending":
            raise NotPossible(
                "A historical replay answers from records alone, and has none for this call.",
                hint="Fork the run to go on from it.",
            )
        return Recovered.RECORDED

    def _answer(self, call: CallRecord) -> Any:
        if call.state == "returned":
            return read_value(call.result)
        if call.state == "timed_out":
            raise _over(call.level, call.call_id, call.until)
        raise CallFailed(f"The call {call.call_id} failed: {call.reason}.")

    async def _request(
        self,
        sort: Sort,
        call_id: str,
        name: str,
        policy: OnRecovery,
        digest: str,
        reserve: Usage | None,
        within: timedelta | None,
        ids: Mapping[str, str | None],
        bind: Callable[[Run, Stamp], None] | None = None,
    ) -> None:
        """Record that a call is about to be made; raises BudgetExceeded or DeadlineOver."""

        def command(run: Run, stamp: Stamp) -> Exception | None:
            before = run.calls.get(call_id)
            deadline, level = run.deadline(stamp.at, within or self._kind.call, self._turn)
            until = deadline.at
            if before is not None and before.state != "returned":
                until, level = before.until, before.level  # what is left of it, and no more
            if stamp.at >= until:
                if before is not None and before.state == "pending":
                    run.time_out(stamp, before)
                else:
                    run.pass_deadline(stamp, level, call_id, until)
                return _over(level, call_id, until)
            lack = run.request(
                stamp,
                sort=sort,
                call_id=call_id,
                called=name,
                on_recovery=policy,
                digest=digest,
                until=until,
                level=level,
                reserve=reserve or Usage(),
                **ids,
            )
            if lack is not None:
                return BudgetExceeded(
                    f"{call_id} needs {lack.wanted} {lack.unit}, and {lack.left} are left.",
                    hint="The refusal is recorded. A run that replaces this one has no more.",
                )
            if bind is not None:
                bind(run, stamp)
            return None

        refusal = await self._do(command)
        if refusal is not None:
            raise refusal

    async def _asked(self, sort: Sort, call_id: str, ask: Ask) -> Any:
        """Make a call that was recorded, and record what it came to."""
        call = self._run.calls[call_id]
        reach(FaultPoint.BEFORE_CALL, call_id)
        asked_at = self._ledger.clock.now()
        limit = asyncio.timeout(max((call.until - asked_at).total_seconds(), 0))
        try:
            async with limit:
                answer = await ask()
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                await self._do(lambda run, at: run.time_out(at, call))
                raise _over(call.level, call_id, call.until) from None
            reason = f"{type(error).__name__}: {error}"[:500]
            await self._do(lambda run, at: self._record_failure(run, at, call_id, reason))
            raise CallFailed(f"The call {call_id} failed: {reason}.") from error
        reach(FaultPoint.AFTER_CALL, call_id)
        reply = answer if isinstance(answer, ModelReply) else None
        used = dict(self._run.reserved.get(call_id, {}))
        if reply is not None:
            used = add(reply.used.amounts, {"calls": 1})
        try:
            text = text_of(f"What {call_id} returned", reply.value if reply else answer)
        except SettledError as error:
            reason = error.message
            await self._do(lambda run, at: self._record_failure(run, at, call_id, reason, used))
            raise
        as_of = asked_at if sort is Sort.LOOKUP else None
        await self._do(lambda run, at: _record_return(run, at, sort, call_id, text, used, as_of))
        return read_value(text)

    @staticmethod
    def _record_failure(
        run: Run,
        stamp: Stamp,
        call_id: str,
        reason: str = "its answer is lost",
        used: Mapping[str, int] | None = None,
        *,
        lost: bool = False,
    ) -> None:
        taken = dict(run.reserved.get(call_id, {})) if used is None else dict(used)
        run.record(ev.CallFailed, stamp, call_id=call_id, lost=lost, reason=reason, used=taken)

    # Operations, and waiting.

    async def _bind(
        self,
        call_id: str,
        identity: Identity,
        within: timedelta | None,
        ids: Mapping[str, str | None],
    ) -> CallRecord:
        """Record which operation a call stands for, before the operation can exist by it."""
        call = self._run.calls.get(call_id)
        digest = digest_of(str(identity))
        if call is not None and call.digest != digest:
            raise InvalidInput(
                f"The call {call_id} stands for another operation.",
                hint="Give another operation another call id.",
            )
        self._must_go_on()
        if call is not None and call.state == "timed_out":
            raise _over(call.level, call_id, call.until)
        if call is None or call.state == "failed":
            length = within or self._run.started.session_until - self._ledger.clock.now()
            while not await self._bound(call_id, identity, digest, length, ids):
                pass  # another run had the place in the same moment: the next one is free
        return self._run.calls[call_id]

    async def _bound(
        self,
        call_id: str,
        identity: Identity,
        digest: str,
        within: timedelta,
        ids: Mapping[str, str | None],
    ) -> bool:
        stream = Operation.stream(identity)
        bound = Bound(kind=identity.kind, operation_id=identity.operation_id, stream=stream)
        place = await asyncio.to_thread(self._place, bound)

        def bind(run: Run, stamp: Stamp) -> None:
            run.record(ev.ToolCallBound, stamp, call_id=call_id, operation=bound, place=place)

        policy = OnRecovery.RETRY
        try:
            await self._request(
                Sort.TOOL, call_id, identity.kind, policy, digest, None, within, ids, bind
            )
        except ForeignReference:
            return False
        return True

    def _place(self, bound: Bound) -> int | None:
        """Return the first free place among those who are told; None where this run has one."""
        if bound.stream in self._run.bound:
            return None
        place = 1
        while True:
            name = ev.place_of(bound, place)
            taken = self._ledger.journal.referenced(self.tenant, ev.WAITERS, name)
            if taken is None:
                return place
            place += 1

    async def _followed(self, call: CallRecord, found: OperationSnapshot, until: str) -> Any:
        """Return the operation once it is so far; park before."""
        proposed = found.state == "proposed"
        if found.settled or (until == "decided" and not proposed):
            if found.settled and self._run.calls[call.call_id].state == "pending":
                text = text_of("It", {"state": found.state, "reference": found.reference})
                await self._do(
                    lambda run, at: _record_return(
                        run, at, Sort.TOOL, call.call_id, text, {"calls": 1}
                    )
                )
            return found
        self._must_go_on()
        now = self._ledger.clock.now()
        if now >= call.until:
            await self._do(lambda run, at: run.time_out(at, call))
            raise _over(call.level, call.call_id, call.until)
        raise Parked(
            Wait(
                on="approval" if proposed else "operation",
                key=call.call_id,
                until=call.until,
                level=call.level,
                operation=call.operation,
                proposal_version=found.proposal_version,
                call_id=call.call_id,
                rpc_id=call.rpc_id,
            )
        )

    async def _park(
        self,
        on: str,
        key: str,
        within: timedelta | None,
        *,
        at: datetime | None = None,
        rpc_id: str | None = None,
    ) -> NoReturn:
        """Wait, or raise DeadlineOver where a wait of this name ran out."""
        self._must_go_on()
        if self._source is not self._run:
            raise NotPossible("A historical replay waits for nothing, and nothing is recorded.")
        before = self._run.waits.get(key)
        if before is not None and (before.on, before.level) != (on, before.level):
            raise InvalidInput(f"{key} is the name of another wait.", hint="Choose another.")
        now = self._ledger.clock.now()
        deadline, level = self._run.deadline(now, within, self._turn)
        until = deadline.at
        if before is not None:
            until, level, at = before.until, before.level, before.at
        if (level, key) in self._run.passed or (before is not None and now >= until):
            await self._do(lambda run, stamp: run.pass_deadline(stamp, level, key, until))
            raise _over(level, key, until)
        raise Parked(Wait(on=on, key=key, until=until, level=level, at=at, rpc_id=rpc_id))


def _record_return(
    run: Run,
    stamp: Stamp,
    sort: Sort,
    call_id: str,
    text: str,
    used: Mapping[str, int],
    as_of: datetime | None = None,
) -> None:
    """Record what came back. A lookup is as of the moment at which it was asked, at the least."""
    more = {} if as_of is None else {"as_of": as_of}
    run.record(ev.RETURNED[sort], stamp, call_id=call_id, result=text, used=dict(used), **more)


def _over(level: str, subject: str, until: datetime) -> DeadlineOver:
    whose = {SESSION: "the session's", TURN: "its turn's"}.get(level, "its")
    return DeadlineOver(
        f"{subject} has not ended by {whose} deadline, {until.isoformat()}.",
        hint="That is recorded. An operation that it stands for goes on by itself.",
    )
