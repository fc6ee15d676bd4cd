/*
 * A wall clock that a test sets while its process runs: LD_PRELOAD, and in SETTABLE_CLOCK the path of
 * a file with the nanoseconds, eight bytes, by which it is off. Clocks that count seconds stay as they
 * are.
 *
 * libfaketime does more, and too much for a server: while a process waits in epoll_wait(2), a signal
 * handler gets the true time. PostgreSQL's handler of SIGALRM compares that with times of the clock
 * that was set, and no limit of a session is ever reached while it is ahead.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS 1000000000LL

static const volatile int64_t *offset;

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("SETTABLE_CLOCK");
    int file = open(path ? path : "", O_RDONLY | O_CLOEXEC);
    void *page = mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, file, 0);

    if (page == MAP_FAILED) {
        perror("SETTABLE_CLOCK");
        _exit(1);
    }
    close(file);
    offset = page;
}

/* Called in signal handlers, too: nothing here but system calls and memory. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int64_t shown;

    if (syscall(SYS_clock_gettime, clock, now) != 0)
        return -1;
    if (offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        shown = now->tv_sec * NANOSECONDS + now->tv_nsec + *offset;
        now->tv_sec = shown / NANOSECONDS;
        now->tv_nsec = shown % NANOSECONDS;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec at;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told)
{
    struct timespec at;

    clock_gettime(CLOCK_REALTIME, &at);
    if (told != NULL)
        *told = at.tv_sec;
    return at.tv_sec;
}
