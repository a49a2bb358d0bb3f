/* Temperatures, clocks, power and what slows a GPU down. */
#include "fakenvml.h"

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    return put_unsigned((unsigned)call.gpu->temperature, celsius);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature_v1 *temperature)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(temperature, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(temperature->version == TEMPERATURE_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(temperature->sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    temperature->celsius = call.gpu->temperature;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, struct version_and_int *margin)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(margin, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(margin->version == VERSION_AND_INT_V1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(call.gpu->has_margin, NVML_ERROR_NOT_SUPPORTED);
    margin->value = call.gpu->margin;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned which, unsigned *celsius)
{
    unsigned value;

    BEGIN(device, CALL_DEVICE);
    REQUIRE(which < 8, NVML_ERROR_INVALID_ARGUMENT);
    value = which == 0   ? call.gpu->threshold_shutdown
            : which == 1 ? call.gpu->threshold_slowdown
            : which == 2 ? call.gpu->threshold_memory_max
            : which == 3 ? call.gpu->threshold_gpu_max
                         : 0;
    REQUIRE(value, NVML_ERROR_NOT_SUPPORTED);
    return put_unsigned(value, celsius);
}

static nvmlReturn_t put_wide(uint64_t value, uint64_t *out)
{
    REQUIRE(out, NVML_ERROR_INVALID_ARGUMENT);
    *out = value;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, uint64_t *reasons)
{
    BEGIN(device, CALL_DEVICE);
    return put_wide(call.gpu->clocks_reasons, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, uint64_t *reasons)
{
    BEGIN(device, CALL_DEVICE);
    return put_wide(call.gpu->clocks_reasons, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, uint64_t *reasons)
{
    BEGIN(device, CALL_DEVICE);
    return put_wide(call.gpu->clocks_reasons_supported, reasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, uint64_t *reasons)
{
    BEGIN(device, CALL_DEVICE);
    return put_wide(call.gpu->clocks_reasons_supported, reasons);
}

/* Policies: 0 power, 1 thermal, 2 sync boost. */
EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned policy,
                                                 struct violation_time *time)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(time, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(policy < 3, NVML_ERROR_NOT_SUPPORTED);
    time->reference_us = wall_clock_us();
    if (policy == 0)
        time->violation_ns = counter_value(&call.gpu->throttle_power_cap);
    else if (policy == 2)
        time->violation_ns = counter_value(&call.gpu->throttle_sync_boost);
    else
        time->violation_ns =
            counter_value(&call.gpu->throttle_hw_thermal) + counter_value(&call.gpu->throttle_sw_thermal);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *state)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->pstate, state);
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned clock, unsigned *mhz)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(clock < 4, NVML_ERROR_INVALID_ARGUMENT);
    return put_unsigned(clock == 0   ? call.gpu->clock_graphics
                        : clock == 1 ? call.gpu->clock_sm
                        : clock == 2 ? call.gpu->clock_memory
                                     : call.gpu->clock_video,
                        mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->power_mw, milliwatts);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *milliwatts)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->power_limit_mw, milliwatts);
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts)
{
    BEGIN(device, CALL_DEVICE);
    return put_unsigned(call.gpu->power_limit_mw, milliwatts);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilization *utilization)
{
    BEGIN(device, CALL_DEVICE);
    REQUIRE(utilization, NVML_ERROR_INVALID_ARGUMENT);
    utilization->gpu = call.gpu->utilization_gpu;
    utilization->memory = call.gpu->utilization_memory;
    return NVML_SUCCESS;
}
