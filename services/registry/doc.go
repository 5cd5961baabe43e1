// Package registry is the service that tracks a job's workers and decides what follows from their
// state: continue, respawn a worker or not, end the job. The decisions are in the pure package job;
// this one connects them to the ports. Any number of replicas may run.
//
// Read: job commands; facts of the families worker, round, placement and node; progress signals, of
// which every replica receives all and keeps the newest in memory. Written: facts of the families
// job and incident. Bucket: jobs, one document per job.
package registry
