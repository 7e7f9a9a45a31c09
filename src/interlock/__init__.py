"""Interlock: durable state-machine workflows for Python.

A pure core decides; lanes serialize; a store remembers; a runtime acts. Everything a program needs is here;
importing it imports none of the optional dependencies, and what needs a database is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

from interlock.access import NotAuthenticated, NotPermitted
from interlock.core.breakers import Breaker
from interlock.core.codec import Codec
from interlock.core.description import MachineDescription
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.pipeline import Pipeline, PipelineEvent, PipelineState, PipelineStep, pipeline, step
from interlock.core.plan import Plan, plan
from interlock.core.policies import Budget, Classification, Dependency, Retry
from interlock.core.step import Step
from interlock.core.values import Allowed, Decision, Finding, Record, Snapshot, StepContext, StepFailure, StoredJson
from interlock.errors import (
    ConstraintViolation,
    CorruptionError,
    DefinitionError,
    DialectError,
    Fenced,
    GuardRejected,
    InterlockError,
    InternalError,
    InvalidPayload,
    InvalidTransition,
    KeyReused,
    LaneOwned,
    LeaseHeld,
    LimitReached,
    MachineMismatch,
    MissingExtra,
    MovedElsewhere,
    NonRetryable,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    Refusal,
    RequestError,
    Retryable,
    RetryAfter,
    StepError,
    TransactionError,
    UnavailableError,
    UserCodeError,
    VersionConflict,
    WaitFailed,
    WaitTimeout,
    WorkflowExists,
    WorkflowNotFound,
)
from interlock.signals import (
    AlertRaised,
    BreakerChanged,
    LoopBlocked,
    Observer,
    RedisChanged,
    ResultLate,
    Signal,
    StepAttempted,
    Subscribers,
    TransitionApplied,
    TransitionRejected,
)

if TYPE_CHECKING:
    from interlock.client.blocking import BlockingClient
    from interlock.client.client import Client
    from interlock.database.database import Database
    from interlock.hotrow.balances import Balance
    from interlock.hotrow.counters.counter import Counter
    from interlock.hotrow.parents import Parent
    from interlock.hotrow.quotas import Quota
    from interlock.hotrow.stock import Reservation, Stock
    from interlock.hotrow.tools import Tool
    from interlock.lanes.contention import HotRow
    from interlock.runtime.alerts.receivers import AlertWebhook, PagerDuty
    from interlock.runtime.blocking import BlockingEngine, BlockingLease, BlockingWorkflows
    from interlock.runtime.engine import Engine
    from interlock.runtime.leases import Lease
    from interlock.runtime.pruning import Pruned
    from interlock.runtime.resilience.views import Breakers, BreakerView
    from interlock.runtime.settings import Admission
    from interlock.runtime.transactions.blocks import BlockingTransaction, Transaction
    from interlock.runtime.typed import Workflows
    from interlock.runtime.views import (
        Compensation,
        Counts,
        DeadLetter,
        HistoryRow,
        Moved,
        Page,
        Refused,
        View,
        Workflow,
    )
    from interlock.server.app import App
    from interlock.server.asgi import asgi
    from interlock.server.webhooks import Webhook
    from interlock.sql.rows import Row
    from interlock.store.leases import Granted, Held, Leases

__all__ = [
    "Admission",
    "AlertRaised",
    "AlertWebhook",
    "Allowed",
    "App",
    "Balance",
    "BlockingClient",
    "BlockingEngine",
    "BlockingLease",
    "BlockingTransaction",
    "BlockingWorkflows",
    "Breaker",
    "BreakerChanged",
    "BreakerView",
    "Breakers",
    "Budget",
    "Classification",
    "Client",
    "Codec",
    "Compensation",
    "ConstraintViolation",
    "CorruptionError",
    "Counter",
    "Counts",
    "Database",
    "DeadLetter",
    "Decision",
    "DefinitionError",
    "Dependency",
    "DialectError",
    "Engine",
    "Event",
    "Fenced",
    "Finding",
    "Granted",
    "GuardRejected",
    "Held",
    "HistoryRow",
    "HotRow",
    "InterlockError",
    "InternalError",
    "InvalidPayload",
    "InvalidTransition",
    "KeyReused",
    "LaneOwned",
    "Lease",
    "LeaseHeld",
    "Leases",
    "LimitReached",
    "LoopBlocked",
    "Machine",
    "MachineDescription",
    "MachineMismatch",
    "MissingExtra",
    "Moved",
    "MovedElsewhere",
    "NonRetryable",
    "NotAuthenticated",
    "NotPermitted",
    "Observer",
    "OutcomeUnknown",
    "Overloaded",
    "Page",
    "PagerDuty",
    "Parent",
    "PayloadTooLarge",
    "Pipeline",
    "PipelineEvent",
    "PipelineState",
    "PipelineStep",
    "Plan",
    "Pruned",
    "Quota",
    "Record",
    "RedisChanged",
    "Refusal",
    "Refused",
    "RequestError",
    "Reservation",
    "ResultLate",
    "Retry",
    "RetryAfter",
    "Retryable",
    "Row",
    "Signal",
    "Snapshot",
    "Step",
    "StepAttempted",
    "StepContext",
    "StepError",
    "StepFailure",
    "Stock",
    "StoredJson",
    "Subscribers",
    "Tool",
    "Transaction",
    "TransactionError",
    "TransitionApplied",
    "TransitionRejected",
    "UnavailableError",
    "UserCodeError",
    "VersionConflict",
    "View",
    "WaitFailed",
    "WaitTimeout",
    "Webhook",
    "Workflow",
    "WorkflowExists",
    "WorkflowNotFound",
    "Workflows",
    "asgi",
    "pipeline",
    "plan",
    "step",
]

_BLOCKING = "interlock.runtime.blocking"
_BLOCKS = "interlock.runtime.transactions.blocks"
_LEASES = "interlock.store.leases"
_VIEWS = "interlock.runtime.views"
_LATER = {
    "Admission": "interlock.runtime.settings",
    "AlertWebhook": "interlock.runtime.alerts.receivers",
    "App": "interlock.server.app",
    "Balance": "interlock.hotrow.balances",
    "BlockingClient": "interlock.client.blocking",
    "BlockingEngine": _BLOCKING,
    "BlockingLease": _BLOCKING,
    "BlockingTransaction": _BLOCKS,
    "BlockingWorkflows": _BLOCKING,
    "BreakerView": "interlock.runtime.resilience.views",
    "Breakers": "interlock.runtime.resilience.views",
    "Client": "interlock.client.client",
    "Compensation": _VIEWS,
    "Counter": "interlock.hotrow.counters.counter",
    "Counts": _VIEWS,
    "Database": "interlock.database.database",
    "DeadLetter": _VIEWS,
    "Engine": "interlock.runtime.engine",
    "Granted": _LEASES,
    "Held": _LEASES,
    "HistoryRow": _VIEWS,
    "HotRow": "interlock.lanes.contention",
    "Lease": "interlock.runtime.leases",
    "Leases": _LEASES,
    "Moved": _VIEWS,
    "Page": _VIEWS,
    "PagerDuty": "interlock.runtime.alerts.receivers",
    "Parent": "interlock.hotrow.parents",
    "Pruned": "interlock.runtime.pruning",
    "Quota": "interlock.hotrow.quotas",
    "Refused": _VIEWS,
    "Reservation": "interlock.hotrow.stock",
    "Row": "interlock.sql.rows",
    "Stock": "interlock.hotrow.stock",
    "Tool": "interlock.hotrow.tools",
    "Transaction": _BLOCKS,
    "View": _VIEWS,
    "Webhook": "interlock.server.webhooks",
    "Workflow": _VIEWS,
    "Workflows": "interlock.runtime.typed",
    "asgi": "interlock.server.asgi",
}


def __getattr__(name: str) -> object:
    """Load a name at its first use if not every program needs it: a machine alone needs no database."""
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'interlock' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
