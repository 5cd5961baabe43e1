// Package registry is the service that judges what became of a job's workers and what follows from
// it: run on, start a worker again, leave its place empty, end the job. The decisions are in the
// pure package job; this one connects them to the ports. Any number of replicas may run.
//
// Read: job commands; facts of the families worker, round, placement and node; progress signals,
// which every replica hears all of and keeps in memory. Written: facts of the families job and
// incident. Bucket: jobs, one document per job.
package registry
