"""What stands between a step and the world: breakers, limits and budgets of dependencies, and who waits for them."""
