/* PCIe, NVLink and the NVLink fabric. */
#include <stdio.h>
#include <string.h>

#include "fakenvml.h"

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->pcie_gen, generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->pcie_gen_max, generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->pcie_gen_gpu_max, generation);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *width)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->pcie_width, width);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *width)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->pcie_width_max, width);
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *replays)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned((unsigned)counter_value(&call.gpu->pcie_replay), replays);
}

/* A link the GPU does not have is a wrong argument; a GPU without links lacks the call. */
static nvmlReturn_t find_link(const struct gpu *gpu, unsigned link, const struct link **found)
{
    REQUIRE(gpu->has_nvlink, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(link < gpu->nvlink_count, NVML_ERROR_INVALID_ARGUMENT);
    *found = &gpu->links[link];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active)
{
    const struct link *found = NULL;
    nvmlReturn_t result;

    BEGIN(device, CALL_DEVICE);
    result = find_link(call.gpu, link, &found);
    return result == NVML_SUCCESS ? put_unsigned(found->up && !call.gpu->mig_mode, active) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *version)
{
    const struct link *found = NULL;
    nvmlReturn_t result;

    BEGIN(device, CALL_DEVICE);
    result = find_link(call.gpu, link, &found);
    return result == NVML_SUCCESS ? put_unsigned(call.gpu->nvlink_version, version) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type)
{
    const struct link *found = NULL;
    nvmlReturn_t result;

    BEGIN(device, CALL_DEVICE);
    result = find_link(call.gpu, link, &found);
    return result == NVML_SUCCESS ? put_unsigned(found->remote_type, type) : result;
}

/* Counters: 0 replay, 1 recovery, 2 CRC flit, 3 CRC data; NVLink5 has fields instead. */
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, unsigned counter,
                                                    uint64_t *errors)
{
    const struct link *found = NULL;
    nvmlReturn_t result;

    BEGIN(device, CALL_DEVICE);
    result = find_link(call.gpu, link, &found);
    REQUIRE(result == NVML_SUCCESS, result);
    REQUIRE(counter < 4 && errors, NVML_ERROR_INVALID_ARGUMENT);
    *errors = counter_value(counter == 0   ? &found->replay
                            : counter == 1 ? &found->recovery
                            : counter == 2 ? &found->crc_flit
                                           : &found->crc_data);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkInfo(nvmlDevice_t device, struct nvlink_info_v2 *info)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(info->version == NVLINK_INFO_V1 || info->version == NVLINK_INFO_V2,
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(call.gpu->has_nvlink5, NVML_ERROR_NOT_SUPPORTED);
    info->nvle_enabled = 0;
    if (info->version == NVLINK_INFO_V2)
        info->firmware_count = 0;
    return NVML_SUCCESS;
}

/* 32 hex digits, dashes anywhere; anything shorter leaves zeros. */
static void fill_cluster_uuid(const char *text, uint8_t uuid[16])
{
    unsigned byte;

    memset(uuid, 0, 16);
    for (unsigned i = 0; i < 16; i++) {
        while (*text == '-')
            text++;
        if (sscanf(text, "%2x", &byte) != 1)
            return;
        uuid[i] = (uint8_t)byte;
        text += text[0] && text[1] ? 2 : 1;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, struct fabric_v1 *info)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(call.gpu->has_fabric, NVML_ERROR_NOT_SUPPORTED);
    fill_cluster_uuid(call.gpu->fabric_uuid, info->cluster_uuid);
    info->status = call.gpu->fabric_status;
    info->clique_id = call.gpu->fabric_clique;
    info->state = (uint8_t)call.gpu->fabric_state;
    return NVML_SUCCESS;
}

/* V3 came with driver 565; before it, its version word is unknown. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, struct fabric_v3 *info)
{
    bool v3;

    BEGIN(device, CALL_DEVICE);
    REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
    v3 = info->version == FABRIC_V3 && library_major() >= 565;
    REQUIRE(v3 || info->version == FABRIC_V2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(call.gpu->has_fabric, NVML_ERROR_NOT_SUPPORTED);
    fill_cluster_uuid(call.gpu->fabric_uuid, info->cluster_uuid);
    info->status = call.gpu->fabric_status;
    info->clique_id = call.gpu->fabric_clique;
    info->state = (uint8_t)call.gpu->fabric_state;
    info->health_mask = call.gpu->fabric_health_mask;
    if (v3)
        info->health_summary = (uint8_t)call.gpu->fabric_health_summary;
    return NVML_SUCCESS;
}
