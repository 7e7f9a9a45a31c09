"""The worked examples that ship with Interlock: the order machine and the checkout pipeline."""
