/* Sizes that callers allocate; a version word carries its struct's size in 24 bits. */
#include "abi.h"

#define SIZE_OF_VERSION(word) ((word) & 0xFFFFFFu)

_Static_assert(sizeof(struct pci_info) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(struct memory_v1) == 24, "nvmlMemory_t");
_Static_assert(sizeof(struct process_info) == 24, "nvmlProcessInfo_v2_t");
_Static_assert(sizeof(struct field_value) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(struct event_data) == 32, "nvmlEventData_t");
_Static_assert(sizeof(struct remapped_rows_v2) == 24, "nvmlRemappedRowsInfo_v2_t");
_Static_assert(sizeof(struct pci_info_ext) == SIZE_OF_VERSION(PCI_INFO_EXT_V1), "nvmlPciInfoExt_v1_t");
_Static_assert(sizeof(struct memory_v2) == SIZE_OF_VERSION(MEMORY_V2), "nvmlMemory_v2_t");
_Static_assert(sizeof(struct sram_status) == SIZE_OF_VERSION(SRAM_STATUS_V1), "nvmlEccSramErrorStatus_v1_t");
_Static_assert(sizeof(struct temperature_v1) == SIZE_OF_VERSION(TEMPERATURE_V1), "nvmlTemperature_v1_t");
_Static_assert(sizeof(struct version_and_int) == SIZE_OF_VERSION(VERSION_AND_INT_V1),
               "nvmlMarginTemperature_v1_t");
_Static_assert(sizeof(struct repair_status) == SIZE_OF_VERSION(REPAIR_STATUS_V1), "nvmlRepairStatus_v1_t");
_Static_assert(sizeof(struct nvlink_info_v2) == SIZE_OF_VERSION(NVLINK_INFO_V2), "nvmlNvLinkInfo_v2_t");
_Static_assert(sizeof(struct fabric_v3) == SIZE_OF_VERSION(FABRIC_V3), "nvmlGpuFabricInfo_v3_t");
_Static_assert(sizeof(struct system_set_request) == SIZE_OF_VERSION(SYSTEM_SET_V1),
               "nvmlSystemEventSetCreateRequest_v1_t");
_Static_assert(sizeof(struct system_register_request) == SIZE_OF_VERSION(SYSTEM_REGISTER_V1),
               "nvmlSystemRegisterEventRequest_v1_t");
_Static_assert(sizeof(struct system_wait_request) == SIZE_OF_VERSION(SYSTEM_WAIT_V1),
               "nvmlSystemEventSetWaitRequest_v1_t");
