/*
 * Event sets: what is raised after a registration is delivered once to each set.
 *
 * Nothing is held while a caller waits; a set that is freed meanwhile is found
 * gone at the next look.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fakenvml.h"

struct event_set {
    struct event_set *next;
    uint64_t types[MAX_GPUS], delivered_id[MAX_GPUS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event_set *sets;

static bool known(const struct event_set *wanted)
{
    for (const struct event_set *set = sets; set; set = set->next)
        if (set == wanted)
            return true;
    return false;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    struct event_set *fresh;

    BEGIN(NULL, CALL_SYSTEM);
    REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
    fresh = calloc(1, sizeof *fresh);
    REQUIRE(fresh, NVML_ERROR_MEMORY);
    pthread_mutex_lock(&lock);
    fresh->next = sets;
    sets = fresh;
    pthread_mutex_unlock(&lock);
    *set = fresh;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    struct event_set **place;

    BEGIN(NULL, CALL_SYSTEM);
    pthread_mutex_lock(&lock);
    for (place = &sets; *place && *place != set; place = &(*place)->next)
        continue;
    if (*place)
        *place = set->next;
    else
        set = NULL;
    pthread_mutex_unlock(&lock);
    REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
    free(set);
    return NVML_SUCCESS;
}

static uint64_t supported_types(const struct gpu *gpu)
{
    return gpu->event_types & (library_major() >= 580 ? UINT64_MAX : 0x1FF);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, uint64_t *types)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(types, NVML_ERROR_INVALID_ARGUMENT);
    *types = supported_types(call.gpu);
    return NVML_SUCCESS;
}

static uint64_t last_id(const struct scenario *scenario)
{
    uint64_t last = 0;

    for (unsigned i = 0; i < scenario->event_count; i++)
        if (scenario->events[i].id > last)
            last = scenario->events[i].id;
    return last;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, uint64_t types, nvmlEventSet_t set)
{
    nvmlReturn_t result = NVML_SUCCESS;

    BEGIN(device, CALL_DEVICE);
    REQUIRE(!(types & ~supported_types(call.gpu)), NVML_ERROR_NOT_SUPPORTED);
    pthread_mutex_lock(&lock);
    if (!known(set)) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    } else {
        if (!set->types[call.index])
            set->delivered_id[call.index] = last_id(call.scenario);
        set->types[call.index] |= types;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static const struct event *next_event(const struct scenario *scenario, const struct event_set *set)
{
    const struct event *next = NULL;

    for (unsigned i = 0; i < scenario->event_count; i++) {
        const struct event *event = &scenario->events[i];
        if ((set->types[event->gpu] & event->type) && event->id > set->delivered_id[event->gpu] &&
            (!next || event->id < next->id))
            next = event;
    }
    return next;
}

static void fill(const struct scenario *scenario, const struct event *event, struct event_data *data)
{
    bool unknown_xid = event->type == EVENT_XID && event->data > scenario->known_xid_max;

    data->device = device_handle(event->gpu, -1);
    data->type = event->type;
    data->data = unknown_xid ? 999 : event->data;
    data->gpu_instance = event->gpu_instance;
    data->compute_instance = event->compute_instance;
}

static bool watches_gone_gpu(const struct scenario *scenario, const struct event_set *set)
{
    for (unsigned i = 0; i < MAX_GPUS; i++)
        if (set->types[i] && (i >= scenario->gpu_count || gpu_gone(&scenario->gpus[i])))
            return true;
    return false;
}

/* The event of a dying GPU comes before the news that it is gone. */
static nvmlReturn_t take(const struct scenario *scenario, struct event_set *set, struct event_data *data)
{
    nvmlReturn_t result = NVML_ERROR_TIMEOUT;
    const struct event *event;

    pthread_mutex_lock(&lock);
    if (!known(set)) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    } else if ((event = next_event(scenario, set)) != NULL) {
        set->delivered_id[event->gpu] = event->id;
        fill(scenario, event, data);
        result = NVML_SUCCESS;
    } else if (watches_gone_gpu(scenario, set)) {
        result = NVML_ERROR_GPU_IS_LOST;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static nvmlReturn_t look(struct event_set *set, struct event_data *data)
{
    const struct scenario *scenario = scenario_acquire();
    nvmlReturn_t result;

    if (!scenario)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (process_stale(scenario))
        result = scenario->stale_code;
    else
        result = process_initialised() ? take(scenario, set, data) : NVML_ERROR_UNINITIALIZED;
    scenario_release(scenario);
    return result;
}

/* The frame's scenario is let go before the wait, so BEGIN cannot be used here. */
static nvmlReturn_t wait_for_event(const char *name, nvmlEventSet_t set, struct event_data *data,
                                   unsigned timeout_ms)
{
    int64_t deadline = now_ms() + timeout_ms, left;
    struct call call;
    nvmlReturn_t result = call_begin(&call, name, NULL, CALL_SYSTEM);

    REQUIRE(result == NVML_SUCCESS, result);
    call_end(&call);
    REQUIRE(data, NVML_ERROR_INVALID_ARGUMENT);
    watch_begin();
    while ((result = look(set, data)) == NVML_ERROR_TIMEOUT && (left = deadline - now_ms()) > 0)
        watch_wait(left);
    return result;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, struct event_data *data, unsigned timeout_ms)
{
    return wait_for_event(__func__, set, data, timeout_ms);
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, struct event_data *data, unsigned timeout_ms)
{
    return wait_for_event(__func__, set, data, timeout_ms);
}
