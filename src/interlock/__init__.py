"""Interlock: durable state-machine workflows for Python.

A pure core decides; lanes serialize; a store remembers; an engine acts. Everything a program needs is here;
importing it imports none of the optional dependencies, and what needs a database is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

from interlock import import_aliases
from interlock.core.codec import Codec
from interlock.core.describe import MachineDescription
from interlock.core.events import Event
from interlock.core.machine import Machine, Step
from interlock.core.pipeline import Pipeline, PipelineEvent, PipelineState, PipelineStep, pipeline, step
from interlock.core.plan import Plan, plan
from interlock.core.policies import Breaker, Budget, Classification, Dependency, Retry
from interlock.core.values import (
    Allowed,
    Child,
    ChildResult,
    Decision,
    Family,
    Finding,
    Record,
    Send,
    Snapshot,
    StepContext,
    StepFailure,
    StoredJson,
)
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
    NotAuthenticated,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    Refusal,
    RequestError,
    Retryable,
    RetryAfter,
    StepError,
    TaskClaimed,
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
    from interlock.client.client import BlockingClient, Client
    from interlock.database.database import Database
    from interlock.engine.alerts.receivers import AlertWebhook, PagerDuty
    from interlock.engine.blocking_engine import BlockingEngine, BlockingLease, BlockingWorkflows
    from interlock.engine.caller_transactions import BlockingTransaction, Transaction
    from interlock.engine.dependencies.breakers import Breakers, BreakerView
    from interlock.engine.engine import Engine, Workflows
    from interlock.engine.engine_settings import Admission
    from interlock.engine.leases import Lease
    from interlock.engine.operators.attempts import Attempt, AttemptPage
    from interlock.engine.operators.bulk import Bulk, BulkRequest
    from interlock.engine.operators.bulk_runs import BulkPlan, BulkRun, BulkRuns
    from interlock.engine.operators.retention import Pruned
    from interlock.engine.operators.tasks import Task, TaskPage
    from interlock.engine.operators.why import Why
    from interlock.engine.schedules import Schedule, Schedules, ScheduleView
    from interlock.engine.views import (
        Compensation,
        Counts,
        DeadLetter,
        HistoryRow,
        Moved,
        Page,
        Refused,
        Rewind,
        RunToUndo,
        Timer,
        View,
        Workflow,
    )
    from interlock.hotrow.balances import Balance
    from interlock.hotrow.counters import Counter
    from interlock.hotrow.parents import Parent
    from interlock.hotrow.stock import Reservation, Stock
    from interlock.hotrow.tool_declarations import Tool
    from interlock.hotrow.window_quotas import Quota
    from interlock.lanes.hot_rows import HotRow
    from interlock.server.app_declaration import App, Webhook
    from interlock.server.asgi import asgi
    from interlock.sql.stored_values import Row
    from interlock.store.protocol import Granted, Held, Leases

__all__ = [
    "Admission",
    "AlertRaised",
    "AlertWebhook",
    "Allowed",
    "App",
    "Attempt",
    "AttemptPage",
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
    "Bulk",
    "BulkPlan",
    "BulkRequest",
    "BulkRun",
    "BulkRuns",
    "Child",
    "ChildResult",
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
    "Family",
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
    "Rewind",
    "Row",
    "RunToUndo",
    "Schedule",
    "ScheduleView",
    "Schedules",
    "Send",
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
    "Task",
    "TaskClaimed",
    "TaskPage",
    "Timer",
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
    "Why",
    "Workflow",
    "WorkflowExists",
    "WorkflowNotFound",
    "Workflows",
    "asgi",
    "pipeline",
    "plan",
    "step",
]

_LATER_BY_MODULE = {
    "interlock.client.client": ("BlockingClient", "Client"),
    "interlock.database.database": ("Database",),
    "interlock.engine.alerts.receivers": ("AlertWebhook", "PagerDuty"),
    "interlock.engine.blocking_engine": ("BlockingEngine", "BlockingLease", "BlockingWorkflows"),
    "interlock.engine.operators.attempts": ("Attempt", "AttemptPage"),
    "interlock.engine.dependencies.breakers": ("BreakerView", "Breakers"),
    "interlock.engine.engine": ("Engine", "Workflows"),
    "interlock.engine.leases": ("Lease",),
    "interlock.engine.operators.bulk": ("Bulk", "BulkRequest"),
    "interlock.engine.operators.bulk_runs": ("BulkPlan", "BulkRun", "BulkRuns"),
    "interlock.engine.operators.retention": ("Pruned",),
    "interlock.engine.operators.tasks": ("Task", "TaskPage"),
    "interlock.engine.operators.why": ("Why",),
    "interlock.engine.schedules": ("Schedule", "ScheduleView", "Schedules"),
    "interlock.engine.engine_settings": ("Admission",),
    "interlock.engine.caller_transactions": ("BlockingTransaction", "Transaction"),
    "interlock.engine.views": (
        "Compensation",
        "Counts",
        "DeadLetter",
        "HistoryRow",
        "Moved",
        "Page",
        "Refused",
        "Rewind",
        "RunToUndo",
        "Timer",
        "View",
        "Workflow",
    ),
    "interlock.hotrow.balances": ("Balance",),
    "interlock.hotrow.counters": ("Counter",),
    "interlock.hotrow.parents": ("Parent",),
    "interlock.hotrow.stock": ("Reservation", "Stock"),
    "interlock.hotrow.tool_declarations": ("Tool",),
    "interlock.hotrow.window_quotas": ("Quota",),
    "interlock.lanes.hot_rows": ("HotRow",),
    "interlock.server.app_declaration": ("App", "Webhook"),
    "interlock.server.asgi": ("asgi",),
    "interlock.sql.stored_values": ("Row",),
    "interlock.store.protocol": ("Granted", "Held", "Leases"),
}
_LATER = {name: module for module, names in _LATER_BY_MODULE.items() for name in names}

import_aliases.install()


def __getattr__(name: str) -> object:
    """Load a name at its first use if not every program needs it: a machine alone needs no database."""
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'interlock' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
