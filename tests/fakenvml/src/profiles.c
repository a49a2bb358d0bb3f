/*
 * The four kinds of node, as the keys a scenario could set itself.
 *
 * Numbers are a healthy idle node's. What a kind lacks is simply never set, and
 * the calls for it answer NOT_SUPPORTED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakenvml.h"

struct setting {
    const char *key, *value;
};

struct profile {
    const char *name, *driver, *uuid_prefix;
    const char *buses[MAX_GPUS / 2];
    const struct setting *settings;
};

static const struct setting common[] = {
    {"brand", "14"}, {"persistence", "on"}, {"gsp.mode", "1"}, {"has.gsp", "yes"},
    {"inforom.valid", "yes"}, {"event_types", "0xFE1F"}, {"has.ecc", "yes"},
    {"ecc.mode", "on"}, {"ecc.pending_mode", "on"}, {"has.remap", "yes"}, {"has.sram", "yes"},
    {"has.recovery_action", "yes"}, {"has.throttle_ns", "yes"}, {"has.unrepairable", "yes"},
    {"temperature", "34"}, {"pstate", "0"}, {"clocks.reasons", "0x1"},
    {"clocks.reasons_supported", "0x1FF"}, {"pcie.width", "16"}, {"pcie.width_max", "16"},
    {NULL, NULL},
};

static const struct setting a100[] = {
    {"name", "NVIDIA A100-SXM4-80GB"}, {"device_id", "0x20B210DE"}, {"subsystem_id", "0x146310DE"},
    {"part_number", "692-2G506-0212-002"}, {"vbios", "92.00.45.00.03"},
    {"inforom.version", "G506.0212.00.01"}, {"architecture", "7"}, {"cuda.major", "8"},
    {"memory.total", "85899345920"}, {"memory.reserved", "655360000"},
    {"remap.histogram.max", "640"}, {"has.memory_temperature", "yes"}, {"temperature.memory", "41"},
    {"threshold.shutdown", "92"}, {"threshold.slowdown", "89"}, {"threshold.gpu_max", "85"},
    {"threshold.memory_max", "95"}, {"clock.graphics", "210"}, {"clock.sm", "210"},
    {"clock.memory", "1593"}, {"clock.video", "585"}, {"power_mw", "62000"},
    {"power_limit_mw", "400000"}, {"pcie.gen", "4"}, {"pcie.gen_max", "4"}, {"pcie.gen_gpu_max", "4"},
    {"has.nvlink", "yes"}, {"nvlink.count", "12"}, {"nvlink.version", "4"},
    {"nvlink.speed_mbps", "25781"}, {"has.mig", "yes"}, {"event_types", "0xFF1F"},
    {NULL, NULL},
};

static const struct setting h100[] = {
    {"name", "NVIDIA H100 80GB HBM3"}, {"device_id", "0x233010DE"}, {"subsystem_id", "0x16C110DE"},
    {"part_number", "692-2G520-0200-000"}, {"vbios", "96.00.99.00.01"},
    {"inforom.version", "G520.0200.00.05"}, {"architecture", "9"}, {"cuda.major", "9"},
    {"memory.total", "85520809984"}, {"memory.reserved", "577765376"},
    {"remap.histogram.max", "2560"}, {"has.memory_temperature", "yes"}, {"temperature.memory", "43"},
    {"has.margin", "yes"}, {"temperature.margin", "51"}, {"has.tlimit", "yes"},
    {"tlimit.shutdown", "-8"}, {"tlimit.slowdown", "-2"}, {"clock.graphics", "345"},
    {"clock.sm", "345"}, {"clock.memory", "2619"}, {"clock.video", "765"}, {"power_mw", "71000"},
    {"power_limit_mw", "700000"}, {"pcie.gen", "5"}, {"pcie.gen_max", "5"}, {"pcie.gen_gpu_max", "5"},
    {"has.nvlink", "yes"}, {"has.link_fields", "yes"}, {"nvlink.count", "18"}, {"nvlink.version", "6"},
    {"nvlink.speed_mbps", "26562"}, {"has.fabric", "yes"}, {"fabric.state", "3"},
    {"fabric.health_mask", "0x1AA"}, {"fabric.health_summary", "1"}, {"has.mig", "yes"},
    {"event_types", "0xFF1F"},
    {NULL, NULL},
};

static const struct setting b200[] = {
    {"name", "NVIDIA B200"}, {"device_id", "0x290110DE"}, {"subsystem_id", "0x199910DE"},
    {"part_number", "692-2G525-0220-000"}, {"vbios", "97.00.88.00.0F"},
    {"inforom.version", "G525.0220.00.03"}, {"architecture", "10"}, {"cuda.major", "10"},
    {"memory.total", "192265846784"}, {"memory.reserved", "741343232"},
    {"remap.histogram.max", "6144"}, {"has.memory_temperature", "yes"}, {"temperature.memory", "39"},
    {"has.margin", "yes"}, {"temperature.margin", "48"}, {"has.tlimit", "yes"},
    {"tlimit.shutdown", "-5"}, {"tlimit.slowdown", "-2"}, {"has.repair", "yes"},
    {"clock.graphics", "120"}, {"clock.sm", "120"}, {"clock.memory", "3996"}, {"clock.video", "600"},
    {"power_mw", "140000"}, {"power_limit_mw", "1000000"}, {"pcie.gen", "5"}, {"pcie.gen_max", "5"},
    {"pcie.gen_gpu_max", "6"}, {"has.nvlink", "yes"}, {"has.nvlink5", "yes"},
    {"has.link_fields", "yes"},
    {"nvlink.count", "18"}, {"nvlink.version", "7"}, {"nvlink.speed_mbps", "53125"},
    {"has.fabric", "yes"}, {"fabric.state", "3"}, {"fabric.health_mask", "0x51AA"},
    {"fabric.health_summary", "1"}, {"has.mig", "yes"}, {"event_types", "0xFF1F"},
    {NULL, NULL},
};

static const struct setting l4[] = {
    {"name", "NVIDIA L4"}, {"device_id", "0x27B810DE"}, {"subsystem_id", "0x16CA10DE"},
    {"part_number", "900-2G193-0000-001"}, {"vbios", "95.04.29.00.06"},
    {"inforom.version", "G193.0200.00.01"}, {"architecture", "8"}, {"cuda.major", "8"},
    {"cuda.minor", "9"}, {"memory.total", "24152899584"}, {"memory.reserved", "412352512"},
    {"remap.histogram.max", "96"}, {"has.margin", "yes"}, {"temperature.margin", "42"},
    {"has.tlimit", "yes"}, {"tlimit.shutdown", "-5"}, {"tlimit.slowdown", "-2"},
    {"clock.graphics", "210"}, {"clock.sm", "210"}, {"clock.memory", "405"}, {"clock.video", "765"},
    {"pstate", "8"}, {"power_mw", "16500"}, {"power_limit_mw", "72000"}, {"pcie.gen", "1"},
    {"pcie.gen_max", "4"}, {"pcie.gen_gpu_max", "4"},
    {NULL, NULL},
};

static const struct profile profiles[] = {
    {"A100", "550.90.07", "a1", {"07", "0F", "47", "4E", "87", "90", "B7", "BD"}, a100},
    {"H100", "580.95.05", "b1", {"1B", "43", "52", "61", "9D", "C3", "D1", "DF"}, h100},
    {"B200", "580.95.05", "c2", {"1B", "43", "52", "61", "9D", "C3", "D1", "DF"}, b200},
    {"L4", "580.95.05", "d4", {"31", "4B", "65", "98", "B1", "CA", "E3", "17"}, l4},
};

static void apply(struct gpu *gpu, const struct setting *setting)
{
    const char *why = NULL;

    for (; setting->key; setting++) {
        char *value = (char *)setting->value;
        if (!set_gpu_key(gpu, setting->key, &value, 1, &why))
            fprintf(stderr, "fakenvml: profile: %s\n", why);
    }
}

static void set_identity(struct gpu *gpu, const struct profile *profile, unsigned index)
{
    enum { BUSES = MAX_GPUS / 2 };

    snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-%s000000-0000-4000-8000-%012u", profile->uuid_prefix, index);
    snprintf(gpu->serial, sizeof gpu->serial, "16500240%05u", index);
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%08X:%s:00.0", index / BUSES, profile->buses[index % BUSES]);
    gpu->minor = index;
    gpu->board_id = (unsigned)strtoul(profile->buses[index % BUSES], NULL, 16) << 8;
    for (unsigned link = 0; link < gpu->nvlink_count; link++) {
        gpu->links[link].up = 1;
        gpu->links[link].remote_type = 2; /* an NVSwitch */
    }
}

bool apply_profile(struct scenario *scenario, const char *name, unsigned count)
{
    for (size_t p = 0; p < sizeof profiles / sizeof *profiles; p++) {
        if (strcmp(profiles[p].name, name) != 0)
            continue;
        scenario->gpu_count = count;
        if (!scenario->driver[0])
            strcpy(scenario->driver, profiles[p].driver);
        for (unsigned i = 0; i < count; i++) {
            memset(&scenario->gpus[i], 0, sizeof scenario->gpus[i]);
            apply(&scenario->gpus[i], common);
            apply(&scenario->gpus[i], profiles[p].settings);
            set_identity(&scenario->gpus[i], &profiles[p], i);
        }
        return true;
    }
    return false;
}
