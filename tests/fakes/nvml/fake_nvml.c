/*
 * A stand-in for libnvidia-ml.so.1, as far as jaxmon reads NVML.
 *
 * The real pynvml loads it, so structure layouts, version words and return codes
 * are those of the driver's library. It has FAKE_NVML_GPUS devices (2), and does
 * what the file FAKE_NVML_CONTROL says, which it reads again at every call. Each
 * line of that file is one of
 *
 *   init CODE            nvmlInit fails with CODE
 *   all CODE             every call after nvmlInit fails with CODE
 *   device I CODE        every call about device I fails with CODE
 *   call NAME CODE       every call of NAME fails with CODE
 *   call NAME I CODE     the same for device I alone
 *   hang NAME            NAME does not return while the line stands
 *   util I PERCENT       utilisation of device I
 *   events I MASK        event types that device I supports, 31 otherwise
 *
 * The file FAKE_NVML_XIDS is the driver's queue, to be appended to: a line "I XID"
 * or "I XID COUNT" is one Xid error of device I, or COUNT. An event set delivers
 * what comes after a device was registered with it. What the driver's manual leaves
 * open is harsh here: a wait of 0 ms ends with an event only, a set does not outlive
 * nvmlShutdown, and there are no more than 64 sets.
 *
 * Calls are counted in FAKE_NVML_LOG, one name and device per line.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
};

enum { MAX_DEVICES = 16, MAX_SETS = 64, XID_CRITICAL_ERROR = 8, EVENT_TYPES = 31 };
enum { MEMORY_INFO_V2 = 0x02000028, FIELD_MEMORY_TEMP = 82 };

typedef int nvml_return;

typedef struct {
    int index;
} device;

typedef struct {
    unsigned gpu, memory;
} utilization;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    int value_type;
    nvml_return result;
    union {
        double f64;
        unsigned u32;
        unsigned long long u64;
    } value;
} field_value;

typedef struct {
    device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} event_data;

typedef struct {
    int live;
    int registered[MAX_DEVICES];
    long delivered[MAX_DEVICES]; /* events of the device that are past */
} event_set;

static device devices[MAX_DEVICES];
static event_set event_sets[MAX_SETS];
static int initialised;

static int device_count(void)
{
    const char *text = getenv("FAKE_NVML_GPUS");
    int count = text ? atoi(text) : 2;
    return count > MAX_DEVICES ? MAX_DEVICES : count;
}

/* Say what the control file orders for a call; *hang is set while it should wait. */
static nvml_return ordered(const char *name, int index, int *hang)
{
    nvml_return result = SUCCESS;
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[128], called[64];
    int which, code;

    *hang = 0;
    if (!file)
        return SUCCESS;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "hang %63s", called) == 1) {
            *hang |= !strcmp(called, name);
        } else if (sscanf(line, "init %d", &code) == 1) {
            if (!strcmp(name, "nvmlInitWithFlags"))
                result = code;
        } else if (sscanf(line, "all %d", &code) == 1) {
            if (strcmp(name, "nvmlInitWithFlags") && strcmp(name, "nvmlShutdown"))
                result = code;
        } else if (sscanf(line, "device %d %d", &which, &code) == 2) {
            if (which == index)
                result = code;
        } else if (sscanf(line, "call %63s %d %d", called, &which, &code) == 3) {
            if (!strcmp(called, name) && which == index)
                result = code;
        } else if (sscanf(line, "call %63s %d", called, &code) == 2) {
            if (!strcmp(called, name))
                result = code;
        }
    }
    fclose(file);
    return result;
}

static unsigned ordered_utilization(int index)
{
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[128];
    int which;
    unsigned percent, result = 37;

    if (!file)
        return result;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "util %d %u", &which, &percent) == 2 && which == index)
            result = percent;
    fclose(file);
    return result;
}

static unsigned long long ordered_event_types(int index)
{
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[128];
    int which;
    unsigned long long mask, result = EVENT_TYPES;

    if (!file)
        return result;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "events %d %llu", &which, &mask) == 2 && which == index)
            result = mask;
    fclose(file);
    return result;
}

