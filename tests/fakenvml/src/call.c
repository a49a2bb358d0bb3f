/* The frame around every call: rules first, then the state of process and GPU. */
#include <string.h>

#include "fakenvml.h"

/* A handle is an address in this table and nothing is stored behind it. */
struct handle {
    char unused;
};
static struct handle handles[MAX_GPUS][MAX_MIG + 1];

/* mig is the MIG device's position, or -1 for the whole GPU. */
nvmlDevice_t device_handle(int gpu, int mig)
{
    return &handles[gpu][mig + 1];
}

bool handle_decode(nvmlDevice_t device, int *gpu, int *mig)
{
    uintptr_t first = (uintptr_t)&handles[0][0], address = (uintptr_t)device;
    uintptr_t offset = address - first;

    if (address < first || offset >= sizeof handles)
        return false;
    *gpu = (int)(offset / sizeof handles[0]);
    *mig = (int)(offset % sizeof handles[0] / sizeof handles[0][0]) - 1;
    return true;
}

bool gpu_gone(const struct gpu *gpu)
{
    return gpu->state == GPU_LOST || gpu->state == GPU_FALLEN_OFF_BUS || gpu->state == GPU_ABSENT;
}

static nvmlReturn_t check_process(const struct call *call, unsigned flags)
{
    if (flags & CALL_NO_INIT)
        return call->scenario ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
    if (!process_initialised())
        return NVML_ERROR_UNINITIALIZED;
    if (!call->scenario)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    return process_stale(call->scenario) ? call->scenario->stale_code : NVML_SUCCESS;
}

static nvmlReturn_t check_device(struct call *call, nvmlDevice_t device, unsigned flags)
{
    int mig;

    if (!handle_decode(device, &call->index, &mig) || call->index >= (int)call->scenario->gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    call->gpu = &call->scenario->gpus[call->index];
    if (gpu_gone(call->gpu))
        return NVML_ERROR_GPU_IS_LOST;
    if (call->gpu->state == GPU_RESET_REQUIRED && !(flags & CALL_WHEN_BROKEN))
        return NVML_ERROR_RESET_REQUIRED;
    if (mig < 0)
        return NVML_SUCCESS;
    if (mig >= (int)call->gpu->mig_count || !call->gpu->mig_mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    call->mig = &call->gpu->mig[mig];
    return flags & CALL_MIG_TOO ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t call_begin(struct call *call, const char *name, nvmlDevice_t device, unsigned flags)
{
    nvmlReturn_t result;
    int mig;

    memset(call, 0, sizeof *call);
    if (!handle_decode(device, &call->index, &mig))
        call->index = NO_GPU;
    count_on_node(hash_text(name));
    result = rules_gate(name, call->index);
    if (result != NVML_SUCCESS)
        return result;
    call->scenario = scenario_acquire();
    result = check_process(call, flags);
    if (result == NVML_SUCCESS && !(flags & CALL_SYSTEM))
        result = check_device(call, device, flags);
    if (result != NVML_SUCCESS)
        call_end(call);
    return result;
}

void call_end(struct call *call)
{
    if (call->scenario)
        scenario_release(call->scenario);
    call->scenario = NULL;
}

nvmlReturn_t put_text(const char *value, char *buffer, unsigned length)
{
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(value) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return NVML_SUCCESS;
}

nvmlReturn_t put_unsigned(unsigned value, unsigned *out)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = value;
    return NVML_SUCCESS;
}
