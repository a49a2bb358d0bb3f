/* What the parts of the library know of each other; abi.h has what callers see. */
#ifndef FAKENVML_H
#define FAKENVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

enum {
    MAX_GPUS = 16,
    MAX_MIG = 8,
    MAX_LINKS = 18,
    MAX_PROCESSES = 256,
    MAX_EVENTS = 1024,
    MAX_RULES = 128,
    MAX_FIELDS = 64,
    MAX_MISSING = 64,
    TEXT_BYTES = 96,
};
#define ALL_GPUS (-1)
#define NO_GPU (-2)
#define NO_INSTANCE 0xFFFFFFFFu

/* A count that stands still, or grows from since_seconds (CLOCK_MONOTONIC) on. */
struct counter {
    uint64_t base;
    double per_second, since_seconds;
};

enum gpu_state { GPU_OK, GPU_LOST, GPU_FALLEN_OFF_BUS, GPU_ABSENT, GPU_RESET_REQUIRED };

struct link {
    unsigned up, remote_type;
    struct counter replay, recovery, crc_flit, crc_data;
    struct counter recovery_ok, recovery_failed, recovery_events;
    struct counter effective_errors, symbol_errors;
    uint64_t effective_ber, symbol_ber;
};

struct mig_device {
    unsigned gpu_instance, compute_instance, slices;
    char uuid[TEXT_BYTES], profile[TEXT_BYTES];
    uint64_t memory_bytes;
};

struct ecc_kind {
    struct counter dram, sram;
};

struct gpu {
    char name[TEXT_BYTES], uuid[TEXT_BYTES], serial[TEXT_BYTES], part_number[TEXT_BYTES];
    char vbios[TEXT_BYTES], bus_id[TEXT_BYTES], gsp_version[TEXT_BYTES], inforom[TEXT_BYTES];
    char fabric_uuid[TEXT_BYTES];
    unsigned minor, device_id, subsystem_id, board_id, architecture, brand, cuda_major, cuda_minor;
    unsigned state, persistence, gsp_mode, inforom_valid, addressing_mode;
    unsigned has_ecc, has_remap, has_sram, has_retired_pages, has_nvlink, has_mig, has_fabric;
    unsigned has_recovery, has_margin, has_memory_temperature, has_tlimit, has_throttle_ns;
    unsigned has_repair, has_unrepairable, has_gsp, has_nvlink5, has_link_fields;
    unsigned ecc_mode, ecc_pending_mode, sram_threshold_exceeded;
    struct ecc_kind ecc[2][2]; /* [corrected, uncorrected][volatile, aggregate] */
    uint64_t sram_l2, sram_sm, sram_pcie, sram_mcu, sram_other;
    unsigned remap_corrected, remap_uncorrected, remap_pending, remap_failure;
    unsigned remap_corrected_inactive, remap_uncorrected_inactive;
    struct row_histogram remap_histogram;
    unsigned retired_sbe, retired_dbe, retired_pending;
    unsigned recovery_action, repair_channel, repair_tpc, unrepairable_memory;
    int temperature, memory_temperature, margin;
    int tlimit_shutdown, tlimit_slowdown, tlimit_memory_max, tlimit_gpu_max;
    unsigned threshold_shutdown, threshold_slowdown, threshold_memory_max, threshold_gpu_max;
    unsigned pstate, clock_graphics, clock_sm, clock_memory, clock_video;
    unsigned power_mw, power_limit_mw, utilization_gpu, utilization_memory;
    uint64_t clocks_reasons, clocks_reasons_supported;
    struct counter throttle_power_cap, throttle_sync_boost, throttle_sw_thermal;
    struct counter throttle_hw_thermal, throttle_power_brake;
    unsigned pcie_width, pcie_width_max, pcie_gen, pcie_gen_max, pcie_gen_gpu_max;
    struct counter pcie_replay;
    unsigned nvlink_count, nvlink_version, nvlink_speed_mbps;
    struct link links[MAX_LINKS];
    unsigned fabric_state, fabric_status, fabric_clique, fabric_health_mask, fabric_health_summary;
    unsigned mig_mode, mig_pending_mode, mig_count;
    struct mig_device mig[MAX_MIG];
    uint64_t memory_total, memory_used, memory_reserved;
    uint64_t event_types;
};

struct process {
    int gpu;
    struct process_info info;
};

struct event {
    uint64_t id, type, data;
    int gpu;
    unsigned gpu_instance, compute_instance;
};

struct field_override {
    int gpu;
    uint32_t id;
    bool has_value;
    nvmlReturn_t result;
    uint64_t value;
};

enum action { ACT_RETURN, ACT_BLOCK, ACT_DELAY, ACT_KILL };
enum death { DEATH_ABORT, DEATH_SEGV, DEATH_EXIT, DEATH_SIGKILL };