/*
 * Count the events of each device into totals. With a set, stop at the first one
 * that it has not delivered, and return its Xid and device; else return -1.
 */
static int queued(long totals[MAX_DEVICES], const event_set *set, int *index)
{
    const char *path = getenv("FAKE_NVML_XIDS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[128];
    int which, xid, found = -1;
    long count;

    memset(totals, 0, MAX_DEVICES * sizeof *totals);
    if (!file)
        return found;
    while (found < 0 && fgets(line, sizeof line, file)) {
        count = 1;
        if (sscanf(line, "%d %d %ld", &which, &xid, &count) < 2)
            continue;
        if (which < 0 || which >= MAX_DEVICES)
            continue;
        totals[which] += count;
        if (set && set->registered[which] && set->delivered[which] < totals[which]) {
            *index = which;
            found = xid;
        }
    }
    fclose(file);
    return found;
}

static nvml_return enter(const char *name, int index)
{
    const char *path = getenv("FAKE_NVML_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    nvml_return result;
    int hang;

    if (file) {
        fprintf(file, "%s %d\n", name, index);
        fclose(file);
    }
    while (result = ordered(name, index, &hang), hang)
        usleep(5000);
    return result;
}

static nvml_return enter_initialised(const char *name, int index)
{
    nvml_return result = enter(name, index);
    return initialised ? result : UNINITIALIZED;
}

#define ENTER(index)                                             \
    do {                                                         \
        nvml_return r_ = enter_initialised(__func__, (index));   \
        if (r_ != SUCCESS)                                       \
            return r_;                                           \
    } while (0)

static nvml_return put(char *out, unsigned size, const char *text)
{
    if (strlen(text) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

nvml_return nvmlInitWithFlags(unsigned flags)
{
    nvml_return result = enter(__func__, -1);
    (void)flags;
    if (result == SUCCESS)
        initialised++;
    return result;
}

nvml_return nvmlShutdown(void)
{
    ENTER(-1);
    if (--initialised == 0)
        memset(event_sets, 0, sizeof event_sets);
    return SUCCESS;
}

const char *nvmlErrorString(nvml_return code)
{
    switch (code) {
    case UNINITIALIZED: return "Uninitialized";
    case TIMEOUT: return "Timeout";
    case NOT_SUPPORTED: return "Not Supported";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Some other error";
    }
}

nvml_return nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    ENTER(-1);
    return put(out, size, "580.65.06");
}

nvml_return nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER(-1);
    *count = device_count();
    return SUCCESS;
}

nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out)
{
    ENTER((int)index);
    if (index >= (unsigned)device_count())
        return INVALID_ARGUMENT;
    devices[index].index = index;
    *out = &devices[index];
    return SUCCESS;
}

nvml_return nvmlDeviceGetName(device *self, char *out, unsigned size)
{
    ENTER(self->index);
    return put(out, size, "NVIDIA H100 80GB HBM3");
}

nvml_return nvmlDeviceGetUUID(device *self, char *out, unsigned size)
{
    char uuid[64];
    ENTER(self->index);
    snprintf(uuid, sizeof uuid, "GPU-5f0c9d2e-1a2b-3c4d-5e6f-%012d", self->index);
    return put(out, size, uuid);
}

nvml_return nvmlDeviceGetPciInfo_v3(device *self, pci_info *out)
{
    ENTER(self->index);
    memset(out, 0, sizeof *out);
    out->bus = 0x1A + self->index;
    snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return SUCCESS;
}

nvml_return nvmlDeviceGetUtilizationRates(device *self, utilization *out)
{
    ENTER(self->index);
    out->gpu = ordered_utilization(self->index);
    out->memory = 11;
    return SUCCESS;
}

nvml_return nvmlDeviceGetMemoryInfo_v2(device *self, memory_v2 *out)
{
    ENTER(self->index);
    if (out->version != MEMORY_INFO_V2)
        return ARGUMENT_VERSION_MISMATCH;
    out->total = 80ULL << 30;
    out->reserved = 512ULL << 20;
    out->used = 3ULL << 30;
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

nvml_return nvmlDeviceGetTemperature(device *self, int sensor, unsigned *celsius)
{
    ENTER(self->index);
    if (sensor != 0)
        return INVALID_ARGUMENT;
    *celsius = 40 + self->index;
    return SUCCESS;
}

nvml_return nvmlDeviceGetPowerUsage(device *self, unsigned *milliwatts)
{
    ENTER(self->index);
    *milliwatts = 123500 + self->index;
    return SUCCESS;
}

nvml_return nvmlDeviceGetEnforcedPowerLimit(device *self, unsigned *milliwatts)
{
    ENTER(self->index);
    *milliwatts = 700000;
    return SUCCESS;
}

nvml_return nvmlDeviceGetTotalEnergyConsumption(device *self, unsigned long long *out)
{
    ENTER(self->index);
    *out = 1234567000ULL + self->index; /* millijoules */
    return SUCCESS;
}

nvml_return nvmlDeviceGetFieldValues(device *self, int count, field_value *values)
{
    ENTER(self->index);
    for (int i = 0; i < count; i++) {
        values[i].result = NOT_SUPPORTED;
        if (values[i].field == FIELD_MEMORY_TEMP) {
            values[i].result = SUCCESS;
            values[i].value_type = 0; /* wrongly "double", as some drivers say */
            values[i].value.u64 = 0;
            values[i].value.u32 = 55 + self->index;
        }
    }
    return SUCCESS;
}

nvml_return nvmlDeviceGetSupportedEventTypes(device *self, unsigned long long *types)
{
    ENTER(self->index);
    *types = ordered_event_types(self->index);
    return SUCCESS;
}

nvml_return nvmlEventSetCreate(event_set **out)
{
    ENTER(-1);
    for (int i = 0; i < MAX_SETS; i++) {
        if (!event_sets[i].live) {
            memset(&event_sets[i], 0, sizeof event_sets[i]);
            event_sets[i].live = 1;
            *out = &event_sets[i];
            return SUCCESS;
        }
    }
    return INSUFFICIENT_RESOURCES;
}

nvml_return nvmlDeviceRegisterEvents(device *self, unsigned long long types,
                                     event_set *set)
{
    long totals[MAX_DEVICES];

    ENTER(self->index);
    if (!set->live || types != XID_CRITICAL_ERROR)
        return INVALID_ARGUMENT;
    if (types & ~ordered_event_types(self->index))
        return NOT_SUPPORTED;
    queued(totals, NULL, NULL);
    set->registered[self->index] = 1;
    set->delivered[self->index] = totals[self->index];
    return SUCCESS;
}

/* The first device of a set; orders about that device hold for the set. */
static int device_of(const event_set *set)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        if (set->registered[i])
            return i;
    return -1;
}

nvml_return nvmlEventSetWait_v2(event_set *set, event_data *out, unsigned milliseconds)
{
    long totals[MAX_DEVICES];
    int xid, index;

    ENTER(device_of(set));
    if (!set->live)
        return INVALID_ARGUMENT;
    for (unsigned waited = 0;; waited++) {
        if ((xid = queued(totals, set, &index)) >= 0)
            break;
        if (milliseconds && waited == milliseconds)
            return TIMEOUT;
        usleep(1000);
    }
    set->delivered[index]++;
    out->device = &devices[index];
    out->type = XID_CRITICAL_ERROR;
    out->data = (unsigned long long)xid;
    out->gpu_instance = out->compute_instance = 0xFFFFFFFF;
    return SUCCESS;
}

nvml_return nvmlEventSetFree(event_set *set)
{
    ENTER(device_of(set));
    if (!set->live)
        return INVALID_ARGUMENT;
    set->live = 0;
    return SUCCESS;
}
