"""The settings of an engine: every bound has its name here (G6)."""

import msgspec


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine waits for and what it bounds."""

    drain_s: float = 5.0
    """How long a closing engine waits for running steps before it cancels them."""

    steps_max: int = 1_000
    """Attempts of steps and undos under way at once; more of them wait for a slot."""
