/*
 * Counts of calls and of rules met, per process and per node.
 *
 * The node's table is a file beside the scenario, mapped by every process, so
 * "the third call of any process" and "was this ever called" both have answers.
 * It is read by control.py: a table of pairs (key, count), little endian.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakenvml.h"

enum { SLOTS = 1024 };

struct slot {
    _Atomic uint64_t key, count;
};

static struct slot in_process[SLOTS];
static struct slot *on_node;
static pthread_once_t map_once = PTHREAD_ONCE_INIT;

/* FNV-1a, 64 bit; never 0, which marks a free slot. */
uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash ? hash : 1;
}

static uint64_t count_in(struct slot *table, uint64_t key)
{
    for (unsigned step = 0; step < SLOTS; step++) {
        struct slot *slot = &table[(key + step) % SLOTS];
        uint64_t found = 0;

        if (atomic_compare_exchange_strong(&slot->key, &found, key) || found == key)
            return atomic_fetch_add(&slot->count, 1) + 1;
    }
    return 0;
}

static void map_node_table(void)
{
    char path[PATH_MAX];
    const char *scenario = scenario_path();
    void *mapped;
    int fd;

    if (!scenario || snprintf(path, sizeof path, "%s.counts", scenario) >= (int)sizeof path)
        return;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    if (ftruncate(fd, sizeof in_process) == 0) {
        mapped = mmap(NULL, sizeof in_process, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED)
            on_node = mapped;
    }
    close(fd);
}

uint64_t count_in_process(uint64_t key)
{
    return count_in(in_process, key);
}

uint64_t count_on_node(uint64_t key)
{
    pthread_once(&map_once, map_node_table);
    return count_in(on_node ? on_node : in_process, key);
}
