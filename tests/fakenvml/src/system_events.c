/* Driver bind and unbind, as event sets of their own. */
#include <pthread.h>
#include <stdlib.h>

#include "fakenvml.h"

struct system_event_set {
    struct system_event_set *next;
    uint64_t types, delivered_id;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct system_event_set *sets;

static bool known(const struct system_event_set *wanted)
{
    for (const struct system_event_set *set = sets; set; set = set->next)
        if (set == wanted)
            return true;
    return false;
}

EXPORT nvmlReturn_t nvmlSystemEventSetCreate(struct system_set_request *request)
{
    struct system_event_set *fresh;

    BEGIN(NULL, CALL_SYSTEM);
    REQUIRE(request, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(request->version == SYSTEM_SET_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    fresh = calloc(1, sizeof *fresh);
    REQUIRE(fresh, NVML_ERROR_MEMORY);
    pthread_mutex_lock(&lock);
    fresh->next = sets;
    sets = fresh;
    pthread_mutex_unlock(&lock);
    request->set = fresh;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemEventSetFree(struct system_set_request *request)
{
    struct system_event_set **place, *set;

    BEGIN(NULL, CALL_SYSTEM);
    REQUIRE(request, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(request->version == SYSTEM_SET_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    pthread_mutex_lock(&lock);
    for (place = &sets; *place && *place != request->set; place = &(*place)->next)
        continue;
    set = *place;
    if (set)
        *place = set->next;
    pthread_mutex_unlock(&lock);
    REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
    free(set);
    return NVML_SUCCESS;
}

static uint64_t last_id(const struct scenario *scenario)
{
    uint64_t last = 0;

    for (unsigned i = 0; i < scenario->system_event_count; i++)
        if (scenario->system_events[i].id > last)
            last = scenario->system_events[i].id;
    return last;
}

EXPORT nvmlReturn_t nvmlSystemRegisterEvents(struct system_register_request *request)
{
    nvmlReturn_t result = NVML_SUCCESS;

    BEGIN(NULL, CALL_SYSTEM);
    REQUIRE(request, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(request->version == SYSTEM_REGISTER_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(request->types && !(request->types & ~(uint64_t)3), NVML_ERROR_INVALID_ARGUMENT);
    pthread_mutex_lock(&lock);
    if (!known(request->set)) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    } else {
        if (!request->set->types)
            request->set->delivered_id = last_id(call.scenario);
        request->set->types |= request->types;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static unsigned take(const struct scenario *scenario, struct system_wait_request *request)
{
    struct system_event_set *set = request->set;
    unsigned taken = 0;

    for (unsigned i = 0; i < scenario->system_event_count && taken < request->data_size; i++) {
        const struct event *event = &scenario->system_events[i];
        if (event->id <= set->delivered_id || !(event->type & set->types))
            continue;
        request->data[taken].type = event->type;
        request->data[taken++].gpu_id = (unsigned)event->data;
        set->delivered_id = event->id;
    }
    return taken;
}

/* An unbind that is already there is told before the driver is found changed. */
static nvmlReturn_t look(struct system_wait_request *request)
{
    const struct scenario *scenario = scenario_acquire();
    nvmlReturn_t result = NVML_ERROR_TIMEOUT;

    REQUIRE(scenario, NVML_ERROR_DRIVER_NOT_LOADED);
    pthread_mutex_lock(&lock);
    if (!known(request->set))
        result = NVML_ERROR_INVALID_ARGUMENT;
    else if ((request->event_count = take(scenario, request)) > 0)
        result = NVML_SUCCESS;
    pthread_mutex_unlock(&lock);
    if (result == NVML_ERROR_TIMEOUT && process_stale(scenario))
        result = scenario->stale_code;
    scenario_release(scenario);
    return result;
}

EXPORT nvmlReturn_t nvmlSystemEventSetWait(struct system_wait_request *request)
{
    int64_t deadline, left;
    struct call call;
    nvmlReturn_t result = call_begin(&call, __func__, NULL, CALL_SYSTEM);

    REQUIRE(result == NVML_SUCCESS, result);
    call_end(&call);
    REQUIRE(request && request->data && request->data_size, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(request->version == SYSTEM_WAIT_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    deadline = now_ms() + request->timeout_ms;
    watch_begin();
    while ((result = look(request)) == NVML_ERROR_TIMEOUT && (left = deadline - now_ms()) > 0)
        watch_wait(left);
    return result;
}
