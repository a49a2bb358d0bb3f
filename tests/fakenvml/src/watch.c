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
#include <pthread.h>
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

/* One per thread, kept: closing an inotify descriptor takes the kernel some 10 ms. */
struct watch {
    int fd;
    pid_t owner;
};
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void close_watch(void *pointer)
{
    struct watch *watch = pointer;

    if (watch->fd >= 0)
        close(watch->fd);
    free(watch);
}

static void make_key(void)
{
    pthread_key_create(&key, close_watch);
}

static int open_inotify(void)
{
    const char *path = scenario_path();
    char copy[PATH_MAX];
    int fd = path ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;

    if (fd < 0)
        return -1;
    strncpy(copy, path, sizeof copy - 1);
    copy[sizeof copy - 1] = '\0';
    if (inotify_add_watch(fd, dirname(copy), IN_MOVED_TO | IN_CLOSE_WRITE) >= 0)
        return fd;
    close(fd);
    return -1;
}

/* After a fork the descriptor is the parent's: both would take each other's news. */
static int thread_fd(void)
{
    struct watch *watch;

    pthread_once(&key_once, make_key);
    watch = pthread_getspecific(key);
    if (watch && watch->owner == getpid())
        return watch->fd;
    watch = malloc(sizeof *watch);
    if (!watch)
        return -1;
    watch->fd = open_inotify();
    watch->owner = getpid();
    pthread_setspecific(key, watch);
    return watch->fd;
}

void watch_begin(void)
{
    thread_fd();
}

void watch_wait(int64_t milliseconds)
{
    struct pollfd poller = {.fd = thread_fd(), .events = POLLIN};
    int64_t look = poller.fd < 0 ? LOOK_WITHOUT_MS : LOOK_WITH_INOTIFY_MS;
    char drain[4096];

    if (milliseconds < 0 || milliseconds > look)
        milliseconds = look;
    if (poll(&poller, 1, (int)milliseconds) > 0)
        while (read(poller.fd, drain, sizeof drain) > 0)
            continue;
}
