"""Three machines to look at: an order, a checkout that unwinds, and one with everything that is hard to draw.

They are written by hand as descriptions, so that the diagrams are tested without the machines that make them.
"""

from interlock.core.describe import (
    MachineDescription,
    StateDescription,
    StepDescription,
    TimerDescription,
    TransitionDescription,
)

State = StateDescription
Transition = TransitionDescription


def step(name: str, timeout_s: float = 5) -> StepDescription:
    return StepDescription(name=name, timeout_s=timeout_s, attempts=3)


def machine(
    name: str, states: tuple[StateDescription, ...], transitions: tuple[TransitionDescription, ...]
) -> MachineDescription:
    return MachineDescription(
        name=name, version=1, states=states, transitions=transitions, events=(), context_schema={}
    )


ORDER = machine(
    "order",
    (
        State(
            name="pending",
            initial=True,
            timers=(TimerDescription(event="CANCEL", after_s=86400, policy="deadline"),),
            effects=("email_receipt",),
        ),
        State(name="payment_processing", step=step("take_payment", 4)),
        State(name="paid", step=step("reserve_inventory", 5)),
        State(name="payment_failed"),
        State(name="fulfillment_pending", dwell_max_s=172800),
        State(name="shipped"),
        State(name="delivered", resting=True),
        State(name="cancel_requested", step=step("confirm_cancel", 10)),
        State(name="cancelled", final=True),
        State(name="refund_pending", step=step("refund", 30)),
        State(name="refunded", final=True),
    ),
    (
        Transition(
            source="pending",
            event="SUBMIT",
            target="payment_processing",
            guard="has_items",
            guard_reason="An order needs at least one item.",
            action="freeze_prices",
        ),
        Transition(source="payment_processing", event="PAYMENT_STARTED", target="payment_processing"),
        Transition(source="payment_processing", event="PAYMENT_SUCCEEDED", target="paid"),
        Transition(source="payment_processing", event="PAYMENT_FAILED", target="payment_failed"),
        Transition(source="payment_failed", event="SUBMIT", target="payment_processing", guard="may_retry"),
        Transition(source="paid", event="INVENTORY_RESERVED", target="fulfillment_pending"),
        Transition(source="fulfillment_pending", event="SHIP", target="shipped"),
        Transition(source="shipped", event="DELIVER", target="delivered"),
        *(
            Transition(source=source, event="CANCEL", target="cancel_requested")
            for source in ("pending", "payment_processing", "payment_failed")
        ),
        Transition(source="cancel_requested", event="CANCEL_CONFIRMED", target="cancelled"),
        *(
            Transition(source=source, event="REFUND_REQUEST", target="refund_pending", guard="has_payment")
            for source in ("paid", "fulfillment_pending", "shipped", "delivered")
        ),
        Transition(source="refund_pending", event="REFUND_COMPLETE", target="refunded"),
    ),
)

CHECKOUT = machine(
    "checkout",
    (
        State(name="pending", initial=True),
        State(name="validating", step=step("validate", 2)),
        State(name="charging", step=step("charge", 4)),
        State(name="reserving", step=step("reserve", 5)),
        State(name="completed", final=True),
        State(name="undoing", unwinds_to="failed"),
        State(name="failed", final=True),
    ),
    (
        Transition(source="pending", event="BEGIN", target="validating"),
        Transition(source="validating", event="VALIDATE_DONE", target="charging"),
        Transition(source="charging", event="CHARGE_DONE", target="reserving"),
        Transition(source="reserving", event="RESERVE_DONE", target="completed"),
        *(
            Transition(source=source, event="STEP_FAILED", target=target, kind="failed")
            for source, target in (
                ("validating", "failed"),
                ("charging", "undoing"),
                ("charging", "failed"),
                ("reserving", "undoing"),
                ("reserving", "failed"),
            )
        ),
        Transition(source="undoing", event="UNWOUND", target="failed", kind="unwound"),
    ),
)

_WORKING = ("draft", "review", "legal", "pricing", "signing", "active", "paused", "renewing")

HARD = machine(
    "contract",
    (
        *(
            State(
                name=name,
                initial=name == "draft",
                resting=name == "active",
                step=step("collect_signatures", 90) if name == "signing" else None,
                timers=(TimerDescription(event="REMIND", after_s=5400, policy="restart"),) if name == "review" else (),
            )
            for name in _WORKING
        ),
        State(name="FAILED", final=True),
    ),
    (
        Transition(source="draft", event="SEND", target="review"),
        Transition(source="review", event="REMIND", target="review", internal=True),
        Transition(source="review", event="APPROVE", target="legal", guard="value_above_threshold_for_legal_review"),
        Transition(source="review", event="APPROVE", target="pricing"),
        Transition(source="review", event="REJECT", target="draft"),
        Transition(source="review", event="WITHDRAW", target="draft", guard="is_author"),
        Transition(source="legal", event="CLEARED", target="pricing"),
        Transition(source="legal", event="COMMENT", target="legal", internal=True, guard="may_comment"),
        Transition(source="pricing", event="QUOTED", target="signing"),
        Transition(source="signing", event="SIGNED", target="active"),
        Transition(source="signing", event="SIGNED_ON_PAPER", target="active", guard="was_scanned"),
        Transition(source="signing", event="STEP_FAILED", target="pricing", kind="failed"),
        Transition(source="active", event="PAUSE", target="paused"),
        Transition(source="paused", event="RESUME", target="active"),
        Transition(source="active", event="RENEW", target="renewing"),
        Transition(source="renewing", event="RENEWED", target="active"),
        Transition(source="renewing", event="RETRY", target="renewing"),
        *(
            Transition(source=source, event="ABORT", target="FAILED", guard="is_operator", catch_all=True)
            for source in _WORKING
        ),
        *(Transition(source=source, event="EXPIRE", target="FAILED", catch_all=True) for source in _WORKING),
        *(
            Transition(source=source, event="ANNOTATE", target=source, internal=True, catch_all=True)
            for source in _WORKING
        ),
    ),
)

SAMPLES = (ORDER, CHECKOUT, HARD)
