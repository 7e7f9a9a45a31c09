"""Breakers, limits and retry budgets of dependencies, and the wait queues in front of them."""
