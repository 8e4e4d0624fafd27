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
 *   count N              there are N devices now
 *   util I PERCENT       utilisation of device I
 *   events I MASK        event types that device I supports, 31 otherwise
 *   field I F VALUE      numbered figure F of device I
 *   fieldcode I F CODE   numbered figure F of device I fails with CODE
 *   mig I MODE           device I is divided into MIG devices, or is not
 *   fabric I CODE        device I has registered with its fabric in vain
 *   clocks I MASK        what holds the clock of device I down
 *   process I PID BYTES  a process on device I; -1: its memory is not known
 *
 * FAKE_NVML_PROFILE says what the devices are: h100 (else), h200, b200, a100 (divided
 * into MIG devices), t4, or v100. Compiled with FAKE_NVML_OLD, it is the library of a
 * driver that lacks newer functions.
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
enum { MEMORY_INFO_V2 = 0x02000028, MAX_PARTS = 7 };

typedef int nvml_return;

typedef struct {
    int index;
    int part; /* number of the MIG device, counted from 1; 0: the whole GPU */
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
    const char *text = getenv("FAKE_NVML_GPUS"), *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    int count = text ? atoi(text) : 2;
    char line[128];

    while (file && fgets(line, sizeof line, file))
        sscanf(line, "count %d", &count);
    if (file)
        fclose(file);
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

/* Say whether a line "VERB I VALUE" is there, or "VERB I KEY VALUE" with a key. */
static int ordered_value(const char *verb, int index, long key, long long *value)
{
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[128], word[64];
    int which, found = 0;
    long named;
    long long number;

    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        named = key;
        if (key < 0 ? sscanf(line, "%63s %d %lld", word, &which, &number) != 3
                    : sscanf(line, "%63s %d %ld %lld", word, &which, &named, &number) != 4)
            continue;
        if (!strcmp(word, verb) && which == index && named == key) {
            *value = number;
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static unsigned long long ordered_event_types(int index)
{
    long long mask = EVENT_TYPES;
    ordered_value("events", index, -1, &mask);
    return (unsigned long long)mask;
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

nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, device **out)
{
    int index = 0, end = 0;

    ENTER(-1);
    sscanf(uuid, "GPU-5f0c9d2e-1a2b-3c4d-5e6f-%d%n", &index, &end);
    if (!end || uuid[end] || index < 0 || index >= device_count())
        return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2((unsigned)index, out);
}

nvml_return nvmlDeviceGetIndex(device *self, unsigned *index)
{
    ENTER(self->index);
    *index = (unsigned)self->index;
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
        if (waited == milliseconds)
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

#include "fake_figures.c"
#include "fake_gpm.c"
