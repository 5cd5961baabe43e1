// The fake driver: streams are queues with a thread each, memory of a device is
// malloc with a list of owners.
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_READY = 600 };
enum { DEVICES = 8 };

struct step {
  void (*run)(void *);
  void *argument;
  struct step *next;
};

struct stream {
  int device, live, closing;
  pthread_mutex_t mutex;
  pthread_cond_t work;
  struct step *first, **last;
  _Atomic long pending;
  struct stream *next;
};

// One recording of an event. An event may be recorded again while streams wait for what it
// stood for before.
struct mark {
  pthread_mutex_t mutex;
  pthread_cond_t passed;
  int done;
  _Atomic int users;
};

struct event {
  int device, live;
  struct mark *last; // NULL: never recorded, which counts as passed
};

struct context {
  int device, retained;
  struct stream *standard; // CUDA's default stream
};

static struct context contexts[DEVICES];
static struct stream *_Atomic streams; // all streams ever created
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread struct context *current;
static int initialized;

static int devices(void) {
  long n = fakeKnobValue("devices"); // knob: how many GPUs there are; 0 = 2
  return n == 0 ? 2 : n < 0 ? 0 : n > DEVICES ? DEVICES : (int)n;
}

// A call that needs a context on this thread.
#define CURRENT                                            \
  do {                                                     \
    if (!current) {                                        \
      fakeViolation("%s without a context", __func__);     \
      return INVALID_CONTEXT;                              \
    }                                                      \
  } while (0)

EXPORT int fakeCurrentDevice(void) { return current ? current->device : -1; }

// ---- devices and contexts ----

EXPORT CUresult cuInit(unsigned flags) {
  if (flags || devices() == 0) return flags ? INVALID_VALUE : NO_DEVICE;
  initialized = 1;
  return OK;
}

EXPORT CUresult cuDriverGetVersion(int *v) { return *v = 12040, OK; }

EXPORT CUresult cuGetErrorName(CUresult e, const char **name) {
  switch (e) {
  case OK: *name = "CUDA_SUCCESS"; return OK;
  case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return OK;
  case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return OK;
  case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return OK;
  case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; return OK;
  case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return OK;
  case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; return OK;
  case NOT_READY: *name = "CUDA_ERROR_NOT_READY"; return OK;
  }
  return *name = NULL, INVALID_VALUE;
}

EXPORT CUresult cuDeviceGetCount(int *n) { return *n = devices(), OK; }

// The handle is not the ordinal, so that mixing them up shows.
EXPORT CUresult cuDeviceGet(int *device, int ordinal) {
  if (!initialized || ordinal < 0 || ordinal >= devices()) return INVALID_DEVICE;
  return *device = 70 + ordinal, OK;
}

static int ordinal(int device) { return device >= 70 && device < 70 + devices() ? device - 70 : -1; }

EXPORT CUresult cuDeviceGetName(char *name, int bytes, int device) {
  if (ordinal(device) < 0) return INVALID_DEVICE;
  return snprintf(name, (size_t)bytes, "Fake GPU %d", ordinal(device)), OK;
}

EXPORT CUresult cuDeviceGetUuid(unsigned char *uuid, int device) {
  if (ordinal(device) < 0) return INVALID_DEVICE;
  for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(16 * ordinal(device) + i);
  return OK;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) {
  if (ordinal(device) < 0) return INVALID_DEVICE;
  return *bytes = (size_t)5 << 30, OK;
}

static struct stream *newStream(int device);

EXPORT CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
  int i = ordinal(device);
  if (i < 0) return INVALID_DEVICE;
  pthread_mutex_lock(&mutex);
  contexts[i].device = i;
  contexts[i].retained++;
  if (!contexts[i].standard) contexts[i].standard = newStream(i);
  pthread_mutex_unlock(&mutex);
  fakeCount("contexts", 1);
  return *context = &contexts[i], OK;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(int device) {
  int i = ordinal(device);
  if (i < 0 || contexts[i].retained == 0) return INVALID_DEVICE;
  contexts[i].retained--;
  fakeCount("contexts", -1);
  return OK;
}

EXPORT CUresult cuCtxSetCurrent(void *context) { return current = context, OK; }

// ---- memory ----

enum { ON_DEVICE = 1, PINNED };

struct block {
  char *at;
  size_t bytes;
  int kind, device;
  struct block *next;
};

static struct block *blocks;

static struct block *find(const void *p) {
  for (struct block *b = blocks; b; b = b->next)
    if ((char *)p >= b->at && (char *)p < b->at + b->bytes) return b;
  return NULL;
}

static int inside(const void *p, size_t bytes, int kind, int device) {
  pthread_mutex_lock(&mutex);
  struct block *b = find(p);
  int yes = b && (char *)p + bytes <= b->at + b->bytes;
  yes = yes && (kind == ON_DEVICE ? b->kind == ON_DEVICE && b->device == device : b->kind != ON_DEVICE);
  pthread_mutex_unlock(&mutex);
  return yes;
}

