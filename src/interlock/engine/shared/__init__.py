"""The parts of an engine that matter when other processes share its store, or coordinate through Redis."""
