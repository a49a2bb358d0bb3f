/*
 * Sleeping until the scenario may have changed.
 *
 * inotify on the directory costs nothing while nothing happens, which matters
 * where a caller's idle CPU is measured; a slow look catches what it misses.
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "fakenvml.h"

enum { LOOK_WITH_INOTIFY_MS = 500, LOOK_WITHOUT_MS = 5 };

int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint64_t wall_clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void watch_open(struct watch *watch)
{
    const char *path = scenario_path();
    char copy[PATH_MAX];

    watch->fd = path ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
    if (watch->fd < 0)
        return;
    strncpy(copy, path, sizeof copy - 1);
    copy[sizeof copy - 1] = '\0';
    if (inotify_add_watch(watch->fd, dirname(copy), IN_MOVED_TO | IN_CLOSE_WRITE) < 0)
        watch_close(watch);
}

void watch_wait(struct watch *watch, int64_t milliseconds)
{
    struct pollfd poller = {.fd = watch->fd, .events = POLLIN};
    int64_t look = watch->fd < 0 ? LOOK_WITHOUT_MS : LOOK_WITH_INOTIFY_MS;
    char drain[4096];

    if (milliseconds < 0 || milliseconds > look)
        milliseconds = look;
    if (poll(&poller, 1, (int)milliseconds) > 0 && watch->fd >= 0)
        while (read(watch->fd, drain, sizeof drain) > 0)
            continue;
}

void watch_close(struct watch *watch)
{
    if (watch->fd >= 0)
        close(watch->fd);
    watch->fd = -1;
}
