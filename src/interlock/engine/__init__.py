"""Machines become durable workflows: the engine, its data path, steps, timers and unwinding."""