EXPORT int fakeIsDevice(const void *p, size_t bytes, int device) { return inside(p, bytes, ON_DEVICE, device); }

static void add(void *p, size_t bytes, int kind) {
  struct block *b = malloc(sizeof *b);
  pthread_mutex_lock(&mutex);
  *b = (struct block){p, bytes, kind, current->device, blocks};
  blocks = b;
  pthread_mutex_unlock(&mutex);
  fakeCount(kind == ON_DEVICE ? "memory" : "pinned", 1);
}

static int drop(const void *p, int kind) {
  pthread_mutex_lock(&mutex);
  struct block **b = &blocks;
  while (*b && ((*b)->at != p || (*b)->kind != kind)) b = &(*b)->next;
  struct block *found = *b;
  if (found) *b = found->next;
  pthread_mutex_unlock(&mutex);
  if (!found) return 0;
  free(found);
  fakeCount(kind == ON_DEVICE ? "memory" : "pinned", -1);
  return 1;
}

EXPORT CUresult cuMemAlloc_v2(void **p, size_t bytes) {
  CURRENT;
  if (bytes == 0) return INVALID_VALUE;
  if (bytes > (size_t)4 << 30 || !(*p = aligned_alloc(256, (bytes + 255) & ~(size_t)255))) return OUT_OF_MEMORY;
  add(*p, bytes, ON_DEVICE);
  return OK;
}

// Like the real one it waits for work that may still use the memory.
EXPORT CUresult cuMemFree_v2(void *p) {
  CURRENT;
  for (struct stream *s = streams; s; s = s->next)
    while (s->device == current->device && s->pending) nanosleep(&(struct timespec){0, 50000}, NULL);
  if (!drop(p, ON_DEVICE)) return INVALID_VALUE;
  return free(p), OK;
}

EXPORT CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
  CURRENT;
  if (flags != 1) return INVALID_VALUE;
  *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
  add(*p, bytes, PINNED);
  return OK;
}

EXPORT CUresult cuMemFreeHost(void *p) {
  CURRENT;
  if (!drop(p, PINNED)) return INVALID_VALUE;
  return free(p), OK;
}

EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, const void *p) {
  CURRENT;
  pthread_mutex_lock(&mutex);
  struct block *b = find(p);
  int kind = b ? b->kind : 0, device = b ? b->device : 0;
  pthread_mutex_unlock(&mutex);
  if (!kind) return INVALID_VALUE;
  switch (attribute) {
  case 2: return *(unsigned *)value = kind == ON_DEVICE ? 2 : 1, OK;
  case 9: return *(int *)value = device, OK;
  }
  return INVALID_VALUE;
}

// ---- streams ----

static void *serve(void *argument) {
  struct stream *s = argument;
  for (;;) {
    pthread_mutex_lock(&s->mutex);
    while (!s->first && !s->closing) pthread_cond_wait(&s->work, &s->mutex);
    struct step *step = s->first;
    if (step && !(s->first = step->next)) s->last = &s->first;
    pthread_mutex_unlock(&s->mutex);
    if (!step) return NULL; // the stream itself stays, for later queries
    step->run(step->argument);
    free(step);
    s->pending--;
  }
}

static struct stream *newStream(int device) {
  struct stream *s = calloc(1, sizeof *s);
  *s = (struct stream){.device = device, .live = 1};
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->work, NULL);
  s->last = &s->first;
  s->next = streams;
  while (!atomic_compare_exchange_weak(&streams, &s->next, s)) {
  }
  pthread_t thread;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_create(&thread, &attr, serve, s);
  return s;
}

static struct stream *stream(void *handle) {
  struct stream *s = handle ? handle : current->standard;
  if (!s->live || s->device != current->device) {
    fakeViolation("a stream that is %s", s->live ? "of another device" : "destroyed");
    return NULL;
  }
  return s;
}

EXPORT int fakeEnqueue(void *handle, void (*run)(void *), void *argument) {
  CURRENT;
  struct stream *s = stream(handle);
  if (!s) return INVALID_HANDLE;
  struct step *step = malloc(sizeof *step);
  *step = (struct step){run, argument, NULL};
  s->pending++;
  pthread_mutex_lock(&s->mutex);
  *s->last = step;
  s->last = &step->next;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->mutex);
  return OK;
}

EXPORT CUresult cuStreamCreate(void **handle, unsigned flags) {
  CURRENT;
  if (flags != 1) return INVALID_VALUE; // only non-blocking streams are expected
  fakeCount("streams", 1);
  return *handle = newStream(current->device), OK;
}

EXPORT CUresult cuStreamDestroy_v2(void *handle) {
  CURRENT;
  struct stream *s = stream(handle);
  if (!s || !handle) return INVALID_HANDLE;
  s->live = 0;
  pthread_mutex_lock(&s->mutex);
  s->closing = 1; // what is queued still runs
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->mutex);
  fakeCount("streams", -1);
  return OK;
}

