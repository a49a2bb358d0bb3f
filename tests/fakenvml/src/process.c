/*
 * This process as a client of the driver: initialised or not, since which
 * driver version, which GPUs it found, and the file that shows it is there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakenvml.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialisations, found_count;
static int found[MAX_GPUS];
static char loaded_library[TEXT_BYTES];
static int client_fd = -1;
static char client_path[PATH_MAX];

/* Called for each reading of the scenario; the first one counts. */
void remember_library(const struct scenario *scenario)
{
    if (!loaded_library[0])
        strcpy(loaded_library, scenario->library);
}

unsigned library_major(void)
{
    return (unsigned)strtoul(loaded_library, NULL, 10);
}

bool process_stale(const struct scenario *scenario)
{
    return strcmp(loaded_library, scenario->driver) != 0;
}

bool process_initialised(void)
{
    bool result;

    pthread_mutex_lock(&lock);
    result = initialisations > 0;
    pthread_mutex_unlock(&lock);
    return result;
}

unsigned enumerated_count(void)
{
    unsigned result;

    pthread_mutex_lock(&lock);
    result = found_count;
    pthread_mutex_unlock(&lock);
    return result;
}

int enumerated_gpu(unsigned position)
{
    int result;

    pthread_mutex_lock(&lock);
    result = position < found_count ? found[position] : NO_GPU;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Locked and still the file of that name: a sweep of dead clients may remove it in between. */
static int open_locked(const char *path)
{
    struct stat opened, named;

    for (int attempt = 0; attempt < 10; attempt++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX) == 0 && fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
            opened.st_ino == named.st_ino)
            return fd;
        close(fd);
    }
    return -1;
}

/* A lock the kernel drops with the process says who is a client, even after a crash. */
static void client_enter(void)
{
    char directory[PATH_MAX - 32];

    if (!scenario_path() ||
        snprintf(directory, sizeof directory, "%s.clients", scenario_path()) >= (int)sizeof directory)
        return;
    mkdir(directory, 0777);
    snprintf(client_path, sizeof client_path, "%s/%d", directory, (int)getpid());
    client_fd = open_locked(client_path);
}

static void client_leave(void)
{
    if (client_fd < 0)
        return;
    unlink(client_path);
    close(client_fd);
    client_fd = -1;
}

static void enumerate(const struct scenario *scenario)
{
    found_count = 0;
    for (unsigned i = 0; i < scenario->gpu_count; i++)
        if (scenario->gpus[i].state != GPU_ABSENT && scenario->gpus[i].state != GPU_FALLEN_OFF_BUS)
            found[found_count++] = (int)i;
}

/* A symbol is left out when the library is built; the scenario alone cannot do it. */
static void tell_present_symbols(const struct scenario *scenario)
{
    static bool told;
    Dl_info own;
    void *self = NULL;

    if (told || !scenario || scenario->missing_count == 0)
        return;
    told = true;
    if (dladdr(client_path, &own))
        self = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    for (unsigned i = 0; self && i < scenario->missing_count; i++)
        if (dlsym(self, scenario->missing[i]))
            fprintf(stderr,
                    "fakenvml: the scenario says %s is missing, but this library has it; "
                    "build one without it (control.build_library)\n",
                    scenario->missing[i]);
    if (self)
        dlclose(self);
}

static nvmlReturn_t attach(unsigned flags)
{
    const struct scenario *scenario = scenario_acquire();
    nvmlReturn_t result = NVML_SUCCESS;

    tell_present_symbols(scenario);
    if (!scenario || !scenario->driver[0] || strcmp(scenario->driver, "none") == 0)
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    else if (process_stale(scenario))
        result = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    else
        enumerate(scenario);
    if (result == NVML_SUCCESS && found_count == 0 && !(flags & NVML_INIT_FLAG_NO_GPUS))
        result = NVML_ERROR_GPU_NOT_FOUND;
    if (scenario)
        scenario_release(scenario);
    return result;
}

/* The driver's files are open from the first call on, even while that call hangs. */
static nvmlReturn_t initialise(const char *name, unsigned flags)
{
    nvmlReturn_t result;

    pthread_mutex_lock(&lock);
    if (client_fd < 0)
        client_enter();
    pthread_mutex_unlock(&lock);
    count_on_node(hash_text(name));
    result = rules_gate(name, NO_GPU);
    pthread_mutex_lock(&lock);
    if (result == NVML_SUCCESS && initialisations == 0)
        result = attach(flags);
    if (result == NVML_SUCCESS)
        initialisations++;
    else if (initialisations == 0)
        client_leave();
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    return initialise(__func__, flags);
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return initialise(__func__, 0);
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    return initialise(__func__, 0);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result;

    count_on_node(hash_text(__func__));
    result = rules_gate(__func__, NO_GPU);
    if (result != NVML_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    if (initialisations == 0)
        result = NVML_ERROR_UNINITIALIZED;
    else if (--initialisations == 0)
        client_leave();
    pthread_mutex_unlock(&lock);
    return result;
}
