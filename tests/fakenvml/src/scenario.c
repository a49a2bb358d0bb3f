/*
 * The scenario file as an immutable reading, shared by reference.
 *
 * Writers replace the file by rename, so a reading is whole. A reading that
 * cannot be had (the file is gone for a moment) leaves the last one standing.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakenvml.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct scenario *current;
static struct stat seen;
static unsigned long generations;
static bool told_unreadable;

const char *scenario_path(void)
{
    return getenv("FAKENVML_SCENARIO");
}

static void tell_unreadable(const char *path, const char *reason)
{
    if (told_unreadable)
        return;
    told_unreadable = true;
    fprintf(stderr,
            "fakenvml: cannot read the scenario \"%s\" (%s); set FAKENVML_SCENARIO to a readable file\n",
            path ? path : "", reason);
}

static char *read_text(int fd, size_t size)
{
    char *text = malloc(size + 1);
    size_t length = 0;

    if (!text)
        return NULL;
    while (length < size) {
        ssize_t got = read(fd, text + length, size - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    text[length] = '\0';
    return text;
}

static struct scenario *load(const char *path, struct stat *read_state)
{
    struct scenario *fresh;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return NULL;
    if (fstat(fd, read_state) == 0)
        text = read_text(fd, (size_t)read_state->st_size);
    close(fd);
    fresh = text ? calloc(1, sizeof *fresh) : NULL;
    if (fresh) {
        fresh->references = 1;
        fresh->generation = ++generations;
        parse_scenario(fresh, path, text);
        remember_library(fresh);
    }
    free(text);
    return fresh;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_dev == b->st_dev &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void drop(struct scenario *scenario)
{
    if (scenario && --scenario->references == 0)
        free(scenario);
}

static void refresh(void)
{
    const char *path = scenario_path();
    struct stat now, read_state;
    struct scenario *fresh;

    if (!path || stat(path, &now) != 0) {
        tell_unreadable(path, path ? strerror(errno) : "no path given");
        return;
    }
    if (current && same_file(&now, &seen))
        return;
    fresh = load(path, &read_state);
    if (!fresh) {
        tell_unreadable(path, strerror(errno));
        return;
    }
    told_unreadable = false;
    drop(current);
    current = fresh;
    seen = read_state;
}

const struct scenario *scenario_acquire(void)
{
    const struct scenario *result;

    pthread_mutex_lock(&lock);
    refresh();
    if (current)
        current->references++;
    result = current;
    pthread_mutex_unlock(&lock);
    return result;
}

void scenario_release(const struct scenario *scenario)
{
    pthread_mutex_lock(&lock);
    drop((struct scenario *)scenario);
    pthread_mutex_unlock(&lock);
}

/* A library file belongs to one driver version: the one at load time. */
__attribute__((constructor)) static void at_load(void)
{
    const struct scenario *scenario;

    if (!scenario_path())
        return;
    scenario = scenario_acquire();
    if (scenario)
        scenario_release(scenario);
}
