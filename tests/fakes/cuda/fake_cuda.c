/*
 * The few functions of CUDA's driver that tell who a device is. Three devices: a GPU, a
 * MIG device, and one whose UUID cannot be read. Compiled with NO_V2, as a driver older
 * than 11.4.
 */
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, NOT_PERMITTED = 800 };

static int initialized;

int cuInit(unsigned flags) {
  (void)flags;
  initialized = 1;
  return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
  if (!initialized) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal > 2) return INVALID_DEVICE;
  *device = 40 + ordinal; /* a handle, not the ordinal */
  return SUCCESS;
}

static int fill(unsigned char *uuid, int device, unsigned char first) {
  if (device == 42) return NOT_PERMITTED;
  for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(first + i);
  return SUCCESS;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) { return fill(uuid, device, 0x10); }

#ifndef NO_V2
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  return fill(uuid, device, device == 41 ? 0xa0 : 0x10);
}
#endif

int cuDeviceGetPCIBusId(char *text, int length, int device) {
  if (device < 40 || device > 42) return INVALID_DEVICE;
  snprintf(text, (size_t)length, "0000:%02X:00.0", 0xc0 + device - 40);
  return SUCCESS;
}
