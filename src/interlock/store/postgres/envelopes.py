"""History that knows which request led to it, so that an unknown outcome can be resolved (G9).

When the connection is lost in a commit, whoever decided asks afterwards which of its envelopes are in history, before
it decides anything again. The look is by workflow and envelope: history is stored by workflow, so it needs no index of
its own, which every transition would have to pay for.
"""

from interlock.store.values import Happened


class Enveloped(Happened, frozen=True, gc=False):
    """A row of history with the id of the envelope that led to it."""

    envelope: str | None = None
