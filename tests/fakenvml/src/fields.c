/*
 * nvmlDeviceGetFieldValues: a table from field id to the place of its value.
 *
 * An id that is not in the table, or newer than the driver, is one that the
 * library has never heard of; which code it gives for that is the scenario's.
 * "field" lines override one id, its value or its return code.
 */
#include <string.h>

#include "fakenvml.h"

enum source { FROM_UNSIGNED, FROM_INT, FROM_COUNTER, FROM_LINK_COUNTER, FROM_LINK_WIDE, FROM_LINK_SUM,
              FROM_LINK_STATE };

#define ALWAYS SIZE_MAX
#define HAS(flag) offsetof(struct gpu, has_##flag)

struct field {
    uint32_t first, count; /* ids first .. first + count - 1 are links base_link onwards */
    enum source source;
    size_t offset, needs;
    unsigned driver, base_link;
};

#define GPU(member) offsetof(struct gpu, member)
#define LINK(member) offsetof(struct link, member)
#define ECC(id, type, life, where) {id, 1, FROM_COUNTER, GPU(ecc[type][life].where), HAS(ecc), 0, 0}
#define PER_LINK(first6, later6, total, member)                                   \
    {first6, 6, FROM_LINK_COUNTER, LINK(member), HAS(nvlink), 0, 0},              \
        {later6, 6, FROM_LINK_COUNTER, LINK(member), HAS(nvlink), 0, 6},          \
        {total, 1, FROM_LINK_SUM, LINK(member), HAS(nvlink), 0, 0}
#define SCOPED(id, source, member) {id, 1, source, LINK(member), HAS(nvlink5), 0, MAX_LINKS}

static const struct field fields[] = {
    {1, 1, FROM_UNSIGNED, GPU(ecc_mode), HAS(ecc), 0, 0},
    {2, 1, FROM_UNSIGNED, GPU(ecc_pending_mode), HAS(ecc), 0, 0},
    ECC(11, 0, 0, dram),
    ECC(12, 1, 0, dram),
    ECC(22, 0, 1, dram),
    ECC(23, 1, 1, dram),
    {29, 1, FROM_UNSIGNED, GPU(retired_sbe), HAS(retired_pages), 0, 0},
    {30, 1, FROM_UNSIGNED, GPU(retired_dbe), HAS(retired_pages), 0, 0},
    {31, 1, FROM_UNSIGNED, GPU(retired_pending), HAS(retired_pages), 0, 0},
    PER_LINK(32, 96, 38, crc_flit),
    PER_LINK(39, 102, 45, crc_data),
    PER_LINK(46, 108, 52, replay),
    PER_LINK(53, 114, 59, recovery),
    {74, 1, FROM_COUNTER, GPU(throttle_power_cap), ALWAYS, 0, 0},
    {76, 1, FROM_COUNTER, GPU(throttle_sync_boost), ALWAYS, 0, 0},
    {82, 1, FROM_UNSIGNED, GPU(memory_temperature), HAS(memory_temperature), 0, 0},
    {91, 1, FROM_UNSIGNED, GPU(nvlink_count), HAS(nvlink), 0, 0},
    {94, 1, FROM_COUNTER, GPU(pcie_replay), ALWAYS, 0, 0},
    {142, 1, FROM_UNSIGNED, GPU(remap_corrected), HAS(remap), 0, 0},
    {143, 1, FROM_UNSIGNED, GPU(remap_uncorrected), HAS(remap), 0, 0},
    {144, 1, FROM_UNSIGNED, GPU(remap_pending), HAS(remap), 0, 0},
    {145, 1, FROM_UNSIGNED, GPU(remap_failure), HAS(remap), 0, 0},
    {165, 1, FROM_LINK_STATE, LINK(up), HAS(link_fields), 0, MAX_LINKS},
    {186, 1, FROM_UNSIGNED, GPU(power_mw), ALWAYS, 0, 0},
    {193, 1, FROM_INT, GPU(tlimit_shutdown), HAS(tlimit), 0, 0},
    {194, 1, FROM_INT, GPU(tlimit_slowdown), HAS(tlimit), 0, 0},
    {195, 1, FROM_INT, GPU(tlimit_memory_max), HAS(tlimit), 0, 0},
    {196, 1, FROM_INT, GPU(tlimit_gpu_max), HAS(tlimit), 0, 0},
    SCOPED(213, FROM_LINK_COUNTER, recovery_ok),
    SCOPED(214, FROM_LINK_COUNTER, recovery_failed),
    SCOPED(215, FROM_LINK_COUNTER, recovery_events),
    SCOPED(219, FROM_LINK_COUNTER, effective_errors),
    SCOPED(220, FROM_LINK_WIDE, effective_ber),
    SCOPED(221, FROM_LINK_COUNTER, symbol_errors),
    SCOPED(222, FROM_LINK_WIDE, symbol_ber),
    {230, 1, FROM_UNSIGNED, GPU(recovery_action), HAS(recovery), 565, 0},
    {269, 1, FROM_COUNTER, GPU(throttle_sw_thermal), HAS(throttle_ns), 580, 0},
    {270, 1, FROM_COUNTER, GPU(throttle_hw_thermal), HAS(throttle_ns), 580, 0},
    {271, 1, FROM_COUNTER, GPU(throttle_power_brake), HAS(throttle_ns), 580, 0},
};

