"""Exporters of an engine's signals and metrics: Prometheus, OpenTelemetry, JSON logs. Loaded by name when needed."""
