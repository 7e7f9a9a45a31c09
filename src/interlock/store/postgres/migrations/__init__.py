"""The migrations of the tables, as numbered SQL files: applied in order, each once, never changed afterwards."""
