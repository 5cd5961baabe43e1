// Package settings is the user's settings file: what holds for every command where neither a flag
// nor the environment says otherwise, and contexts, each a named set of the same for one cluster,
// of which one is selected. Contexts of the NATS command line are read as well.
package settings
