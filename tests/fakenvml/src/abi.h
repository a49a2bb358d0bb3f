/*
 * The part of the NVML application binary interface that the library answers.
 *
 * Layouts and version words follow what nvidia-ml-py passes in; a wrong layout
 * here would corrupt a caller, so abi.c checks every size at compile time.
 */
#ifndef FAKENVML_ABI_H
#define FAKENVML_ABI_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef unsigned int nvmlReturn_t;
typedef struct handle *nvmlDevice_t;
typedef struct event_set *nvmlEventSet_t;
typedef struct system_event_set *nvmlSystemEventSet_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_UNKNOWN = 999,
};

#define NVML_INIT_FLAG_NO_GPUS 1u

enum value_type { VALUE_UINT = 1, VALUE_ULONGLONG = 3, VALUE_INT = 5 };

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct pci_info_ext {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
};
#define PCI_INFO_EXT_V1 0x1000040u

struct memory_v1 {
    uint64_t total, free, used;
};

struct memory_v2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};
#define MEMORY_V2 0x2000028u

struct process_info {
    unsigned pid;
    uint64_t used_bytes;
    unsigned gpu_instance, compute_instance;
};

struct utilization {
    unsigned gpu, memory;
};

struct violation_time {
    uint64_t reference_us, violation_ns;
};

struct ecc_counts {
    uint64_t l1, l2, device_memory, register_file;
};

struct field_value {
    uint32_t id, scope;
    int64_t timestamp_us, latency_us;
    unsigned value_type;
    nvmlReturn_t result;
    union {
        uint64_t u64;
        unsigned u32;
        int i32;
    } value;
};

struct remapped_rows_v2 {
    unsigned corrected_active, corrected_inactive, uncorrected_active, uncorrected_inactive;
    unsigned pending, failure;
};

struct row_histogram {
    unsigned max, high, partial, low, none;
};

struct sram_status {
    unsigned version;
    uint64_t aggregate_parity, aggregate_secded, aggregate_corrected;
    uint64_t volatile_parity, volatile_secded, volatile_corrected;
    uint64_t bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    unsigned threshold_exceeded;
};
#define SRAM_STATUS_V1 0x1000068u

struct temperature_v1 {
    unsigned version, sensor;
    int celsius;
};
#define TEMPERATURE_V1 0x100000Cu

struct version_and_int {
    unsigned version;
    int value;
};
#define VERSION_AND_INT_V1 0x1000008u

struct repair_status {
    unsigned version, channel_pending, tpc_pending;
};
#define REPAIR_STATUS_V1 0x100000Cu

struct nvlink_info_v2 {
    unsigned version, nvle_enabled;
    struct {
        uint8_t ucode;
        unsigned major, minor, sub_minor;
    } firmware[100];
    unsigned firmware_count;
};
#define NVLINK_INFO_V1 0x1000008u
#define NVLINK_INFO_V2 0x200064Cu

struct fabric_v1 {
    uint8_t cluster_uuid[16];
    nvmlReturn_t status;
    uint32_t clique_id;
    uint8_t state;
};

struct fabric_v3 {
    unsigned version;
    uint8_t cluster_uuid[16];
    nvmlReturn_t status;
    uint32_t clique_id;
    uint8_t state;
    uint32_t health_mask;
    uint8_t health_summary;
};
#define FABRIC_V2 0x2000024u
#define FABRIC_V3 0x3000028u

struct event_data {
    nvmlDevice_t device;
    uint64_t type, data;
    unsigned gpu_instance, compute_instance;
};

enum event_type {
    EVENT_SBE = 0x1,
    EVENT_DBE = 0x2,
    EVENT_XID = 0x8,
    EVENT_MIG = 0x100,
    EVENT_SBE_STORM = 0x200,
    EVENT_DRAM_RETIREMENT = 0x400,
    EVENT_DRAM_RETIREMENT_FAILURE = 0x800,
    EVENT_POISON_NON_FATAL = 0x1000,
    EVENT_POISON_FATAL = 0x2000,
    EVENT_UNAVAILABLE = 0x4000,
    EVENT_RECOVERY_ACTION = 0x8000,
};

struct system_event_data {
    uint64_t type;
    unsigned gpu_id;
};

struct system_set_request {
    unsigned version;
    nvmlSystemEventSet_t set;
};
#define SYSTEM_SET_V1 0x1000010u

struct system_register_request {
    unsigned version;
    uint64_t types;
    nvmlSystemEventSet_t set;
};
#define SYSTEM_REGISTER_V1 0x1000018u

struct system_wait_request {
    unsigned version, timeout_ms;
    nvmlSystemEventSet_t set;
    struct system_event_data *data;
    unsigned data_size, event_count;
};
#define SYSTEM_WAIT_V1 0x1000020u

struct mig_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned gpu_slices, compute_slices;
    uint64_t memory_mib;
};

#endif
