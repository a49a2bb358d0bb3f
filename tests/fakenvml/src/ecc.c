/* Memory errors and what the GPU has done about them. */
#include <string.h>

#include "fakenvml.h"

enum { LOCATION_DRAM = 2, LOCATION_SRAM = 7 };

static bool ecc_readable(const struct gpu *gpu)
{
    return gpu->has_ecc && gpu->ecc_mode;
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(call.gpu->has_ecc, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(current && pending, NVML_ERROR_INVALID_ARGUMENT);
    *current = call.gpu->ecc_mode;
    *pending = call.gpu->ecc_pending_mode;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned life,
                                                uint64_t *errors)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(type < 2 && life < 2 && errors, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(ecc_readable(call.gpu), NVML_ERROR_NOT_SUPPORTED);
    *errors = counter_value(&call.gpu->ecc[type][life].dram) + counter_value(&call.gpu->ecc[type][life].sram);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned type, unsigned life,
                                                    unsigned location, uint64_t *errors)
{
    const struct ecc_kind *kind;

    BEGIN(device, CALL_DEVICE);
    REQUIRE(type < 2 && life < 2 && location < 8 && errors, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(ecc_readable(call.gpu) && (location == LOCATION_DRAM || location == LOCATION_SRAM),
            NVML_ERROR_NOT_SUPPORTED);
    kind = &call.gpu->ecc[type][life];
    *errors = counter_value(location == LOCATION_DRAM ? &kind->dram : &kind->sram);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned type, unsigned life,
                                                   struct ecc_counts *counts)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(type < 2 && life < 2 && counts, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(ecc_readable(call.gpu), NVML_ERROR_NOT_SUPPORTED);
    memset(counts, 0, sizeof *counts);
    counts->device_memory = counter_value(&call.gpu->ecc[type][life].dram);
    counts->l2 = counter_value(&call.gpu->ecc[type][life].sram);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, struct sram_status *status)
{
    const struct gpu *gpu;

    BEGIN(device, CALL_DEVICE);
    gpu = call.gpu;
    REQUIRE(status, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(status->version == SRAM_STATUS_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(gpu->has_sram && ecc_readable(gpu), NVML_ERROR_NOT_SUPPORTED);
    status->aggregate_parity = 0;
    status->volatile_parity = 0;
    status->aggregate_secded = counter_value(&gpu->ecc[1][1].sram);
    status->volatile_secded = counter_value(&gpu->ecc[1][0].sram);
    status->aggregate_corrected = counter_value(&gpu->ecc[0][1].sram);
    status->volatile_corrected = counter_value(&gpu->ecc[0][0].sram);
    status->bucket_l2 = gpu->sram_l2;
    status->bucket_sm = gpu->sram_sm;
    status->bucket_pcie = gpu->sram_pcie;
    status->bucket_mcu = gpu->sram_mcu;
    status->bucket_other = gpu->sram_other;
    status->threshold_exceeded = gpu->sram_threshold_exceeded;
    return NVML_SUCCESS;
}

static bool remap_readable(const struct gpu *gpu)
{
    return gpu->has_remap && !gpu->mig_mode;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                              unsigned *pending, unsigned *failure)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(remap_readable(call.gpu), NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(corrected && uncorrected && pending && failure, NVML_ERROR_INVALID_ARGUMENT);
    *corrected = call.gpu->remap_corrected;
    *uncorrected = call.gpu->remap_uncorrected;
    *pending = call.gpu->remap_pending;
    *failure = call.gpu->remap_failure;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, struct remapped_rows_v2 *rows)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(remap_readable(call.gpu), NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(rows, NVML_ERROR_INVALID_ARGUMENT);
    rows->corrected_active = call.gpu->remap_corrected;
    rows->corrected_inactive = call.gpu->remap_corrected_inactive;
    rows->uncorrected_active = call.gpu->remap_uncorrected;
    rows->uncorrected_inactive = call.gpu->remap_uncorrected_inactive;
    rows->pending = call.gpu->remap_pending;
    rows->failure = call.gpu->remap_failure;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, struct row_histogram *histogram)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(remap_readable(call.gpu), NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(histogram, NVML_ERROR_INVALID_ARGUMENT);
    *histogram = call.gpu->remap_histogram;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *pending)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(call.gpu->has_retired_pages, NVML_ERROR_NOT_SUPPORTED);
    return put_unsigned(call.gpu->retired_pending, pending);
}

/* Addresses and times are made up; only how many there are is the scenario's. */
static nvmlReturn_t list_pages(const struct gpu *gpu, unsigned cause, unsigned *count, uint64_t *addresses,
                               uint64_t *times_us)
{
    unsigned pages = cause == 0 ? gpu->retired_sbe : gpu->retired_dbe, room;

    REQUIRE(gpu->has_retired_pages, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(count && cause < 2, NVML_ERROR_INVALID_ARGUMENT);
    room = addresses ? *count : 0;
    *count = pages;
    REQUIRE(pages <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < pages; i++) {
        addresses[i] = 0x10000u * (i + 1);
        if (times_us)
            times_us[i] = 0;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                              uint64_t *addresses)
{
    BEGIN(device, CALL_DEVICE);
    return list_pages(call.gpu, cause, count, addresses, NULL);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count,
                                                 uint64_t *addresses, uint64_t *times_us)
{
    BEGIN(device, CALL_DEVICE);
    return list_pages(call.gpu, cause, count, addresses, addresses ? times_us : NULL);
}

EXPORT nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, struct repair_status *status)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    REQUIRE(status, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(status->version == REPAIR_STATUS_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(call.gpu->has_repair, NVML_ERROR_NOT_SUPPORTED);
    status->channel_pending = call.gpu->repair_channel;
    status->tpc_pending = call.gpu->repair_tpc;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device, struct version_and_int *flag)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    REQUIRE(flag, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(flag->version == VERSION_AND_INT_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(call.gpu->has_unrepairable, NVML_ERROR_NOT_SUPPORTED);
    flag->value = (int)call.gpu->unrepairable_memory;
    return NVML_SUCCESS;
}
