// Package samples deals the samples of a data set to the ranks of a job, each exactly once however
// often the members change.
//
// A Sampler deals global batches, in an order that does not depend on the world size. With an
// ElasticSampler each rank reads a share of its own. docs/samples.md specifies both.
package samples