EXPORT CUresult cuStreamQuery(void *handle) {
  CURRENT;
  struct stream *s = stream(handle);
  if (!s) return INVALID_HANDLE;
  return s->pending ? NOT_READY : OK;
}

// ---- events ----

static void leave(struct mark *m) {
  if (--m->users) return;
  pthread_mutex_destroy(&m->mutex);
  pthread_cond_destroy(&m->passed);
  free(m);
}

static void reach(void *argument) {
  struct mark *m = argument;
  pthread_mutex_lock(&m->mutex);
  m->done = 1;
  pthread_cond_broadcast(&m->passed);
  pthread_mutex_unlock(&m->mutex);
  leave(m);
}

static void await(void *argument) {
  struct mark *m = argument;
  pthread_mutex_lock(&m->mutex);
  while (!m->done) pthread_cond_wait(&m->passed, &m->mutex);
  pthread_mutex_unlock(&m->mutex);
  leave(m);
}

EXPORT CUresult cuEventCreate(void **handle, unsigned flags) {
  CURRENT;
  if (flags != 2) return INVALID_VALUE; // only events without timing are expected
  struct event *e = calloc(1, sizeof *e);
  *e = (struct event){.device = current->device, .live = 1};
  fakeCount("events", 1);
  return *handle = e, OK;
}

static int event(struct event *e) {
  if (e && e->live && e->device == current->device) return 1;
  fakeViolation("an event that is %s", !e ? "null" : e->live ? "of another device" : "destroyed");
  return 0;
}

EXPORT CUresult cuEventRecord(void *handle, void *stream) {
  CURRENT;
  struct event *e = handle;
  if (!event(e)) return INVALID_HANDLE;
  struct mark *m = calloc(1, sizeof *m);
  pthread_mutex_init(&m->mutex, NULL);
  pthread_cond_init(&m->passed, NULL);
  m->users = 2; // the event and the stream
  if (e->last) leave(e->last);
  e->last = m;
  return fakeEnqueue(stream, reach, m);
}

EXPORT CUresult cuStreamWaitEvent(void *stream, void *handle, unsigned flags) {
  CURRENT;
  struct event *e = handle;
  if (flags) return INVALID_VALUE;
  if (!event(e)) return INVALID_HANDLE;
  if (!e->last) return OK;
  e->last->users++;
  return fakeEnqueue(stream, await, e->last);
}

EXPORT CUresult cuEventQuery(void *handle) {
  CURRENT;
  struct event *e = handle;
  if (!event(e)) return INVALID_HANDLE;
  if (!e->last) return OK;
  pthread_mutex_lock(&e->last->mutex);
  int done = e->last->done;
  pthread_mutex_unlock(&e->last->mutex);
  return done ? OK : NOT_READY;
}

EXPORT CUresult cuEventDestroy_v2(void *handle) {
  CURRENT;
  struct event *e = handle;
  if (!event(e)) return INVALID_HANDLE;
  e->live = 0; // not freed, so that a later use is detected
  if (e->last) leave(e->last);
  e->last = NULL;
  fakeCount("events", -1);
  return OK;
}

// ---- copies ----

struct copy {
  void *to;
  const void *from;
  size_t bytes;
  int up;
};

static void copy(void *argument) {
  struct copy *c = argument;
  while (fakeKnobValue("hold_copies") || (c->up && fakeKnobValue("hold_copies_up"))) // knobs: copies wait while it is set; those to the device
    nanosleep(&(struct timespec){0, 100000}, NULL);
  memcpy(c->to, c->from, c->bytes);
  free(c);
}

static CUresult queueCopy(void *to, const void *from, size_t bytes, void *stream, int toDevice, int fromDevice) {
  if (bytes == 0 || !inside(to, bytes, toDevice ? ON_DEVICE : PINNED, current->device) ||
      !inside(from, bytes, fromDevice ? ON_DEVICE : PINNED, current->device))
    return INVALID_VALUE;
  if (fakeKnobValue("fail_copy_device") == current->device + 1) return OUT_OF_MEMORY; // knob: 1 + the device whose copies fail
  if (fakeKnobValue("fail_copy")) return fakeKnobValue("fail_copy"); // knob: what the next copies return
  struct copy *c = malloc(sizeof *c);
  *c = (struct copy){to, from, bytes, toDevice && !fromDevice};
  return fakeEnqueue(stream, copy, c);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
  CURRENT;
  fakeNote("HtoD");
  return queueCopy(to, from, bytes, stream, 1, 0);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
  CURRENT;
  fakeNote("DtoH");
  return queueCopy(to, from, bytes, stream, 0, 1);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
  CURRENT;
  return queueCopy(to, from, bytes, stream, 1, 1);
}
