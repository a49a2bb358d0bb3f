/* The driver as a whole, and the ways to a GPU's handle. */
#include <stdio.h>
#include <string.h>

#include "fakenvml.h"

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    BEGIN(NULL, CALL_SYSTEM);
    return put_text(call.scenario->driver, version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[TEXT_BYTES + 8];

    BEGIN(NULL, CALL_SYSTEM | CALL_NO_INIT);
    if (call.scenario->nvml[0])
        return put_text(call.scenario->nvml, version, length);
    snprintf(text, sizeof text, "%u.%s", library_major() >= 580 ? 13 : 12, call.scenario->library);
    return put_text(text, version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    BEGIN(NULL, CALL_SYSTEM | CALL_NO_INIT);
    REQUIRE(version, NVML_ERROR_INVALID_ARGUMENT);
    *version = (int)call.scenario->cuda_version;
    if (!*version)
        *version = library_major() >= 580 ? 13000 : 12080;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    BEGIN(NULL, CALL_SYSTEM | CALL_NO_INIT);
    REQUIRE(version, NVML_ERROR_INVALID_ARGUMENT);
    *version = call.scenario->cuda_version ? (int)call.scenario->cuda_version : 12080;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    BEGIN(NULL, CALL_SYSTEM);
    return put_unsigned(enumerated_count(), count);
}

static nvmlReturn_t give(const struct scenario *scenario, int gpu, int mig, nvmlDevice_t *device)
{
    if (gpu < 0 || gpu >= (int)scenario->gpu_count)
        return NVML_ERROR_NOT_FOUND;
    if (gpu_gone(&scenario->gpus[gpu]))
        return NVML_ERROR_GPU_IS_LOST;
    *device = device_handle(gpu, mig);
    return NVML_SUCCESS;
}

/* Asking for a GPU is a call for that GPU, so that rules for one GPU apply to it. */
static nvmlDevice_t ruled_handle(int gpu)
{
    return gpu >= 0 ? device_handle(gpu, -1) : NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    int gpu = enumerated_gpu(index);

    BEGIN(ruled_handle(gpu), CALL_SYSTEM);
    REQUIRE(device && gpu >= 0, NVML_ERROR_INVALID_ARGUMENT);
    return give(call.scenario, gpu, -1, device);
}

typedef bool same_gpu(const struct gpu *gpu, const char *value);

static int find_gpu(same_gpu *same, const char *value)
{
    const struct scenario *scenario = scenario_acquire();
    int result = NO_GPU;

    for (unsigned i = 0; scenario && value && i < enumerated_count(); i++) {
        int gpu = enumerated_gpu(i);
        if (gpu < (int)scenario->gpu_count && same(&scenario->gpus[gpu], value))
            result = gpu;
    }
    if (scenario)
        scenario_release(scenario);
    return result;
}

static bool same_uuid(const struct gpu *gpu, const char *uuid)
{
    return strcmp(gpu->uuid, uuid) == 0;
}

static bool same_serial(const struct gpu *gpu, const char *serial)
{
    return strcmp(gpu->serial, serial) == 0;
}

/* Domain, bus and device; the function and the domain's width do not matter. */
static bool parse_bus_id(const char *text, unsigned address[3])
{
    if (sscanf(text, "%x:%x:%x", &address[0], &address[1], &address[2]) == 3)
        return true;
    address[0] = 0;
    return sscanf(text, "%x:%x", &address[1], &address[2]) == 2;
}

static bool same_bus_id(const struct gpu *gpu, const char *bus_id)
{
    unsigned wanted[3], own[3];

    return parse_bus_id(bus_id, wanted) && parse_bus_id(gpu->bus_id, own) &&
           memcmp(wanted, own, sizeof own) == 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    int whole = find_gpu(same_uuid, uuid);

    BEGIN(ruled_handle(whole), CALL_SYSTEM);
    REQUIRE(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
    for (int gpu = 0; gpu < (int)call.scenario->gpu_count; gpu++)
        for (int mig = 0; mig < (int)call.scenario->gpus[gpu].mig_count; mig++)
            if (strcmp(call.scenario->gpus[gpu].mig[mig].uuid, uuid) == 0)
                return give(call.scenario, gpu, mig, device);
    return give(call.scenario, whole, -1, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    int gpu = find_gpu(same_serial, serial);

    BEGIN(ruled_handle(gpu), CALL_SYSTEM);
    REQUIRE(serial && device, NVML_ERROR_INVALID_ARGUMENT);
    return give(call.scenario, gpu, -1, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    int gpu = find_gpu(same_bus_id, bus_id);

    BEGIN(ruled_handle(gpu), CALL_SYSTEM);
    REQUIRE(bus_id && device, NVML_ERROR_INVALID_ARGUMENT);
    return give(call.scenario, gpu, -1, device);
}
