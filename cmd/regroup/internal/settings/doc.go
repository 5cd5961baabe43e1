// Package settings is the user's settings file: defaults for all commands, which flags and the
// environment override, and contexts, each a named set of settings for one cluster, of which one is
// selected. Contexts of the NATS command line are read as well.
package settings
