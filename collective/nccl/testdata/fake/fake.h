// A NCCL and a CUDA driver without a GPU, for ABI conformance tests: the same
// functions with the same arguments, computed results, and strict checks of
// their use. They prove nothing about speed or about real CUDA.
//
// Written from the manuals of NCCL and CUDA and from the project's notes on them. One
// version of NCCL is built per value of FAKE_VERSION.
#ifndef FAKE_H
#define FAKE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

// ---- what the fake driver offers to the fake NCCL ----

// Queues work on a stream of the device whose context is current. 0 or a CUresult.
int fakeEnqueue(void *stream, void (*run)(void *), void *argument);
int fakeCurrentDevice(void);                            // -1: this thread has no context
int fakeIsDevice(const void *p, size_t bytes, int device); // whether all of it is memory of the device

// ---- knobs and records, for the tests ----

// Sets a knob; the names are at their definitions. A knob begins with the value of
// the variable REGROUP_FAKE_<NAME>, else 0.
void fakeKnob(const char *name, long value);
long fakeKnobValue(const char *name);

// Directory of the communicators' boards; REGROUP_FAKE_FOLDER, or else /tmp, until it is set.
void fakeSetFolder(const char *path);
const char *fakeFolder(void);

// Records a violation by the caller.
void fakeViolation(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Copies the last violation to text and returns how many there were.
int fakeViolations(char *text, int bytes);

// Records a call, by name.
void fakeNote(const char *name);
// Copies the calls recorded since the last time to text, separated by spaces.
int fakeCalls(char *text, int bytes);

// How many objects of a kind are live: "memory", "pinned", "streams", "events", "contexts", "communicators".
long fakeLiving(const char *kind);
void fakeCount(const char *kind, long change);

#endif
