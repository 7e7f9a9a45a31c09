"""Sampling of groups: which ones are measured, when measuring all of them would cost too much.

The first is always chosen, and after it one of every block, each as likely as the other. A chosen one counts for its
block, so in the mean everything counts once. A fixed place in each block would not do: work comes in rhythms, and a
rhythm that fits the block would always show the same part of itself, or nothing.

The choice is a fixed pseudo-random sequence, the same in every run: nothing here needs chance.
"""

_FACTOR, _STEP, _BITS = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407, 64
"""Knuth's linear congruential generator. Its high bits are good ones, its low bits are not."""


class Turns:
    """Chooses one of every `block` things."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._number = 0
        self._left = 0
        self._chosen = 0
        self._weight = 0.0
        self._first = True

    def weight(self) -> float:
        """Return for how many the next one counts; 0.0 when it is not chosen."""
        if self._left == 0:
            first, self._first = self._first, False
            self._begin(self._block - first)
            if first:
                return 1.0  # It stands for itself, and one of the rest of its block for that rest.
        self._left -= 1
        return self._weight if self._left == self._chosen else 0.0

    def _begin(self, size: int) -> None:
        self._number = (self._number * _FACTOR + _STEP) % (1 << _BITS)
        self._left, self._weight = size, float(size)
        self._chosen = self._number * size >> _BITS