/* NVLink5 fields take the link from the scope; the older ones have an id a link. */
static bool link_of(const struct gpu *gpu, const struct field *field, const struct field_value *value,
                    unsigned *link)
{
    *link = field->base_link == MAX_LINKS ? value->scope : value->id - field->first + field->base_link;
    return *link < gpu->nvlink_count;
}

static nvmlReturn_t read_link(const struct gpu *gpu, const struct field *field, struct field_value *value)
{
    unsigned link = 0;
    const char *place;

    value->value_type = VALUE_ULONGLONG;
    if (field->source == FROM_LINK_SUM) {
        for (unsigned i = 0; i < gpu->nvlink_count; i++)
            value->value.u64 +=
                counter_value((const void *)((const char *)&gpu->links[i] + field->offset));
        return NVML_SUCCESS;
    }
    REQUIRE(link_of(gpu, field, value, &link), NVML_ERROR_INVALID_ARGUMENT);
    place = (const char *)&gpu->links[link] + field->offset;
    if (field->source == FROM_LINK_STATE) {
        value->value_type = VALUE_UINT;
        value->value.u32 = gpu->links[link].up && !gpu->mig_mode;
        return NVML_SUCCESS;
    }
    if (field->source == FROM_LINK_WIDE)
        memcpy(&value->value.u64, place, sizeof value->value.u64);
    else
        value->value.u64 = counter_value((const void *)place);
    return NVML_SUCCESS;
}

static nvmlReturn_t read_gpu(const struct gpu *gpu, const struct field *field, struct field_value *value)
{
    const char *place = (const char *)gpu + field->offset;

    if (field->source == FROM_COUNTER) {
        value->value_type = VALUE_ULONGLONG;
        value->value.u64 = counter_value((const void *)place);
        return NVML_SUCCESS;
    }
    value->value_type = field->source == FROM_INT ? VALUE_INT : VALUE_UINT;
    memcpy(&value->value.u32, place, sizeof value->value.u32);
    return NVML_SUCCESS;
}

static bool supported(const struct gpu *gpu, const struct field *field)
{
    unsigned flag = 1;

    if (field->needs != ALWAYS)
        memcpy(&flag, (const char *)gpu + field->needs, sizeof flag);
    if (field->needs == HAS(ecc) && field->first > 2 && !gpu->ecc_mode)
        return false;
    if (field->needs == HAS(remap) && gpu->mig_mode)
        return false;
    return flag;
}

static nvmlReturn_t read_field(const struct call *call, struct field_value *value)
{
    const struct gpu *gpu = call->gpu;

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *field = &fields[i];
        if (value->id < field->first || value->id >= field->first + field->count)
            continue;
        if (library_major() < field->driver)
            break;
        if (!supported(gpu, field))
            return NVML_ERROR_NOT_SUPPORTED;
        return field->source < FROM_LINK_COUNTER ? read_gpu(gpu, field, value)
                                                 : read_link(gpu, field, value);
    }
    return call->scenario->unknown_field_code;
}

static void override(const struct call *call, struct field_value *value)
{
    for (unsigned i = 0; i < call->scenario->field_count; i++) {
        const struct field_override *field = &call->scenario->fields[i];
        if (field->id != value->id || (field->gpu != ALL_GPUS && field->gpu != call->index))
            continue;
        value->result = field->result;
        if (!field->has_value)
            continue;
        if (!value->value_type)
            value->value_type = VALUE_ULONGLONG;
        value->value.u64 = field->value;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, struct field_value *values)
{
    BEGIN(device, CALL_WHEN_BROKEN);
    REQUIRE(count > 0 && values, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        struct field_value *value = &values[i];
        value->timestamp_us = (int64_t)wall_clock_us();
        value->latency_us = 0;
        value->value_type = 0;
        value->value.u64 = 0;
        value->result = read_field(&call, value);
        override(&call, value);
    }
    return NVML_SUCCESS;
}
