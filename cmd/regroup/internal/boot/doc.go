// Package boot holds what all long-running commands share: configuration, logger, telemetry,
// connection, health, signals.
package boot
