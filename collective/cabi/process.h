/* What the library keeps about the process and its threads, in C because a forked child must be able to use it. */
#ifndef REGROUP_PROCESS_H
#define REGROUP_PROCESS_H

#include <stdint.h>

/* This process was forked from the one that loaded the library. */
extern int rgx_forked;

/* The environment as it was when the library was loaded, ended by NULL; NULL itself if there was no memory. */
extern char **rgx_environment;

typedef struct {
    int32_t lost;
    char text[1020];
} rgx_error;

/* The calling thread's last failure. */
rgx_error *rgx_failure(void);

void rgx_fail(int32_t lost, const char *text);
int rgx_fail_forked(void);

/* A socket that a forked child must not keep, by the number that fstat(2) gives as st_ino. */
void rgx_ours(uint64_t inode);

/* Whether the calling thread is the process's first one, on which a Python program runs. */
int rgx_on_main_thread(void);

#endif
