"""Interlock: durable state-machine workflows for Python.

A pure core decides; lanes serialize; a store remembers; a runtime acts. Everything a program needs is here;
importing it imports none of the optional dependencies, and what needs a database is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

from interlock.core.codec import Codec
from interlock.core.description import MachineDescription
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.pipeline import Pipeline, PipelineEvent, PipelineState, PipelineStep, pipeline, step
from interlock.core.plan import Plan, plan
from interlock.core.policies import Breaker, Budget, Classification, Dependency, Retry
from interlock.core.step import Step
from interlock.core.values import Allowed, Decision, Finding, Record, Snapshot, StepContext, StepFailure
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
    LimitReached,
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
    Observer,
    ResultLate,
    Signal,
    StepAttempted,
    Subscribers,
    TransitionApplied,
    TransitionRejected,
)

if TYPE_CHECKING:
    from interlock.database.database import Database

__all__ = [
    "AlertRaised",
    "Allowed",
    "Breaker",
    "BreakerChanged",
    "Budget",
    "Classification",
    "Codec",
    "ConstraintViolation",
    "CorruptionError",
    "Database",
    "Decision",
    "DefinitionError",
    "Dependency",
    "DialectError",
    "Event",
    "Fenced",
    "Finding",
    "GuardRejected",
    "InterlockError",
    "InternalError",
    "InvalidPayload",
    "InvalidTransition",
    "KeyReused",
    "LaneOwned",
    "LimitReached",
    "Machine",
    "MachineDescription",
    "MissingExtra",
    "MovedElsewhere",
    "NonRetryable",
    "Observer",
    "OutcomeUnknown",
    "Overloaded",
    "PayloadTooLarge",
    "Pipeline",
    "PipelineEvent",
    "PipelineState",
    "PipelineStep",
    "Plan",
    "Record",
    "Refusal",
    "RequestError",
    "ResultLate",
    "Retry",
    "RetryAfter",
    "Retryable",
    "Signal",
    "Snapshot",
    "Step",
    "StepAttempted",
    "StepContext",
    "StepError",
    "StepFailure",
    "Subscribers",
    "TransactionError",
    "TransitionApplied",
    "TransitionRejected",
    "UnavailableError",
    "UserCodeError",
    "VersionConflict",
    "WaitFailed",
    "WaitTimeout",
    "WorkflowExists",
    "WorkflowNotFound",
    "pipeline",
    "plan",
    "step",
]

_LATER = {"Database": "interlock.database.database"}


def __getattr__(name: str) -> object:
    """Load what is not needed by every program when it is first used: a machine alone needs no database."""
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'interlock' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
