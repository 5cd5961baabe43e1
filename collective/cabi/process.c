#define _GNU_SOURCE
#include "process.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "regroup.h"

extern char **environ;

int rgx_forked;
char **rgx_environment;

/* Copies the environment in the thread that loads the library, before Go's runtime starts (whose constructor has no
 * priority). The copy stays. */
__attribute__((constructor(101))) static void copy_environment(void) {
    size_t n = 0;
    while (environ && environ[n]) n++;
    char **copy = calloc(n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = strdup(environ[i]);
        if (!copy[i]) return;
    }
    rgx_environment = copy;
}

/* The failure of a thread hangs on a key and not on a __thread variable: the Go runtime makes all our thread-local
 * storage static, of which a process has about a kilobyte for all libraries that it loads. */
static pthread_key_t failure_key;
static int failure_key_made;

rgx_error *rgx_failure(void) {
    static rgx_error none = {-1, ""};
    rgx_error *e = failure_key_made ? pthread_getspecific(failure_key) : NULL;
    return e ? e : &none;
}

void rgx_fail(int32_t lost, const char *text) {
    rgx_error *e = pthread_getspecific(failure_key);
    if (!e) {
        e = calloc(1, sizeof *e);
        if (!e || pthread_setspecific(failure_key, e)) {
            free(e);
            return;
        }
    }
    e->lost = lost;
    snprintf(e->text, sizeof e->text, "%s", text);
}

int rgx_on_main_thread(void) {
    return syscall(SYS_gettid) == getpid();
}

int rgx_fail_forked(void) {
    rgx_fail(-1, "this process was forked from one that uses libregroup: it must exec before it can");
    return RG_FORKED;
}

/* The newest sockets of ours. The descriptor's number may change (the engine duplicates it) or come to name something of
 * the host's, the inode's does not. */
enum { REMEMBERED = 1 << 16 };
static _Atomic uint64_t ours[REMEMBERED];
static _Atomic uint32_t ours_made;

void rgx_ours(uint64_t inode) { ours[ours_made++ % REMEMBERED] = inode; }

static int is_ours(uint64_t inode) {
    uint32_t n = ours_made < REMEMBERED ? ours_made : REMEMBERED;
    for (uint32_t i = 0; i < n; i++) {
        if (ours[i] == inode) {
            return 1;
        }
    }
    return 0;
}

struct entry { /* of getdents64(2) */
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

/* Only with what is async-signal-safe. */
static void close_ours(void) {
    int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return;
    }
    _Alignas(struct entry) char buf[4096];
    long n;
    while ((n = syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0) {
        for (long at = 0; at < n;) {
            struct entry *e = (struct entry *)(buf + at);
            at += e->reclen;
            int fd = 0;
            const char *c = e->name;
            for (; *c >= '0' && *c <= '9'; c++) {
                fd = fd * 10 + (*c - '0');
            }
            struct stat s;
            if (*c == 0 && fd != dir && fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) && is_ours(s.st_ino)) {
                close(fd);
            }
        }
    }
    close(dir);
}

/* Runs in the child of a fork. With our sockets left open there, peers would not see the end of the parent before that of
 * the child. */
static void in_child(void) {
    rgx_forked = 1;
    close_ours();
}

__attribute__((constructor)) static void loaded(void) {
    failure_key_made = pthread_key_create(&failure_key, free) == 0;
    pthread_atfork(NULL, NULL, in_child);
}
