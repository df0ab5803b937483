"""The job with LangGraph: a graph of one node with a checkpointer, one thread id an operation.

`python -m settled.bench.peer_langgraph URL COUNT THREADS`. With durability "sync", which alone
writes the checkpoint before the node runs. There is no queue: the caller performs.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from importlib import import_module
from typing import Any, TypedDict

from settled.bench.processes import say, serve
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path

graphs: Any = import_module("langgraph.graph")  # installed with the extra `bench` alone


class State(TypedDict, total=False):
    """What the graph hands on."""

    key: str
    amount: int
    receipt: dict[str, Any]


def refund(state: State) -> State:
    """Perform the refund."""
    assert "key" in state and "amount" in state
    return {"receipt": {"id": f"re_{state['key']}", "amount": state["amount"]}}


def _checkpointer(url: str, threads: int, stack: ExitStack) -> Any:
    if is_sqlite(url):
        import sqlite3

        module = import_module("langgraph.checkpoint.sqlite")
        connection = sqlite3.connect(sqlite_path(url), check_same_thread=False)
        return module.SqliteSaver(stack.enter_context(closing(connection)))
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    module = import_module("langgraph.checkpoint.postgres")
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: Any = ConnectionPool(url, min_size=threads, max_size=threads, kwargs=settings, open=True)
    return module.PostgresSaver(stack.enter_context(pool))


def main(url: str, count: str, threads: str) -> None:
    """Perform so many operations from so many threads."""
    with ExitStack() as stack:
        checkpointer = _checkpointer(url, int(threads), stack)
        checkpointer.setup()
        graph: Any = graphs.StateGraph(State)
        graph.add_node("refund", refund)
        graph.add_edge(graphs.START, "refund")
        graph.add_edge("refund", graphs.END)
        compiled = graph.compile(checkpointer=checkpointer)

        def perform(key: str) -> None:
            configuration = {"configurable": {"thread_id": key}}
            compiled.invoke({"key": key, "amount": 3_000}, configuration, durability="sync")

        for number in range(10):
            perform(f"first-{number}")
        pool = stack.enter_context(ThreadPoolExecutor(int(threads)))
        serve()
        begun = elapsed_seconds()
        list(pool.map(perform, [f"refund-{number}" for number in range(int(count))]))
        say({"seconds": elapsed_seconds() - begun})


if __name__ == "__main__":
    main(*sys.argv[1:])
