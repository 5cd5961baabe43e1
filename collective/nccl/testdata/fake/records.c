#define _GNU_SOURCE
#include "fake.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Named numbers. They are few, so that looking them up one after the other will do.
struct number {
  char name[32];
  _Atomic long value;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct number knobs[64], counts[16];

static struct number *number(struct number *table, int n, const char *name, int env) {
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < n - 1 && table[i].name[0] && strcmp(table[i].name, name)) i++;
  if (!table[i].name[0]) {
    char variable[64] = "REGROUP_FAKE_";
    size_t at = strlen(variable);
    for (const char *c = name; *c && at < sizeof variable - 1; c++) variable[at++] = (char)toupper(*c);
    const char *v = env ? getenv(variable) : NULL;
    table[i].value = v ? atol(v) : 0;
    snprintf(table[i].name, sizeof table[i].name, "%s", name);
  }
  pthread_mutex_unlock(&mutex);
  return &table[i];
}

EXPORT void fakeKnob(const char *name, long value) { number(knobs, 64, name, 1)->value = value; }
EXPORT long fakeKnobValue(const char *name) { return number(knobs, 64, name, 1)->value; }

EXPORT void fakeCount(const char *kind, long change) { number(counts, 16, kind, 0)->value += change; }
EXPORT long fakeLiving(const char *kind) { return number(counts, 16, kind, 0)->value; }

static char folder[100];

EXPORT void fakeSetFolder(const char *path) { snprintf(folder, sizeof folder, "%s", path); }

EXPORT const char *fakeFolder(void) {
  const char *v = getenv("REGROUP_FAKE_FOLDER");
  return folder[0] ? folder : v ? v : "/tmp";
}

static char violation[512];
static int violations;

EXPORT void fakeViolation(const char *format, ...) {
  va_list args;
  va_start(args, format);
  pthread_mutex_lock(&mutex);
  vsnprintf(violation, sizeof violation, format, args);
  violations++;
  pthread_mutex_unlock(&mutex);
  va_end(args);
  if (fakeKnobValue("strict")) { // knob: end the process
    fprintf(stderr, "rule of NCCL or CUDA broken: %s\n", violation);
    abort();
  }
}

EXPORT int fakeViolations(char *text, int bytes) {
  pthread_mutex_lock(&mutex);
  int n = violations;
  snprintf(text, (size_t)bytes, "%s", violation);
  pthread_mutex_unlock(&mutex);
  return n;
}

static char calls[1 << 16];
static size_t callBytes;

EXPORT void fakeNote(const char *name) {
  pthread_mutex_lock(&mutex);
  size_t n = strlen(name);
  if (callBytes + n + 2 < sizeof calls) {
    memcpy(calls + callBytes, name, n);
    callBytes += n;
    calls[callBytes++] = ' ';
    calls[callBytes] = 0;
  }
  pthread_mutex_unlock(&mutex);
}

EXPORT int fakeCalls(char *text, int bytes) {
  pthread_mutex_lock(&mutex);
  int n = (int)callBytes;
  snprintf(text, (size_t)bytes, "%s", calls);
  callBytes = 0;
  calls[0] = 0;
  pthread_mutex_unlock(&mutex);
  return n;
}
