"""The scenarios, one module per thing that is disturbed. `interlock.chaos.scenarios.all` lists them."""
