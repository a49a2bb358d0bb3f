/* Multi-instance GPU: the mode and the devices inside one GPU. */
#include <string.h>

#include "fakenvml.h"

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(call.gpu->has_mig, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(current && pending, NVML_ERROR_INVALID_ARGUMENT);
    *current = call.gpu->mig_mode;
    *pending = call.gpu->mig_pending_mode;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->has_mig ? 7 : 0, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                        nvmlDevice_t *mig)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(call.gpu->has_mig, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(mig, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(call.gpu->mig_mode && index < call.gpu->mig_count, NVML_ERROR_NOT_FOUND);
    *mig = device_handle(call.index, (int)index);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    BEGIN(device, CALL_MIG_TOO);
    return put_unsigned(call.mig != NULL, is_mig);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *instance)
{
    BEGIN(device, CALL_MIG_TOO);
    REQUIRE(call.mig, NVML_ERROR_NOT_SUPPORTED);
    return put_unsigned(call.mig->gpu_instance, instance);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *instance)
{
    BEGIN(device, CALL_MIG_TOO);
    REQUIRE(call.mig, NVML_ERROR_NOT_SUPPORTED);
    return put_unsigned(call.mig->compute_instance, instance);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    BEGIN(mig, CALL_MIG_TOO);
    REQUIRE(call.mig, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(device, NVML_ERROR_INVALID_ARGUMENT);
    *device = device_handle(call.index, -1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, struct mig_attributes *attributes)
{
    BEGIN(device, CALL_MIG_TOO);
    REQUIRE(call.mig, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(attributes, NVML_ERROR_INVALID_ARGUMENT);
    memset(attributes, 0, sizeof *attributes);
    attributes->multiprocessors = 16 * call.mig->slices;
    attributes->gpu_slices = call.mig->slices;
    attributes->compute_slices = call.mig->slices;
    attributes->memory_mib = call.mig->memory_bytes >> 20;
    return NVML_SUCCESS;
}
