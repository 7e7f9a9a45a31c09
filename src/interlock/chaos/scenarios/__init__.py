"""Scenarios, one module per disturbed part. `interlock.chaos.scenarios.all` lists them."""