struct rule {
    uint64_t key;
    char pattern[TEXT_BYTES], except[512];
    int gpu;
    enum action action;
    unsigned argument; /* code, milliseconds or enum death, by action */
    uint64_t from, times;
    bool node_wide;
};

struct scenario {
    unsigned references;
    unsigned long generation;
    char driver[TEXT_BYTES], library[TEXT_BYTES], nvml[TEXT_BYTES];
    unsigned cuda_version, known_xid_max;
    nvmlReturn_t stale_code, unknown_field_code;
    unsigned gpu_count, process_count, event_count, system_event_count, rule_count, field_count;
    unsigned missing_count;
    struct gpu gpus[MAX_GPUS];
    struct process processes[MAX_PROCESSES];
    struct event events[MAX_EVENTS], system_events[MAX_EVENTS];
    struct rule rules[MAX_RULES];
    struct field_override fields[MAX_FIELDS];
    char missing[MAX_MISSING][TEXT_BYTES];
};

/* scenario.c: the file, re-read when it changes; a reference keeps one reading alive. */
const struct scenario *scenario_acquire(void);
void scenario_release(const struct scenario *scenario);
const char *scenario_path(void);

/*
 * watch.c: sleep until the scenario may have changed or the time is up. Begin
 * before the look that finds nothing, so that no change falls in between.
 */
void watch_begin(void);
void watch_wait(int64_t milliseconds);
int64_t now_ms(void);
uint64_t wall_clock_us(void);

/* parse.c, lines.c, keys.c, profiles.c: text to struct scenario. */
struct line {
    const char *path, *text;
    unsigned number;
};
enum { MAX_WORDS = 16 };
bool complain(const struct line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void parse_scenario(struct scenario *scenario, const char *path, char *text);
bool parse_line(struct scenario *scenario, const struct line *line, char **words, int count);
bool parse_unsigned(const char *text, uint64_t *value);
bool parse_gpu_index(const struct scenario *scenario, const char *text, int *gpu);
bool parse_rule(struct scenario *scenario, const struct line *line, char **words, int count);
bool parse_event(struct scenario *scenario, const struct line *line, char **words, int count);
const char *find_option(char **words, int count, const char *name);
bool option_unsigned(char **words, int count, const char *name, uint64_t *value);
bool set_gpu_key(struct gpu *gpu, const char *key, char **values, int count, const char **why);
bool set_link_key(struct link *link, const char *key, char **values, int count, const char **why);
bool apply_profile(struct scenario *scenario, const char *name, unsigned count);
uint64_t counter_value(const struct counter *counter);

/* counters.c: how often each call was made and each rule met. */
uint64_t hash_text(const char *text);
uint64_t count_in_process(uint64_t key);
uint64_t count_on_node(uint64_t key);

/* rules.c: what the scenario does to a call before it is answered. */
nvmlReturn_t rules_gate(const char *name, int gpu);

/* process.c: this process as a client of the driver. */
bool process_initialised(void);
bool process_stale(const struct scenario *scenario);
unsigned library_major(void);
void remember_library(const struct scenario *scenario);
int enumerated_gpu(unsigned position);
unsigned enumerated_count(void);
bool parse_code(const char *text, nvmlReturn_t *code);

/* call.c: the frame every exported function stands in. */
struct call {
    const struct scenario *scenario;
    const struct gpu *gpu;
    const struct mig_device *mig;
    int index;
};
enum call_flags {
    CALL_DEVICE = 0,
    CALL_SYSTEM = 1,       /* no device argument */
    CALL_NO_INIT = 2,      /* allowed before nvmlInit */
    CALL_MIG_TOO = 4,      /* also answers for a MIG device handle */
    CALL_WHEN_BROKEN = 8,  /* answers while the GPU waits for a reset */
};
nvmlReturn_t call_begin(struct call *call, const char *name, nvmlDevice_t device, unsigned flags);
void call_end(struct call *call);
nvmlDevice_t device_handle(int gpu, int mig);
bool handle_decode(nvmlDevice_t device, int *gpu, int *mig);
bool gpu_gone(const struct gpu *gpu);
nvmlReturn_t put_text(const char *value, char *buffer, unsigned length);
nvmlReturn_t put_unsigned(unsigned value, unsigned *out);

#define BEGIN(device, flags)                                             \
    struct call call __attribute__((cleanup(call_end)));                 \
    {                                                                    \
        nvmlReturn_t begun = call_begin(&call, __func__, device, flags); \
        if (begun != NVML_SUCCESS)                                       \
            return begun;                                                \
    }
#define REQUIRE(condition, code) \
    if (!(condition))            \
    return (code)

#endif
