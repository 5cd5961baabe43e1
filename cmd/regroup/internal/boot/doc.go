// Package boot is what every long-running command shares: configuration, logger, telemetry,
// connection, health, signals.
package boot
