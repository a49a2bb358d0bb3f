/* Who a GPU is: names, numbers, versions, modes, memory and processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakenvml.h"

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    char text[2 * TEXT_BYTES + 8];

    BEGIN(device, CALL_MIG_TOO | CALL_WHEN_BROKEN);
    if (!call.mig)
        return put_text(call.gpu->name, name, length);
    snprintf(text, sizeof text, "%s MIG %s", call.gpu->name, call.mig->profile);
    return put_text(text, name, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    BEGIN(device, CALL_MIG_TOO | CALL_WHEN_BROKEN);
    return put_text(call.mig ? call.mig->uuid : call.gpu->uuid, uuid, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    return put_text(call.gpu->serial, serial, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *number, unsigned length)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    return put_text(call.gpu->part_number, number, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    return put_text(call.gpu->vbios, version, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *version, unsigned length)
{
    BEGIN(device, CALL_DEVICE);
    return put_text(call.gpu->inforom, version, length);
}

EXPORT nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device)
{
    BEGIN(device, CALL_DEVICE);
    return call.gpu->inforom_valid ? NVML_SUCCESS : NVML_ERROR_CORRUPTED_INFOROM;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    for (unsigned i = 0; i < enumerated_count(); i++)
        if (enumerated_gpu(i) == call.index)
            return put_unsigned(i, index);
    return NVML_ERROR_GPU_IS_LOST;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    return put_unsigned(call.gpu->minor, minor);
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned *board)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    return put_unsigned(call.gpu->board_id, board);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    return put_unsigned(call.gpu->architecture, architecture);
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    return put_unsigned(call.gpu->brand, brand);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    REQUIRE(major && minor, NVML_ERROR_INVALID_ARGUMENT);
    *major = (int)call.gpu->cuda_major;
    *minor = (int)call.gpu->cuda_minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->persistence, mode);
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    const char *text;

    BEGIN(device, CALL_DEVICE);
    REQUIRE(call.gpu->has_gsp, NVML_ERROR_NOT_SUPPORTED);
    text = call.gpu->gsp_version[0] ? call.gpu->gsp_version : call.scenario->driver;
    return put_text(text, version, 64);
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned *enabled, unsigned *standard)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(call.gpu->has_gsp, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(enabled && standard, NVML_ERROR_INVALID_ARGUMENT);
    *enabled = call.gpu->gsp_mode;
    *standard = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, struct version_and_int *mode)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(mode, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(mode->version == VERSION_AND_INT_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    mode->value = (int)call.gpu->addressing_mode;
    return NVML_SUCCESS;
}

static void split_bus_id(const char *bus_id, unsigned *domain, unsigned *bus, unsigned *slot)
{
    *domain = *bus = *slot = 0;
    sscanf(bus_id, "%x:%x:%x", domain, bus, slot);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_info *info)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    memset(info, 0, sizeof *info);
    split_bus_id(call.gpu->bus_id, &info->domain, &info->bus, &info->device);
    info->device_id = call.gpu->device_id;
    info->subsystem_id = call.gpu->subsystem_id;
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xFFFFu,
             info->bus & 0xFFu, info->device & 0xFFu);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, struct pci_info_ext *info)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(info->version == PCI_INFO_EXT_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    split_bus_id(call.gpu->bus_id, &info->domain, &info->bus, &info->device);
    info->device_id = call.gpu->device_id;
    info->subsystem_id = call.gpu->subsystem_id;
    info->base_class = 3;
    info->sub_class = 2;
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    return NVML_SUCCESS;
}

static bool owned_by(const struct process *process, const struct call *call)
{
    if (process->gpu != call->index)
        return false;
    return !call->mig || (process->info.gpu_instance == call->mig->gpu_instance &&
                          process->info.compute_instance == call->mig->compute_instance);
}

static uint64_t used_by_processes(const struct call *call)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < call->scenario->process_count; i++)
        if (owned_by(&call->scenario->processes[i], call))
            bytes += call->scenario->processes[i].info.used_bytes;
    return bytes;
}

static void fill_memory(const struct call *call, struct memory_v2 *memory)
{
    memory->total = call->mig ? call->mig->memory_bytes : call->gpu->memory_total;
    memory->reserved = call->mig ? 0 : call->gpu->memory_reserved;
    memory->used = used_by_processes(call) + (call->mig ? 0 : call->gpu->memory_used);
    memory->free = memory->total - memory->reserved - memory->used;
    if (memory->used + memory->reserved > memory->total)
        memory->free = 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory_v1 *memory)
{
    struct memory_v2 full;

    BEGIN(device, CALL_MIG_TOO);
    REQUIRE(memory, NVML_ERROR_INVALID_ARGUMENT);
    fill_memory(&call, &full);
    memory->total = full.total;
    memory->free = full.free;
    memory->used = full.used + full.reserved;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *memory)
{
    BEGIN(device, CALL_MIG_TOO);
    REQUIRE(memory, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(memory->version == MEMORY_V2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    fill_memory(&call, memory);
    return NVML_SUCCESS;
}

static nvmlReturn_t list_processes(const struct call *call, unsigned *count, struct process_info *infos)
{
    unsigned room, found = 0;

    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    room = infos ? *count : 0;
    for (unsigned i = 0; i < call->scenario->process_count; i++) {
        if (!owned_by(&call->scenario->processes[i], call))
            continue;
        if (found < room)
            infos[found] = call->scenario->processes[i].info;
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            struct process_info *infos)
{
    BEGIN(device, CALL_MIG_TOO);
    return list_processes(&call, count, infos);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            struct process_info *infos)
{
    BEGIN(device, CALL_MIG_TOO);
    return list_processes(&call, count, infos);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                             struct process_info *infos)
{
    (void)infos;
    BEGIN(device, CALL_MIG_TOO);
    return put_unsigned(0, count);
}
