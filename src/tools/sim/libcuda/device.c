/* SPDX-License-Identifier: MIT */
/* Initialisation, versions, devices, peers. Must not make the machine anywhere but in cuInit. */
#define _POSIX_C_SOURCE 200809L
#include "sim/libcuda/libcuda_machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

CUresult CUDAAPI cuInit(unsigned flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : simcuda_start();
}

CUresult CUDAAPI cuDriverGetVersion(int *version_out)
{
    if (!version_out)
        return CUDA_ERROR_INVALID_VALUE;
    *version_out = simcuda_version();
    return CUDA_SUCCESS;
}

static CUresult known(struct sim *sim, CUdevice device)
{
    int n = 0;
    CUresult result = sim_device_get_count(sim, &n);
    if (result == CUDA_SUCCESS && (device < 0 || device >= n))
        return CUDA_ERROR_INVALID_DEVICE;
    return result;
}

static CUresult get(struct sim *sim, CUdevice *device_out, int ordinal)
{
    if (!device_out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = known(sim, ordinal);
    if (result == CUDA_SUCCESS)
        *device_out = ordinal;
    return result;
}

static CUresult name_of(struct sim *sim, char *name_out, int length, CUdevice device)
{
    if (!name_out || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = known(sim, device);
    if (result == CUDA_SUCCESS)
        snprintf(name_out, (size_t)length, "Simulated device");
    return result;
}

static CUresult total_of(struct sim *sim, size_t *bytes_out, CUdevice device)
{
    CUresult result = sim_device_total_mem(sim, device, bytes_out);
    if (result == CUDA_SUCCESS)
        *bytes_out += SIMCUDA_OWN_BYTES;
    return result;
}

/* Every process has a machine of its own, so no two have a device in common. */
static CUresult uuid_of(struct sim *sim, CUuuid *uuid_out, CUdevice device)
{
    if (!uuid_out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = known(sim, device);
    if (result == CUDA_SUCCESS) {
        memset(uuid_out, 0x51, sizeof(*uuid_out));
        uuid_out->bytes[0] = (char)device;
        pid_t process = getpid();
        memcpy(uuid_out->bytes + 4, &process, sizeof process);
    }
    return result;
}

static CUresult bus_id_of(struct sim *sim, char *id_out, int length, CUdevice device)
{
    if (!id_out || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = known(sim, device);
    if (result == CUDA_SUCCESS)
        snprintf(id_out, (size_t)length, "0000:%02X:00.0", (unsigned)device + 1);
    return result;
}

static CUresult capability(struct sim *sim, int *major_out, int *minor_out, CUdevice device)
{
    CUresult result = sim_device_get_attribute(sim, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                               device, major_out);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_device_get_attribute(sim, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device,
                                    minor_out);
}

static CUresult peer_attribute(struct sim *sim, int *value_out, CUdevice_P2PAttribute attribute,
                               CUdevice device, CUdevice peer)
{
    int can = 0;
    if (!value_out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_can_access_peer(sim, device, peer, &can);
    if (result == CUDA_SUCCESS)
        *value_out = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED && can;
    return result;
}

CALL(cuDeviceGetCount, (int *count), sim_device_get_count(sim, count))
CALL(cuDeviceGet, (CUdevice * device, int ordinal), get(sim, device, ordinal))
CALL(cuDeviceGetName, (char *name, int length, CUdevice device), name_of(sim, name, length, device))
CALL(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device), uuid_of(sim, uuid, device))
CALL(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), uuid_of(sim, uuid, device))
CALL(cuDeviceGetPCIBusId, (char *id, int length, CUdevice device),
     bus_id_of(sim, id, length, device))
CALL(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device), total_of(sim, bytes, device))
CALL(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device),
     sim_device_get_attribute(sim, attribute, device, value))
CALL(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device),
     capability(sim, major, minor, device))
CALL(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer),
     sim_device_can_access_peer(sim, device, peer, can))
CALL(cuDeviceGetP2PAttribute,
     (int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer),
     peer_attribute(sim, value, attribute, device, peer))
